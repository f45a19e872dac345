"""Requests to prompts and outputs to events, on the host.

Decides how a conversation is spelled as a prompt and how a prompt becomes token ids. Never imports
jax, never runs a model. In: conversations. Out: prompt segments and token ids.
"""

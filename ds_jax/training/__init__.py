"""Training of the tiny model: data, tasks and scores.

Decides what the tiny model learns from and how its answers are scored. Never serves requests. In:
seeds and public text. Out: token rows, a tokenizer, scores.
"""

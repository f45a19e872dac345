"""Conversation to prompt, in the V4 format.

Decides what stands before the first turn, how messages are grouped into turns and where tool
results go. Never trims, escapes or encodes. In: a `Conversation`. Out: a `RenderedPrompt`.

V4 has no system turns: every system text stands directly after the first token. Tool calls are
ordered by their id, and so are the messages that answer them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ds_jax.recipe import conversation as conv
from ds_jax.recipe import dsml, json_text, spatial
from ds_jax.recipe.prompt import PromptBuilder, RenderedPrompt
from ds_jax.recipe.render import FORMAT_TEXT
from ds_jax.recipe.special_tokens import SpecialTokens

_ABSOLUTE = """Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve \
the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and \
adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, \
considered alternative, and rejected hypothesis to ensure absolutely no assumption is left \
unchecked.

"""
_BEYOND = """Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: \
exhaustively decompose the problem into its most fundamental components, trace every causal chain \
to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and \
are certain that no assumption remains unchecked and no error remains undiscovered.

"""
EFFORT_TEXTS = {"low": "", "high": _ABSOLUTE, "xhigh": _ABSOLUTE, "max": _BEYOND, None: _ABSOLUTE}
JSON_TEXT = (
    "\n\nYou are a helpful assistant designed to output JSON.\n"
    "## Response Format:\n\nReply with JSON object ONLY."
)

_Group: TypeAlias = tuple[tuple[int, conv.Message], ...]
"""One message, or several user messages in a row, each with its index in the conversation."""


def render(conversation: conv.Conversation, tokens: SpecialTokens | None = None) -> RenderedPrompt:
    """Renders a conversation up to the point where the model continues.

    Args:
      conversation: messages, tools and answer format, in any order.
      tokens: spellings of the control tokens; default: the V4 ones.

    Returns:
      The prompt; it ends inside the assistant's turn.
    """
    return _Renderer(conversation, tokens or SpecialTokens()).render()


class _Renderer:
    """One rendering; holds the prompt under construction."""

    def __init__(self, conversation: conv.Conversation, tokens: SpecialTokens):
        self.conversation = conversation
        self.tokens = tokens
        self.marks = spatial.Marks(tokens)
        self.tools = conversation.tools
        self.tools_active = bool(self.tools) and conversation.tool_choice != "none"
        self.out = PromptBuilder()

    def render(self) -> RenderedPrompt:
        out, tokens, conversation = self.out, self.tokens, self.conversation
        numbered = list(enumerate(conversation.messages))
        out.special(tokens.bos)
        if conversation.thinking_mode:
            out.at("system", "effort").text(EFFORT_TEXTS[conversation.reasoning_effort])
        self._add_system_texts(item for item in numbered if item[1].role == "system")
        groups = _grouped(item for item in numbered if item[1].role != "system")
        groups = _with_sorted_results(groups)
        self._add_turns(groups)
        last = groups[-1][-1][1] if groups else None
        if not (last and last.prefix):
            out.at("assistant", "next_turn").special(tokens.assistant).special(
                tokens.thinking_start if conversation.thinking_mode else tokens.thinking_end
            )
        if self.tools_active and conversation.tool_choice == "required":
            dsml.add_calls_start(out.at("assistant", "next_turn"), tokens, dsml.V4)
        return out.build()

    def _add_system_texts(self, systems: Iterable[tuple[int, conv.Message]]) -> None:
        out = self.out
        self._add_joined("system", systems)
        if self.tools_active:
            dsml.add_tool_block(out, self.tools, self.tokens, dsml.V4)
        out.at("system", "response_format")
        if self.conversation.response_format == "json_object":
            out.text(JSON_TEXT)
        elif self.conversation.response_format == "json_schema":
            schema = self.conversation.shared_response_schema
            out.text(FORMAT_TEXT).text(json_text.dumps_decimal(schema))

    def _add_turns(self, groups: Sequence[_Group]) -> None:
        out, tokens = self.out, self.tokens
        previous = ""
        for position, group in enumerate(groups):
            index, message = group[0]
            match message:
                case conv.AssistantMessage():
                    self._add_assistant(index, message, is_last=position == len(groups) - 1)
                case conv.LatestReminderMessage():
                    out.at("latest_reminder", "turn", index).special(tokens.latest_reminder)
                    out.at("latest_reminder", "content", index).text(message.content)
                case _:
                    out.at("user", "turn", index)
                    if previous == "tool" or previous == message.role == "user":
                        out.text("\n\n")
                    else:
                        out.special(tokens.user)
                    if message.role == "tool":
                        out.at("tool", "turn", index).text("<tool_result>")
                        out.at("tool", "content", index).content(message)
                        out.at("tool", "turn", index).text("</tool_result>")
                    else:
                        self._add_joined("user", group)
            previous = message.role

    def _add_joined(self, role: str, messages: Iterable[tuple[int, conv.Message]]) -> None:
        """The contents that are not empty, a blank line between them."""
        separator = ""
        for index, message in messages:
            if message.content:
                self.out.at(role, "turn", index).text(separator)
                separator = "\n\n"
            if message.content or role == "user":
                self.out.at(role, "content", index).content(message)

    def _add_assistant(self, index: int, message: conv.AssistantMessage, *, is_last: bool) -> None:
        out, tokens = self.out, self.tokens
        out.at("assistant", "turn", index).special(tokens.assistant)
        unfinished = message.prefix and self.conversation.thinking_mode and not message.content
        reasoning = message.reasoning_content
        out.at("assistant", "reasoning_content", index)
        if reasoning is not None and (self.tools_active or message.prefix):
            out.special(tokens.thinking_start).assistant_text(reasoning, self.marks)
        if not unfinished:
            out.special(tokens.thinking_end)
        out.at("assistant", "content", index).assistant_text(message.content, self.marks)
        if message.tool_calls is not None:
            calls = sorted(enumerate(message.tool_calls), key=lambda numbered: numbered[1].id)
            dsml.add_calls(out, calls, tokens, dsml.V4, index)
        if not (message.prefix and is_last):
            out.at("assistant", "turn", index).special(tokens.eos)


def _grouped(messages: Iterable[tuple[int, conv.Message]]) -> list[_Group]:
    """User messages in a row as one group, every other message alone."""
    groups: list[_Group] = []
    for role, run in itertools.groupby(messages, lambda item: item[1].role):
        items = tuple(run)
        groups.extend([items] if role == "user" else [(item,) for item in items])
    return groups


def _with_sorted_results(groups: Sequence[_Group]) -> list[_Group]:
    """The N groups after a turn with N calls: tool results by id first, then the others.

    Turns are taken where they stood at first, even if an earlier step moved them.
    """
    ordered = list(groups)
    for start, group in enumerate(groups, 1):
        count = len(group[0][1].tool_calls or ())
        if start + count <= len(ordered):
            ordered[start : start + count] = sorted(ordered[start : start + count], key=_rank)
    return ordered


def _rank(group: _Group) -> tuple[bool, bool, str]:
    message = group[0][1]
    call_id = message.tool_call_id
    return (message.role != "tool", call_id is not None, call_id or "")

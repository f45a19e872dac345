"""Conversation to prompt, in the V4.1 format.

Decides the order of turns, which old reasoning stays, where tool results go, and which parts are
control tokens. Never trims, escapes or encodes. In: a `Conversation`. Out: a `RenderedPrompt` whose
segments keep control tokens and text apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ds_jax.recipe import conversation as conv
from ds_jax.recipe import dsml, json_text, spatial
from ds_jax.recipe.prompt import PromptBuilder, RenderedPrompt
from ds_jax.recipe.special_tokens import SpecialTokens

_EFFORTS = {"low": 50, "high": 75, "xhigh": 75, "max": 100, None: 75}
EFFORT_TEXT = (
    "Reasoning Effort: {effort} "
    "(range 1-100, the higher the value, the more thorough the reasoning)\n\n"
)
FORMAT_TEXT = (
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
)
_UPDATED_TOOLS = "\n\n### Updated Tool Schemas\n\n"

Numbered: TypeAlias = tuple[int | None, conv.Message]
"""A message and its index in the conversation (None: the renderer put it there)."""


def render(conversation: conv.Conversation, tokens: SpecialTokens | None = None) -> RenderedPrompt:
    """Renders a conversation up to the point where the model continues.

    Args:
      conversation: messages, tools and answer format, in any order.
      tokens: spellings of the control tokens; default: the V4.1 ones.

    Returns:
      The prompt; it ends inside the assistant's turn.
    """
    return _Renderer(conversation, tokens or SpecialTokens()).render()


def render_completion(
    message: conv.AssistantMessage, *, thinking_mode: bool, tokens: SpecialTokens | None = None
) -> RenderedPrompt:
    """What the model shall write after `render(...)`: reasoning, content, calls, end token."""
    tokens = tokens or SpecialTokens()
    marks = spatial.Marks(tokens)
    out = PromptBuilder()
    if thinking_mode:
        out.at("assistant", "reasoning_content").assistant_text(
            message.reasoning_content or "", marks
        )
        out.special(tokens.thinking_end)
    out.at("assistant", "content").assistant_text(message.content, marks)
    if message.tool_calls:
        dsml.add_calls(out, enumerate(message.tool_calls), tokens)
    out.at("assistant", "turn").special(tokens.eos)
    return out.build()


class _Renderer:
    """One rendering; holds the prompt under construction."""

    def __init__(self, conversation: conv.Conversation, tokens: SpecialTokens):
        self.conversation = conversation
        self.tokens = tokens
        self.marks = spatial.Marks(tokens)
        self.tools = conversation.tools
        self.tools_active = bool(self.tools) and conversation.tool_choice != "none"
        self.json_format = conversation.response_format in ("json_object", "json_schema")
        self.out = PromptBuilder()
        self.call_order: dict[str | None, int] | None = None  # of the latest turn with calls

    def render(self) -> RenderedPrompt:
        out, tokens, conversation = self.out, self.tokens, self.conversation
        out.special(tokens.bos)
        messages: list[Numbered] = list(enumerate(conversation.messages))
        first_is_system = bool(messages) and messages[0][1].role == "system"
        if (self.tools_active or self.json_format) and not first_is_system:
            messages.insert(0, (None, conv.SystemMessage("")))
            first_is_system = True
        if messages and conversation.thinking_mode:
            effort = _EFFORTS[conversation.reasoning_effort]
            out.at("system", "turn").special(tokens.system)
            out.at("system", "effort").text(EFFORT_TEXT.format(effort=effort))
        elif first_is_system:
            out.at("system", "turn").special(tokens.system)
        self._add_messages(messages)
        if not (messages and messages[-1][1].prefix):
            out.at("assistant", "next_turn").special(tokens.assistant).special(
                tokens.thinking_start if conversation.thinking_mode else tokens.thinking_end
            )
        if self.tools_active and conversation.tool_choice == "required":
            dsml.add_calls_start(out.at("assistant", "next_turn"), tokens)
        return out.build()

    def _add_messages(self, messages: Sequence[Numbered]) -> None:
        position = 0
        while position < len(messages):
            index, message = messages[position]
            end = position + 1
            match message:
                case conv.SystemMessage():
                    self._add_system(index, message, is_first=position == 0)
                case conv.AssistantMessage():
                    self._add_assistant(index, message, is_first=position == 0)
                case conv.LatestReminderMessage():
                    while end < len(messages) and messages[end][1].role == "latest_reminder":
                        end += 1
                    out = self.out.at("latest_reminder", "turn", index)
                    out.special(self.tokens.latest_reminder)
                    out.at("latest_reminder", "content", index).text(message.content)
                case _:
                    while end < len(messages) and messages[end][1].role in ("user", "tool"):
                        end += 1
                    self._add_user_turn(messages[position:end])
            position = end

    def _add_system(
        self, index: int | None, message: conv.SystemMessage, *, is_first: bool
    ) -> None:
        out = self.out
        if not is_first:
            out.at("system", "turn", index).special(self.tokens.system)
        out.at("system", "content", index).content(message)
        if is_first and self.tools_active:
            dsml.add_tool_block(out, self.tools, self.tokens)
        if is_first and self.json_format:
            schema = {"type": "json_object"}
            if self.conversation.response_format == "json_schema":
                schema = self.conversation.shared_response_schema
            out.at("system", "response_format").text(FORMAT_TEXT).text(json_text.dumps(schema))
        if message.tools:
            out.at("system", "tools", index).text(_UPDATED_TOOLS)
            for number, tool in enumerate(message.tools):
                out.at("system", "tools", index, number).text("\n" if number else "")
                out.text(dsml.tool_line(tool))

    def _add_user_turn(self, run: Sequence[Numbered]) -> None:
        out = self.out.at("user", "turn", run[0][0]).special(self.tokens.user)
        for number, (index, message) in enumerate(self._sorted_results(run)):
            if number:
                out.at("user", "turn", index).text("\n\n")
            if message.role == "tool":
                out.at("tool", "turn", index).text("<tool_result>")
                out.at("tool", "content", index).content(message)
                out.at("tool", "turn", index).text("</tool_result>")
            else:
                out.at("user", "content", index).content(message)

    def _sorted_results(self, run: Sequence[Numbered]) -> Sequence[Numbered]:
        """Tool results with an id change places among themselves, into the order of the calls."""
        order = self.call_order
        if order is None:
            return run
        slots = [slot for slot, (_, message) in enumerate(run) if message.tool_call_id is not None]
        if len(slots) < 2:
            return run
        results = sorted(
            (run[slot] for slot in slots), key=lambda result: order.get(result[1].tool_call_id, 0)
        )
        moved = list(run)
        for slot, result in zip(slots, results, strict=True):
            moved[slot] = result
        return moved

    def _add_assistant(
        self, index: int | None, message: conv.AssistantMessage, *, is_first: bool
    ) -> None:
        out, tokens = self.out, self.tokens
        calls = message.tool_calls
        out.at("assistant", "turn", index).special(tokens.assistant)
        keeps_reasoning = self.tools_active or (message.prefix and not is_first)
        out.at("assistant", "reasoning_content", index)
        if self.conversation.thinking_mode and keeps_reasoning:
            reasoning = message.reasoning_content or ""
            if reasoning or message.prefix or tokens.thinking_end:  # else nothing to open
                out.special(tokens.thinking_start).assistant_text(reasoning, self.marks)
            if not message.prefix or message.content or calls:
                out.special(tokens.thinking_end)
        else:
            out.special(tokens.thinking_end)
        out.at("assistant", "content", index).assistant_text(message.content, self.marks)
        if calls:
            dsml.add_calls(out, enumerate(calls), tokens, message=index)
            self.call_order = {}
            for number, call in enumerate(calls):
                self.call_order.setdefault(call.id, number)
        if not message.prefix:
            out.at("assistant", "turn", index).special(tokens.eos)

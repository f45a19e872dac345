"""Conversation to prompt, in the V4.1 format.

Decides the order of turns, which old reasoning stays, where tool results go, and which parts are
control tokens. Never trims, escapes or encodes. In: a `Conversation`. Out: a `RenderedPrompt` whose
segments keep control tokens and text apart.
"""

from __future__ import annotations

from ds_jax.recipe import conversation as conv
from ds_jax.recipe import dsml, json_text
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
    out = PromptBuilder()
    if thinking_mode:
        out.text(message.reasoning_content or "").special(tokens.thinking_end)
    out.text(message.content)
    dsml.add_calls(out, message.tool_calls or (), tokens)
    out.special(tokens.eos)
    return out.build()


class _Renderer:
    """One rendering; holds the prompt under construction."""

    def __init__(self, conversation: conv.Conversation, tokens: SpecialTokens):
        self.conversation = conversation
        self.tokens = tokens
        self.tools_active = bool(conversation.tools) and conversation.tool_choice != "none"
        self.out = PromptBuilder()
        self.call_order: dict[str, int] | None = None  # of the latest turn with calls

    def render(self) -> RenderedPrompt:
        out, tokens = self.out, self.tokens
        messages = self.conversation.messages
        out.special(tokens.bos)
        first_is_system = bool(messages) and messages[0].role == "system"
        if (self.tools_active or self._json_format()) and not first_is_system:
            messages = (conv.SystemMessage(""), *messages)
            first_is_system = True
        if messages:
            if self.conversation.thinking_mode:
                effort = _EFFORTS[self.conversation.reasoning_effort]
                out.special(tokens.system).text(EFFORT_TEXT.format(effort=effort))
            elif first_is_system:
                out.special(tokens.system)
        self._add_messages(messages)
        last = messages[-1] if messages else None
        if not (isinstance(last, conv.AssistantMessage) and last.prefix):
            out.special(tokens.assistant).special(
                tokens.thinking_start if self.conversation.thinking_mode else tokens.thinking_end
            )
        if messages and self.tools_active and self.conversation.tool_choice == "required":
            dsml.add_calls_start(out, tokens)
        return out.build()

    def _add_messages(self, messages: tuple[conv.Message, ...]) -> None:
        index = 0
        while index < len(messages):
            message, end = messages[index], index + 1
            match message:
                case conv.SystemMessage():
                    self._add_system(message, is_first=index == 0)
                case conv.UserMessage() | conv.ToolMessage():
                    while end < len(messages) and messages[end].role in ("user", "tool"):
                        end += 1
                    self._add_user_turn(list(messages[index:end]))  # pyright: ignore
                case conv.LatestReminderMessage():
                    while end < len(messages) and messages[end].role == "latest_reminder":
                        end += 1
                    self.out.special(self.tokens.latest_reminder).text(message.content)
                case conv.AssistantMessage():
                    self._add_assistant(message, is_first=index == 0)
            index = end

    def _add_system(self, message: conv.SystemMessage, *, is_first: bool) -> None:
        out = self.out
        if not is_first:
            out.special(self.tokens.system)
        self._add_content(message)
        if is_first and self.tools_active:
            out.text("\n\n")
            dsml.add_tool_block(out, self.conversation.tools, self.tokens)
        if is_first and self._json_format():
            schema = {"type": "json_object"}
            if self.conversation.response_format == "json_schema":
                schema = self.conversation.response_schema
            out.text(FORMAT_TEXT).text(json_text.dumps(schema))
        if message.tools:
            out.text(_UPDATED_TOOLS)
            out.text("\n".join(dsml.tool_line(tool) for tool in message.tools))

    def _add_user_turn(self, run: list[conv.UserMessage | conv.ToolMessage]) -> None:
        self.out.special(self.tokens.user)
        for index, message in enumerate(self._sorted_results(run)):
            self.out.text("\n\n" if index else "")
            if message.role == "tool":
                self.out.text("<tool_result>")
                self._add_content(message)
                self.out.text("</tool_result>")
            else:
                self._add_content(message)

    def _sorted_results(
        self, run: list[conv.UserMessage | conv.ToolMessage]
    ) -> list[conv.UserMessage | conv.ToolMessage]:
        """Tool results with an id change places among themselves, into the order of the calls."""
        order = self.call_order
        if order is None:
            return run
        slots = [
            index
            for index, message in enumerate(run)
            if isinstance(message, conv.ToolMessage) and message.tool_call_id is not None
        ]
        results = sorted(
            (run[slot] for slot in slots),
            key=lambda message: order.get(message.tool_call_id, 0),  # pyright: ignore
        )
        run = list(run)
        for slot, message in zip(slots, results, strict=True):
            run[slot] = message
        return run

    def _add_assistant(self, message: conv.AssistantMessage, *, is_first: bool) -> None:
        out, tokens = self.out, self.tokens
        calls = message.tool_calls or ()
        out.special(tokens.assistant)
        keeps_reasoning = self.tools_active or (message.prefix and not is_first)
        if self.conversation.thinking_mode and keeps_reasoning:
            out.special(tokens.thinking_start).text(message.reasoning_content or "")
            if not message.prefix or message.content or calls:
                out.special(tokens.thinking_end)
        else:
            out.special(tokens.thinking_end)
        out.text(message.content)
        dsml.add_calls(out, calls, tokens)
        if not message.prefix:
            out.special(tokens.eos)
        if calls:
            self.call_order = {}
            for index, call in enumerate(calls):
                self.call_order.setdefault(call.id, index)

    def _add_content(
        self, message: conv.SystemMessage | conv.UserMessage | conv.ToolMessage
    ) -> None:
        image = self.tokens.image
        placeholder = message.image_token or image
        self.out.content(message.content, message.image_sources, placeholder, image)

    def _json_format(self) -> bool:
        return self.conversation.response_format in ("json_object", "json_schema")

"""What was said so far, as frozen records.

Decides which messages, tools and answer formats exist. Never spells a prompt and never checks
whether a conversation makes sense: a renderer accepts any order. In: plain Python values.
Out: `Conversation` and the records it holds (images: image_source; messages: message).

Records compare by value, can be hashed and pickled, and return fresh lists: nothing a caller does
with a result changes a record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

from ds_jax.recipe import arguments, json_text
from ds_jax.recipe.image_source import (
    BytesImageSource,
    DataUrlImageSource,
    ImageDetail,
    ImageSource,
    ImageSourceKind,
    UrlImageSource,
)
from ds_jax.recipe.message import (
    AssistantMessage,
    LatestReminderMessage,
    Message,
    Role,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from ds_jax.recipe.quoting import quoted
from ds_jax.recipe.tool import ToolCall, ToolDefinition

__all__ = [
    "REASONING_EFFORTS",
    "TOOL_CHOICES",
    "AssistantMessage",
    "BytesImageSource",
    "Conversation",
    "DataUrlImageSource",
    "ImageDetail",
    "ImageSource",
    "ImageSourceKind",
    "LatestReminderMessage",
    "Message",
    "ReasoningEffort",
    "ResponseFormat",
    "Role",
    "SystemMessage",
    "ToolCall",
    "ToolChoice",
    "ToolDefinition",
    "ToolMessage",
    "UrlImageSource",
    "UserMessage",
]

ToolChoice: TypeAlias = Literal["auto", "none", "required"]
ReasoningEffort: TypeAlias = Literal["low", "high", "xhigh", "max"]
ResponseFormat: TypeAlias = Literal["text", "json_object", "json_schema", "regex"]

TOOL_CHOICES = ("auto", "none", "required")
REASONING_EFFORTS = ("low", "high", "xhigh", "max")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class Conversation:
    """A whole conversation and how the next turn shall be answered.

    Args:
      messages: in the order they were said; default: none.
      thinking_mode: the next turn begins with reasoning.
      tools: tools on offer.
      tool_choice: `auto`, `none` (as if there were no tools) or `required`.
      reasoning_effort: `low`, `high`, `xhigh`, `max` or None.
      response_format: `text` or `json_object`.
      response_schema: a JSON schema; makes the format `json_schema`.
      response_regex: a regular expression; makes the format `regex`.

    Raises:
      ValueError: an unknown word, or formats that exclude each other.
      TypeError: an argument of the wrong type.
    """

    _messages: tuple[Message, ...]
    thinking_mode: bool
    _tools: tuple[ToolDefinition, ...]
    tool_choice: ToolChoice
    reasoning_effort: ReasoningEffort | None
    response_format: ResponseFormat
    shared_response_schema: Any = dataclasses.field(hash=False)
    """`response_schema` without the copy; only to be read."""
    response_regex: str | None

    def __init__(
        self,
        messages: Sequence[Message] | None = None,
        *,
        thinking_mode: bool = True,
        tools: Sequence[ToolDefinition] | None = None,
        tool_choice: ToolChoice = "auto",
        reasoning_effort: ReasoningEffort | None = None,
        response_format: Literal["text", "json_object"] = "text",
        response_schema: Any | None = None,
        response_regex: str | None = None,
    ) -> None:
        store = object.__setattr__
        store(self, "_messages", _records("messages", messages, Message))
        store(self, "thinking_mode", arguments.flag("thinking_mode", thinking_mode))
        store(self, "_tools", _records("tools", tools, ToolDefinition))
        arguments.text("tool_choice", tool_choice)
        arguments.optional_text("reasoning_effort", reasoning_effort)
        arguments.text("response_format", response_format)
        regex = arguments.optional_text("response_regex", response_regex)
        if reasoning_effort not in (None, *REASONING_EFFORTS):
            raise ValueError(
                f"invalid reasoning_effort {quoted(reasoning_effort)}; "
                'expected "low", "high", "xhigh", or "max"'
            )
        if tool_choice not in TOOL_CHOICES:
            raise ValueError(
                f'invalid tool_choice {quoted(tool_choice)}; expected "auto", "none", or "required"'
            )
        if response_format not in ("text", "json_object"):
            raise ValueError(
                f"invalid response_format {quoted(cast('str', response_format))}; "
                'expected "text" or "json_object"'
            )
        if response_schema is not None and regex is not None:
            raise ValueError("response_schema and response_regex cannot be combined")
        derived = "json_schema" if response_schema is not None else None
        derived = "regex" if regex is not None else derived
        if response_format == "json_object" and derived:
            raise ValueError(
                'response_format "json_object" cannot be combined with '
                "response_schema or response_regex"
            )
        store(self, "tool_choice", tool_choice)
        store(self, "reasoning_effort", reasoning_effort)
        store(self, "response_format", derived or response_format)
        store(self, "shared_response_schema", json_text.copy(response_schema))
        store(self, "response_regex", regex)

    @property
    def messages(self) -> list[Message]:
        """The messages, as a new list."""
        return list(self._messages)

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools on offer, as a new list."""
        return list(self._tools)

    @property
    def response_schema(self) -> Any | None:
        """A copy of the JSON schema of a `json_schema` format, else None."""
        return json_text.copy(self.shared_response_schema)

    def __repr__(self) -> str:
        effort = self.reasoning_effort
        shown = "None" if effort is None else f"Some({quoted(effort)})"
        return (
            f"Conversation(messages={len(self._messages)}, thinking_mode={self.thinking_mode}, "
            f"tools={len(self._tools)}, tool_choice={quoted(self.tool_choice)}, "
            f"reasoning_effort={shown}, response_format={quoted(self.response_format)})"
        )


def _records(name: str, value: Any, kind: type[Any]) -> tuple[Any, ...]:
    return () if value is None else arguments.records(name, value, kind)

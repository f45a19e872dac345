"""The shape of a Messages request body.

Decides which fields of a request are read, and of which types. Never decides what they mean. In: a
JSON value. Out: `Body`, or a `DecodeError`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias, cast

from ds_jax.recipe.decode import (
    DecodeError,
    array,
    at_field,
    boolean,
    f32,
    option,
    string,
    string_or_array,
    u32,
    u64,
    words,
)
from ds_jax.recipe.decode_record import optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants
from ds_jax.recipe.messages_content import NEITHER, Message, Text, read_message

# Tools ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool that the caller runs."""

    name: str
    description: str | None
    input_schema: Any
    defer_loading: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that the server would run."""

    type: str = required(string)
    name: str | None = optional(string)


Tool: TypeAlias = FunctionTool | ServerTool
_read_server_tool = record(ServerTool, "struct MessagesServerTool", buffered=True)
_read_name = at_field("name", string)
_read_description = at_field("description", option(string))
_read_defer_loading = at_field("defer_loading", option(boolean))


def _read_tool(value: Any) -> Tool:
    """A key `type` makes it a server tool."""
    items = cast("dict[str, Any]", value) if type(value) is dict else {}
    if "type" in items:
        return _read_server_tool(items)
    if "name" not in items:
        raise DecodeError("missing field `name`")
    return FunctionTool(
        _read_name(items["name"]),
        _read_description(items.get("description")),
        items.get("input_schema"),
        bool(_read_defer_loading(items.get("defer_loading"))),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AutoChoice:
    """The model may call tools."""

    disable_parallel_tool_use: bool | None = optional(boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class AnyChoice:
    """The model shall call some tool; treated like `AutoChoice`."""

    disable_parallel_tool_use: bool | None = optional(boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolChoice:
    """The model shall call this tool."""

    name: str = required(string)
    disable_parallel_tool_use: bool | None = optional(boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class NoneChoice:
    """No tools."""


Choice: TypeAlias = AutoChoice | AnyChoice | ToolChoice | NoneChoice
_CHOICES = {"auto": ("Auto", AutoChoice), "any": ("Any", AnyChoice), "tool": ("Tool", ToolChoice)}

# The request ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Whether to think; the budget is not used."""

    type: str = required(words("adaptive", "enabled", "disabled"))
    budget_tokens: int | None = optional(u64)


@dataclasses.dataclass(frozen=True, slots=True)
class OutputConfig:
    """How hard to think."""

    effort: str | None = optional(
        words("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """About the caller; not used."""

    user_id: str | None = optional(string)


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A whole request; every other field of the body is ignored."""

    model: str = required(string)
    messages: list[Message] = required(array(read_message))
    system: str | list[Text] | None = optional(
        string_or_array(
            tagged(
                "MessagesSystemBlock",
                "type",
                variants("MessagesSystemBlock", {"text": ("Text", Text)}),
            ),
            NEITHER,
        )
    )
    max_tokens: int | None = optional(u32)
    temperature: float | None = optional(f32)
    top_p: float | None = optional(f32)
    stop_sequences: list[str] | None = optional(array(string))
    stream: bool | None = optional(boolean)
    tools: list[Tool] | None = optional(array(_read_tool))
    tool_choice: Choice | None = optional(
        tagged(
            "MessagesToolChoice",
            "type",
            {**variants("MessagesToolChoice", _CHOICES), "none": Unit(NoneChoice())},
        )
    )
    thinking: ThinkingSwitch | None = optional(record(ThinkingSwitch, "struct MessagesThinking"))
    output_config: OutputConfig | None = optional(
        record(OutputConfig, "struct MessagesOutputConfig")
    )
    metadata: Metadata | None = optional(record(Metadata, "struct MessagesMetadata"))


read = record(Body, "struct MessagesRequest")

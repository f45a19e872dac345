"""The shape of a Messages request body.

Decides which fields are read, of which types, and which kinds of content blocks exist. Never
decides where a block may stand or what it means (messages_blocks does). In: a JSON value. Out:
`Body`, or a `DecodeError`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias, cast

from ds_jax.recipe.decode import (
    DecodeError,
    Unit,
    anything,
    array,
    at_field,
    boolean,
    choice,
    f32,
    invalid_type,
    option,
    optional,
    record,
    required,
    string,
    string_or_array,
    tagged,
    u32,
    u64,
    variants,
    words,
)

_NEITHER = "expected a string or a list"

# Blocks --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str = required(string)


@dataclasses.dataclass(frozen=True, slots=True)
class Base64Image:
    """An image inside the request."""

    media_type: str = required(
        choice(
            {
                "image/jpeg": "image/jpeg",
                "image/jpg": "image/jpeg",
                "image/png": "image/png",
                "image/gif": "image/gif",
                "image/webp": "image/webp",
            }
        )
    )
    data: str = required(string)


@dataclasses.dataclass(frozen=True, slots=True)
class UrlImage:
    """An image elsewhere."""

    url: str = required(string)


@dataclasses.dataclass(frozen=True, slots=True)
class FileImage:
    """An uploaded image; always refused later."""

    file_id: str = required(string)


ImageSource: TypeAlias = Base64Image | UrlImage | FileImage


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image of any source."""

    source: ImageSource = required(
        tagged(
            "MessagesImageSource",
            "type",
            variants(
                "MessagesImageSource",
                {
                    "base64": ("Base64", Base64Image),
                    "url": ("Url", UrlImage),
                    "file": ("File", FileImage),
                },
            ),
            numbered=True,
        )
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DocumentSource:
    """Only the kind of a document is read."""

    media_type: str | None = optional(string)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document; the model is only told that it cannot be read."""

    source: DocumentSource = required(
        record(DocumentSource, "struct MessagesDocumentSource", buffered=True)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Thinking:
    """What the assistant thought; the signature is not checked."""

    signature: str | None = optional(string)
    thinking: str = required(string)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerToolUse:
    """A call that the server itself ran."""

    id: str = required(string)
    name: str = required(string)
    input: Any = required(anything)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolUse:
    """A call for the caller to run."""

    id: str = required(string)
    name: str = required(string)
    input: Any = required(anything)


@dataclasses.dataclass(frozen=True, slots=True)
class FoundTool:
    """Inside a tool result: a deferred tool that was found."""

    tool_name: str = required(string)


ResultPart: TypeAlias = Text | Image | Document | FoundTool
_read_result_part = tagged(
    "MessagesToolResultBlock",
    "type",
    variants(
        "MessagesToolResultBlock",
        {
            "text": ("Text", Text),
            "image": ("Image", Image),
            "document": ("Document", Document),
            "tool_reference": ("ToolReference", FoundTool),
        },
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call returned."""

    tool_use_id: str = required(string)
    content: str | list[ResultPart] | None = optional(string_or_array(_read_result_part, _NEITHER))
    is_error: bool | None = optional(boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class WebSearchToolResult:
    """What the server's own search returned."""

    tool_use_id: str = required(string)
    content: Any = required(anything)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolReference:
    """The name of a declared tool."""

    name: str = required(string)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolAddition:
    """In a system message: a tool that is on offer from here on."""

    tool: ToolReference = required(
        tagged(
            "MessagesToolReference",
            "type",
            variants("MessagesToolReference", {"tool_reference": ("ToolReference", ToolReference)}),
            numbered=True,
        )
    )


Block: TypeAlias = (
    Text
    | Image
    | Document
    | Thinking
    | ServerToolUse
    | ToolUse
    | ToolResult
    | WebSearchToolResult
    | ToolAddition
)
_read_content = string_or_array(
    tagged(
        "MessagesContentBlock",
        "type",
        variants(
            "MessagesContentBlock",
            {
                "text": ("Text", Text),
                "image": ("Image", Image),
                "document": ("Document", Document),
                "thinking": ("Thinking", Thinking),
                "server_tool_use": ("ServerToolUse", ServerToolUse),
                "tool_use": ("ToolUse", ToolUse),
                "tool_result": ("ToolResult", ToolResult),
                "web_search_tool_result": ("WebSearchToolResult", WebSearchToolResult),
                "tool_addition": ("ToolAddition", ToolAddition),
            },
        ),
    ),
    _NEITHER,
)

# Messages ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of the list."""

    role: str
    content: str | list[Block]


_read_role = words("user", "assistant", "system")
_MESSAGE = "adjacently tagged enum MessagesMessage"


def _read_message(value: Any) -> Message:
    """The role is read first, wherever it stands; it decides nothing about the content's shape."""
    if type(value) is dict:
        items = cast("dict[str, Any]", value)
        if "role" not in items:
            raise DecodeError("missing field `role`")
        role = _read_role(items["role"])
        if "content" not in items:
            raise DecodeError("missing field `content`")
        return Message(role, _read_content(items["content"]))
    if type(value) is list:
        values = cast("list[Any]", value)
        if not values:
            raise DecodeError(f"invalid length 0, expected {_MESSAGE}")
        if type(values[0]) is not str:
            raise invalid_type(values[0], "variant identifier")
        role = _read_role(values[0])
        if len(values) == 1:
            raise DecodeError(f"invalid length 1, expected {_MESSAGE}")
        content = _read_content(values[1])
        if len(values) > 2:
            raise DecodeError(f"invalid length {len(values)}, expected fewer elements in array")
        return Message(role, content)
    raise invalid_type(value, _MESSAGE)


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
    messages: list[Message] = required(array(_read_message))
    system: str | list[Text] | None = optional(
        string_or_array(
            tagged(
                "MessagesSystemBlock",
                "type",
                variants("MessagesSystemBlock", {"text": ("Text", Text)}),
            ),
            _NEITHER,
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

"""The messages of a Messages request and the blocks they are made of.

Decides which kinds of content blocks exist and which fields of them are read. Never decides where a
block may stand or what it means (messages_blocks does). In: JSON values. Out: `Message` records, or
a `DecodeError`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias, cast

from ds_jax.recipe.decode import (
    DecodeError,
    anything,
    boolean,
    choice,
    invalid_type,
    string,
    string_or_array,
    words,
)
from ds_jax.recipe.decode_record import optional, record, required
from ds_jax.recipe.decode_tagged import tagged, variants

NEITHER = "expected a string or a list"
"""What is said of content that is neither."""

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
    content: str | list[ResultPart] | None = optional(string_or_array(_read_result_part, NEITHER))
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
    NEITHER,
)

# Messages ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of the list."""

    role: str
    content: str | list[Block]


_read_role = words("user", "assistant", "system")
_MESSAGE = "adjacently tagged enum MessagesMessage"


def read_message(value: Any) -> Message:
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

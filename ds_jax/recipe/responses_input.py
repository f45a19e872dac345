"""The input items of a Responses request: their shape.

Decides which types of items are known, and their fields. Never decides which order makes sense. In:
JSON values. Out: frozen records. An item of another type becomes `UnknownItem`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from ds_jax.recipe import decode
from ds_jax.recipe.decode_record import optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants
from ds_jax.recipe.image_source import ImageDetail
from ds_jax.recipe.responses_declared import JsonObject, Tool, read_found_tool

_EXECUTION = decode.words("client", "server")
_DETAILS: dict[str, ImageDetail] = {
    "low": "low",
    "high": "high",
    "original": "original",
    "auto": "auto",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A piece of text."""

    text: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image by URL or data URL; a `file_id` is refused later."""

    image_url: str | None = optional(decode.string)
    detail: ImageDetail | None = optional(decode.choice(_DETAILS))
    file_id: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A document; nothing of it is read."""


Part: TypeAlias = Text | Image | File
Content: TypeAlias = str | list[Part]


def _parts(enum: str, texts: dict[str, tuple[str, type[Any]]]) -> Callable[[Any], Part]:
    table = {
        **variants(enum, texts),
        "input_image": record(Image, "struct ResponsesInputImage", buffered=True),
        "input_file": Unit(File()),
    }
    return tagged(enum, "type", table)


_read_content = decode.string_or_array(
    _parts(
        "ResponsesContentBlock",
        {"input_text": ("InputText", Text), "output_text": ("OutputText", Text)},
    ),
    "content should be a string or a list of content blocks",
)
_read_output = decode.string_or_array(
    _parts("ResponsesToolCallOutputItem", {"input_text": ("InputText", Text)}),
    "output should be a string or a list of output content parts",
)


@dataclasses.dataclass(frozen=True, slots=True)
class MessageItem:
    """What someone said."""

    role: str = required(decode.words("user", "assistant", "system", "developer"))
    content: Content = required(_read_content)


@dataclasses.dataclass(frozen=True, slots=True)
class ReasoningItem:
    """What the assistant thought; summaries and encrypted text are not read."""

    content: list[Text] | None = optional(
        decode.array(record(Text, "struct ResponsesReasoningContent", buffered=True))
    )
    encrypted_content: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """A call of a function, in a namespace or not."""

    arguments: str = required(decode.string)
    call_id: str = required(decode.string)
    name: str = required(decode.string)
    namespace: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    """What a function returned; without an id it answers no call."""

    output: Content = required(_read_output)
    call_id: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class CustomCallItem:
    """A call of a custom tool."""

    call_id: str = required(decode.string)
    name: str = required(decode.string)
    input: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class CustomOutputItem:
    """What a custom tool returned."""

    call_id: str = required(decode.string)
    output: Content | None = optional(_read_output)


def _map(value: Any) -> JsonObject:
    if type(value) is not dict:
        raise decode.invalid_type(value, "a map")
    return cast(JsonObject, value)


@dataclasses.dataclass(frozen=True, slots=True)
class SearchCallItem:
    """A search for tools."""

    call_id: str = required(decode.string)
    execution: str | None = optional(_EXECUTION)
    arguments: JsonObject = required(_map)


@dataclasses.dataclass(frozen=True, slots=True)
class SearchOutputItem:
    """The tools that a search found."""

    call_id: str = required(decode.string)
    execution: str | None = optional(_EXECUTION)
    tools: list[Tool] = required(decode.array(read_found_tool))


@dataclasses.dataclass(frozen=True, slots=True)
class WebSearchCallItem:
    """A search that the server ran: no message, but no call may stay open across it."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownItem:
    """An item of a type that has no meaning here."""


Item: TypeAlias = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | FunctionOutputItem
    | CustomCallItem
    | CustomOutputItem
    | SearchCallItem
    | SearchOutputItem
    | WebSearchCallItem
    | UnknownItem
)

_read_message = record(MessageItem, "struct ResponsesMessage")
_read_typed: Callable[[Any], Item] = tagged(
    "ResponsesInputItem",
    "type",
    {
        "message": _read_message,
        "web_search_call": Unit(WebSearchCallItem()),
        **variants(
            "ResponsesInputItem",
            {
                "reasoning": ("Reasoning", ReasoningItem),
                "function_call": ("FunctionCall", FunctionCallItem),
                "function_call_output": ("FunctionCallOutput", FunctionOutputItem),
                "custom_tool_call": ("CustomToolCall", CustomCallItem),
                "custom_tool_call_output": ("CustomToolCallOutput", CustomOutputItem),
                "tool_search_call": ("ToolSearchCall", SearchCallItem),
                "tool_search_output": ("ToolSearchOutput", SearchOutputItem),
            },
        ),
    },
    other=Unit(UnknownItem()),
)


def read_item(value: Any) -> Item:
    """One input item; without a `type` it is a message."""
    if type(value) is dict:
        item = cast(JsonObject, value)
        if "type" in item:
            return _read_typed(item)
        if "role" in item:
            return _read_message.from_object(item)
    raise decode.DecodeError("invalid input item")

"""The fields of a Chat Completions request.

Decides which fields are read, of which type, and which are required. Never converts. In: a JSON
value. Out: `ChatBody`, or `DecodeError`. Fields that are not declared here (user, metadata, store,
max_completion_tokens, …) are ignored.

The order of the fields is that of the library, which also reads a record from an array.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from ds_jax.recipe import decode
from ds_jax.recipe.decode import DecodeError
from ds_jax.recipe.decode_record import defaulted, optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants
from ds_jax.recipe.rules import EFFORT_WORDS
from ds_jax.recipe.tool_rules import NamedTool

_FUNCTION = decode.words("function")


@dataclasses.dataclass(frozen=True, slots=True)
class TextBlock:
    """Text inside a content list."""

    text: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageUrl:
    """Where an image is, and how closely to look at it."""

    url: str = required(decode.string)
    detail: Any = defaulted(decode.option(decode.words("low", "high", "original", "auto")), "high")


@dataclasses.dataclass(frozen=True, slots=True)
class ImageBlock:
    """An image inside a content list."""

    image_url: ImageUrl = required(record(ImageUrl, "struct ChatCompletionImageUrl", buffered=True))


@dataclasses.dataclass(frozen=True, slots=True)
class FileBlock:
    """A file inside a content list; only images as data URLs are accepted later on."""

    file_id: str | None = optional(decode.string)
    file_data: str | None = optional(decode.string)
    filename: str | None = optional(decode.string)


Block = TextBlock | ImageBlock | FileBlock
_block: decode.Reader[Block] = tagged(
    "ChatCompletionRequestContentBlock",
    "type",
    variants(
        "ChatCompletionRequestContentBlock",
        {
            "text": ("Text", TextBlock),
            "image_url": ("ImageUrl", ImageBlock),
            "file": ("File", FileBlock),
        },
    ),
)
_content = decode.string_or_array(_block, "content should be a string or a list")


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCall:
    """The function and arguments of an old call."""

    name: str = required(decode.string)
    arguments: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An old call of the assistant."""

    id: str = required(decode.string)
    type: str = required(_FUNCTION)
    function: FunctionCall = required(
        record(FunctionCall, "struct ChatCompletionRequestFunctionCall", buffered=True)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class System:
    """A message with role system."""

    content: str | list[Block] = required(_content)
    name: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A message with role user."""

    content: str | list[Block] = required(_content)
    name: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class Assistant:
    """A message with role assistant."""

    content: str | list[Block] | None = optional(_content)
    name: str | None = optional(decode.string)
    reasoning_content: str | None = optional(decode.string)
    tool_calls: list[Call] | None = optional(
        decode.array(record(Call, "struct ChatCompletionRequestToolCall", buffered=True))
    )
    prefix: bool | None = optional(decode.boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A message with role tool: the result of a call."""

    content: str | list[Block] = required(_content)
    tool_call_id: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class LatestReminder:
    """A message with role latest_reminder."""

    content: str = required(decode.string)


ChatMessage = System | User | Assistant | Tool | LatestReminder
_message: decode.Reader[ChatMessage] = tagged(
    "ChatCompletionRequestMessage",
    "role",
    variants(
        "ChatCompletionRequestMessage",
        {
            "system": ("System", System),
            "user": ("User", User),
            "assistant": ("Assistant", Assistant),
            "tool": ("Tool", Tool),
            "latest_reminder": ("LatestReminder", LatestReminder),
        },
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOptions:
    """How the answer is streamed."""

    include_usage: bool | None = optional(decode.boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Whether to think; the budget is read and ignored."""

    type: str = required(decode.words("adaptive", "enabled", "disabled"))
    budget_tokens: int | None = optional(decode.u64)


@dataclasses.dataclass(frozen=True, slots=True)
class JsonSchema:
    """The schema of a response format."""

    schema: Any = required(decode.anything)
    name: str | None = optional(decode.string)
    strict: bool | None = optional(decode.boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class JsonSchemaFormat:
    """An answer that follows a schema."""

    json_schema: JsonSchema = required(
        record(JsonSchema, "struct ChatCompletionResponseFormatJsonSchema", buffered=True)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RegexFormat:
    """An answer that matches a regular expression."""

    regex: str = required(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class PlainFormat:
    """An answer that is text, or any JSON object."""

    json_object: bool


ResponseFormat = JsonSchemaFormat | RegexFormat | PlainFormat
_formats = variants(
    "ChatCompletionResponseFormat",
    {"json_schema": ("JsonSchema", JsonSchemaFormat), "regex": ("Regex", RegexFormat)},
)
_response_format: decode.Reader[ResponseFormat] = tagged(
    "ChatCompletionResponseFormat",
    "type",
    {
        "json_object": Unit(PlainFormat(json_object=True)),
        **_formats,
        "text": Unit(PlainFormat(json_object=False)),
    },
)


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function the model may call."""

    name: str = required(decode.string)
    description: str | None = optional(decode.string)
    parameters: Any = optional(decode.anything)
    strict: bool | None = optional(decode.boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class ToolEntry:
    """One entry of `tools`; functions are the only kind."""

    type: str = required(_FUNCTION)
    function: FunctionDefinition = required(
        record(FunctionDefinition, "struct ChatCompletionFunctionDefinition")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _NamedFunction:
    name: str = required(decode.string)


_named_function = record(_NamedFunction, "struct ChatCompletionToolChoiceFunction")


def _tool_choice(value: Any) -> Any:
    """`none`, `auto`, `required` or a `NamedTool`."""
    if type(value) is str and value in ("none", "auto", "required"):
        return value
    if type(value) is dict and "type" in value:
        items = cast("dict[str, Any]", value)
        decode.at_field("type", _FUNCTION)(items["type"])
        return NamedTool(decode.at_field("function", _named_function)(items.get("function")).name)
    raise DecodeError("expected one of `none`, `auto`, `required` or a tool")


@dataclasses.dataclass(frozen=True, slots=True)
class ChatBody:
    """A whole request."""

    messages: list[ChatMessage] = required(decode.array(_message))
    model: str = required(decode.string)
    frequency_penalty: float | None = optional(decode.f32)
    logprobs: bool | None = optional(decode.boolean)
    top_logprobs: int | None = optional(decode.u8)
    max_tokens: int | None = optional(decode.u32)
    n: int | None = optional(decode.u8)
    presence_penalty: float | None = optional(decode.f32)
    seed: int | None = optional(decode.u64)
    stop: str | list[str] | None = optional(
        decode.string_or_array(decode.string, "expected a string or a list")
    )
    stream: bool | None = optional(decode.boolean)
    stream_options: StreamOptions | None = optional(
        record(StreamOptions, "struct ChatCompletionStreamOptions")
    )
    temperature: float | None = optional(decode.f32)
    top_p: float | None = optional(decode.f32)
    response_format: ResponseFormat | None = optional(_response_format)
    tools: list[ToolEntry] | None = optional(
        decode.array(record(ToolEntry, "struct ChatCompletionTool"))
    )
    tool_choice: Any = optional(_tool_choice)
    reasoning_effort: str | None = optional(decode.words(*EFFORT_WORDS))
    thinking: ThinkingSwitch | None = optional(
        record(ThinkingSwitch, "struct ChatCompletionThinking")
    )
    parallel_tool_calls: bool | None = optional(decode.boolean)


read_chat_body = record(ChatBody, "struct ChatCompletionRequest")

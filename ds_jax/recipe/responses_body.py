"""A whole Responses request: its shape.

Decides which settings are read, their types, and which words they allow. Never decides whether they
fit together. In: the JSON value of a body. Out: `Body`. Fields that are not named here are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, cast

from ds_jax.recipe import decode
from ds_jax.recipe.decode_record import defaulted, optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants
from ds_jax.recipe.responses_declared import Declared, JsonObject, Tool, read_tool
from ds_jax.recipe.responses_input import Item, read_item

_read_summary = decode.words("auto", "concise", "detailed")


@dataclasses.dataclass(frozen=True, slots=True)
class Reasoning:
    """How much to think; the summary is only repeated in the response."""

    effort: str | None = optional(
        decode.words("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max")
    )
    summary: str | None = optional(_read_summary)
    generate_summary: str | None = optional(_read_summary)


@dataclasses.dataclass(frozen=True, slots=True)
class PlainText(Declared):
    """Answers of any form."""

    type: ClassVar[str] = "text"


@dataclasses.dataclass(frozen=True, slots=True)
class JsonText(Declared):
    """Answers that are a JSON object."""

    type: ClassVar[str] = "json_object"


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaText(Declared):
    """Answers that follow a JSON schema."""

    name: str = required(decode.string)
    schema: Any = required(decode.anything)
    description: str | None = optional(decode.string)
    strict: bool | None = optional(decode.boolean)
    type: ClassVar[str] = "json_schema"


TextFormat: TypeAlias = PlainText | JsonText | SchemaText

_read_format: Callable[[Any], TextFormat] = tagged(
    "ResponsesTextFormat",
    "type",
    {
        "text": Unit(PlainText()),
        **variants("ResponsesTextFormat", {"json_schema": ("JsonSchema", SchemaText)}),
        "json_object": Unit(JsonText()),
    },
)


@dataclasses.dataclass(frozen=True, slots=True)
class TextConfig:
    """The form of the answer; the verbosity is only repeated in the response."""

    format: TextFormat = defaulted(_read_format, PlainText())
    verbosity: str | None = optional(decode.words("low", "medium", "high"))


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenFunction(Declared):
    """This function has to be called."""

    name: str = required(decode.string)
    type: ClassVar[str] = "function"


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenCustomTool(Declared):
    """This custom tool has to be called."""

    name: str = required(decode.string)
    type: ClassVar[str] = "custom"


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenWebSearch(Declared):
    """The server's search has to be used."""

    type: ClassVar[str] = "web_search"


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenDatedWebSearch(ChosenWebSearch):
    """The same under its dated name."""

    type: ClassVar[str] = "web_search_2025_08_26"


ToolChoice: TypeAlias = str | ChosenFunction | ChosenCustomTool | ChosenWebSearch

_CHOICES = "ResponsesToolChoiceObject"
_read_choice_object: Callable[[Any], ToolChoice] = tagged(
    _CHOICES,
    "type",
    {
        **variants(_CHOICES, {"function": ("Function", ChosenFunction)}),
        "web_search": Unit(ChosenWebSearch()),
        "web_search_2025_08_26": Unit(ChosenDatedWebSearch()),
        **variants(_CHOICES, {"custom": ("Custom", ChosenCustomTool)}),
    },
)


def _read_choice(value: Any) -> ToolChoice:
    if type(value) is str and value in ("none", "auto", "required"):
        return value
    if type(value) is dict and "type" in value:
        return _read_choice_object(cast(JsonObject, value))
    raise decode.DecodeError("expected one of `none`, `auto`, `required` or a tool choice object")


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A whole request; absent settings are None."""

    model: str = required(decode.string)
    input: str | list[Item] | None = optional(
        decode.string_or_array(read_item, "input should be a string or a list of input items")
    )
    instructions: str | None = optional(decode.string)
    max_output_tokens: int | None = optional(decode.u32)
    reasoning: Reasoning | None = optional(record(Reasoning, "struct ResponsesReasoningConfig"))
    stream: bool | None = optional(decode.boolean)
    temperature: float | None = optional(decode.f32)
    text: TextConfig | None = optional(record(TextConfig, "struct ResponsesTextConfig"))
    tool_choice: ToolChoice | None = optional(_read_choice)
    tools: list[Tool] | None = optional(decode.array(read_tool))
    top_logprobs: int | None = optional(decode.u8)
    top_p: float | None = optional(decode.f32)
    user: str | None = optional(decode.string)


read_body = record(Body, "struct ResponsesRequest")

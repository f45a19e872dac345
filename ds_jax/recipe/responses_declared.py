"""The tools that a Responses request declares or that a tool search found: their shape.

Decides which types of tools are known, and their fields. Never decides which of them a model is
offered. In: JSON values. Out: frozen records, which turn into JSON again (responses repeat them).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from ds_jax.recipe import decode
from ds_jax.recipe.decode_record import optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants

JsonObject: TypeAlias = dict[str, Any]


class Declared:
    """A record with a `type`, as requests give it and responses repeat it."""

    __slots__ = ()
    type: ClassVar[str]

    def to_json(self) -> JsonObject:
        """The type and all known fields in order; absent ones are null."""
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        return {"type": self.type, **{field.name: getattr(self, field.name) for field in fields}}


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionTool(Declared):
    """A function the caller runs."""

    name: str = required(decode.string)
    description: str | None = optional(decode.string)
    parameters: Any = optional(decode.anything)
    strict: bool | None = optional(decode.boolean)
    type: ClassVar[str] = "function"


@dataclasses.dataclass(frozen=True, slots=True)
class CustomTool(Declared):
    """A tool that takes free text."""

    name: str = required(decode.string)
    type: ClassVar[str] = "custom"


_read_function = record(FunctionTool, "struct ResponsesFunctionTool", buffered=True)
_NAMESPACE_TOOLS = {
    "function": _read_function,
    **variants("ResponsesNamespaceTool", {"custom": ("Custom", CustomTool)}),
}


@dataclasses.dataclass(frozen=True, slots=True)
class NamespaceTool(Declared):
    """Functions under a common name."""

    name: str = required(decode.string)
    description: str | None = optional(decode.string)
    tools: list[FunctionTool | CustomTool] = required(
        decode.array(tagged("ResponsesNamespaceTool", "type", _NAMESPACE_TOOLS, numbered=True))
    )
    type: ClassVar[str] = "namespace"

    def to_json(self) -> JsonObject:
        """The type and all known fields in order; absent ones are null."""
        tools = [tool.to_json() for tool in self.tools]
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "tools": tools,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class ToolSearchTool(Declared):
    """Lets the model look for tools; `execution` says who finds them."""

    execution: str | None = optional(decode.words("client", "server"))
    description: str | None = optional(decode.string)
    parameters: Any = optional(decode.anything)
    type: ClassVar[str] = "tool_search"


@dataclasses.dataclass(frozen=True, slots=True)
class UserLocation:
    """Where the user is, roughly."""

    city: str | None = optional(decode.string)
    country: str | None = optional(decode.string)
    region: str | None = optional(decode.string)
    timezone: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class WebSearchTool(Declared):
    """A search that the server would run."""

    search_context_size: str | None = optional(decode.words("low", "medium", "high"))
    user_location: UserLocation | None = optional(
        record(UserLocation, "struct ResponsesUserLocation", buffered=True)
    )
    type: ClassVar[str] = "web_search"

    def to_json(self) -> JsonObject:
        """The type and all known fields in order; absent ones are null."""
        location = self.user_location
        return {
            "type": self.type,
            "search_context_size": self.search_context_size,
            "user_location": None if location is None else dataclasses.asdict(location),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class DatedWebSearchTool(WebSearchTool):
    """The same under its dated name."""

    type: ClassVar[str] = "web_search_2025_08_26"


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownTool:
    """A tool of a type that has no meaning here."""


Tool: TypeAlias = (
    FunctionTool | CustomTool | NamespaceTool | ToolSearchTool | WebSearchTool | UnknownTool
)

_WEB_SEARCH = "struct ResponsesWebSearchTool"
_TOOLS = {
    "function": _read_function,
    "web_search": record(WebSearchTool, _WEB_SEARCH, buffered=True),
    "web_search_2025_08_26": record(DatedWebSearchTool, _WEB_SEARCH, buffered=True),
    **variants(
        "ResponsesTool",
        {
            "namespace": ("Namespace", NamespaceTool),
            "custom": ("Custom", CustomTool),
            "tool_search": ("ToolSearch", ToolSearchTool),
        },
    ),
}


def _reader(*, numbered: bool) -> Callable[[Any], Tool]:
    other = Unit(UnknownTool())
    return tagged("ResponsesTool", "type", _TOOLS, other=other, numbered=numbered)


read_tool = _reader(numbered=False)
"""A declared tool."""
read_found_tool = _reader(numbered=True)
"""A tool inside a `tool_search_output` item."""

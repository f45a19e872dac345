"""Tools on offer and calls of tools.

Decides what is known about a tool and a call. Never checks schemas or arguments. In: names, texts,
JSON values. Out: frozen records.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ds_jax.recipe import arguments as check
from ds_jax.recipe import json_text
from ds_jax.recipe.quoting import quoted


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """One call made by the assistant.

    Args:
      id: what a tool result refers to.
      name: the tool's name.
      arguments: raw text; JSON if well formed, but nothing checks it.
    """

    id: str
    name: str
    arguments: str

    def __post_init__(self) -> None:
        store = object.__setattr__
        store(self, "id", check.text("id", self.id))
        store(self, "name", check.text("name", self.name))
        store(self, "arguments", check.text("arguments", self.arguments))

    def __repr__(self) -> str:
        return (
            f"ToolCall(id={quoted(self.id)}, name={quoted(self.name)}, "
            f"arguments={quoted(self.arguments)})"
        )


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ToolDefinition:
    """One tool on offer.

    Args:
      name: what a call names.
      description: shown to the model.
      parameters: a JSON schema as Python values; any JSON value is kept as it is.
      strict: whether answers shall follow the schema strictly; only carried.
      defer_loading: leaves the tool out of the opening tool block.

    Raises:
      TypeError: an argument of the wrong type, or `parameters` that are no JSON.
      ValueError, OverflowError, RecursionError: `parameters` that JSON cannot hold.
    """

    name: str
    description: str | None
    shared_parameters: Any = dataclasses.field(hash=False)
    """`parameters` without the copy; only to be read."""
    strict: bool | None
    defer_loading: bool

    def __init__(
        self,
        name: str,
        description: str | None = None,
        parameters: Any = None,
        strict: bool | None = None,
        defer_loading: bool = False,
    ) -> None:
        store = object.__setattr__
        store(self, "name", check.text("name", name))
        store(self, "description", check.optional_text("description", description))
        store(self, "strict", check.optional_flag("strict", strict))
        store(self, "defer_loading", check.flag("defer_loading", defer_loading))
        store(self, "shared_parameters", json_text.copy(parameters))

    @classmethod
    def sharing(
        cls,
        name: str,
        description: str | None,
        parameters: Any,
        strict: bool | None = None,
        defer_loading: bool = False,
    ) -> ToolDefinition:
        """The same without checks and copies: strings and JSON values nobody changes any more."""
        tool = object.__new__(cls)
        store = object.__setattr__
        store(tool, "name", name)
        store(tool, "description", description)
        store(tool, "shared_parameters", parameters)
        store(tool, "strict", strict)
        store(tool, "defer_loading", defer_loading)
        return tool

    @property
    def parameters(self) -> Any:
        """A copy of the JSON schema of the arguments."""
        return json_text.copy(self.shared_parameters)

    def __repr__(self) -> str:
        description = None if self.description is None else f"Some({quoted(self.description)})"
        strict = None if self.strict is None else f"Some({str(self.strict).lower()})"
        return (
            f"ToolDefinition(name={quoted(self.name)}, description={description}, strict={strict})"
        )

"""The subset of JSON Schema that strict tools and strict formats use.

Decides which schemas are strict and how they are spelled once normalised: fixed keys in a fixed
order, every property required, nothing else allowed in objects. Never checks a value against a
schema. In: a JSON value. Out: a JSON value.

A node is chosen by the first of `type`, `anyOf` and `$ref` that is present. Keys that the subset
does not have are dropped.

| node | keys kept, in this order |
|---|---|
| object | type, properties, additionalProperties (false), required (all), description, $def |
| string | type, description, pattern, format, enum |
| number, integer | type, description, const, default, minimum … multipleOf |
| boolean, null, list of scalar types | type, description |
| array | type, items, description |
| anyOf | anyOf, description |
| $ref | $ref |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from ds_jax.recipe import decode
from ds_jax.recipe.decode import DecodeError
from ds_jax.recipe.decode_record import optional, required
from ds_jax.recipe.decode_tagged import tagged, variants

EMPTY_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
    "required": [],
}
"""What the missing parameters of a strict tool become."""


class StrictSchemaError(ValueError):
    """A schema outside the strict subset."""


def normalize(schema: Any, *, prefix: str, top: str, may_be_empty: bool) -> dict[str, Any]:
    """A schema in strict form.

    Args:
      schema: the JSON value to read.
      prefix: what stands before the description of a shape that cannot be read.
      top: what the schema belongs to, for the error about its top level.
      may_be_empty: whether the top level may have no properties.

    Returns:
      A new value; the given one is not changed.

    Raises:
      StrictSchemaError: the schema is outside the subset.
    """
    try:
        node = _node(schema)
    except DecodeError as error:
        raise StrictSchemaError(f"{prefix}{error}") from None
    if not isinstance(node, _Object):
        raise StrictSchemaError(f"The top level of the {top} schema must be an object.")
    return _spelled_object(node, may_be_empty)


def _node(value: Any) -> _Node:
    if type(value) is dict:
        items = cast("dict[str, Any]", value)
        if "type" in items:
            if type(items["type"]) is list:
                return _Types(
                    decode.at_field("type", _scalar_types)(items["type"]),
                    _description(items),
                )
            return _typed(items)
        if "anyOf" in items:
            return _AnyOf(
                decode.at_field("anyOf", decode.array(_typed))(items["anyOf"]),
                _description(items),
            )
        if "$ref" in items:
            return _Reference(decode.at_field("$ref", decode.string)(items["$ref"]))
    raise DecodeError("one of `type`, `anyOf`, `$ref` field is required")


def _description(items: dict[str, Any]) -> str | None:
    return decode.at_field("description", decode.option(decode.string))(items.get("description"))


def _node_later(value: Any) -> _Node:
    """The reader of nodes, for declarations that stand before it is complete."""
    return _node(value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Object:
    properties: dict[str, _Node] | None = optional(decode.mapping(_node_later))
    additional: bool | None = optional(decode.boolean, key="additionalProperties")
    required: list[str] | None = optional(decode.array(decode.string))
    description: str | None = optional(decode.string)
    definitions: dict[str, _Node] | None = optional(decode.mapping(_node_later), key="$def")


@dataclasses.dataclass(frozen=True, slots=True)
class _String:
    description: str | None = optional(decode.string)
    pattern: str | None = optional(decode.string)
    format: str | None = optional(decode.words("email", "hostname", "ipv4", "ipv6", "uuid"))
    enum: list[str] | None = optional(decode.array(decode.string))


@dataclasses.dataclass(frozen=True, slots=True)
class _Number:
    description: str | None = optional(decode.string)
    const: float | None = optional(decode.number)
    default: float | None = optional(decode.number)
    minimum: float | None = optional(decode.number)
    maximum: float | None = optional(decode.number)
    exclusiveMinimum: float | None = optional(decode.number)
    exclusiveMaximum: float | None = optional(decode.number)
    multipleOf: float | None = optional(decode.number)


@dataclasses.dataclass(frozen=True, slots=True)
class _Integer:
    description: str | None = optional(decode.string)
    const: int | None = optional(decode.i64)
    default: int | None = optional(decode.i64)
    minimum: int | None = optional(decode.i64)
    maximum: int | None = optional(decode.i64)
    exclusiveMinimum: int | None = optional(decode.i64)
    exclusiveMaximum: int | None = optional(decode.i64)
    multipleOf: int | None = optional(decode.i64)


@dataclasses.dataclass(frozen=True, slots=True)
class _Boolean:
    description: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class _Array:
    items: _Node = required(_node_later)
    description: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class _Null:
    description: str | None = optional(decode.string)


@dataclasses.dataclass(frozen=True, slots=True)
class _Types:
    types: list[str]
    description: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _AnyOf:
    members: list[_Typed]
    description: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Reference:
    target: str


_Scalar = _String | _Number | _Integer | _Boolean | _Null
_Typed = _Object | _Array | _Scalar
_Node = _Typed | _Types | _AnyOf | _Reference

_NAMES: dict[str, tuple[str, type[Any]]] = {
    "object": ("Object", _Object),
    "string": ("String", _String),
    "number": ("Number", _Number),
    "integer": ("Integer", _Integer),
    "boolean": ("Boolean", _Boolean),
    "array": ("Array", _Array),
    "null": ("Null", _Null),
}
_WORDS = {cls: word for word, (_, cls) in _NAMES.items()}
_scalar_types = decode.array(decode.words("string", "number", "integer", "boolean", "null"))
_typed: decode.Reader[_Typed] = tagged("JsonSchemaType", "type", variants("JsonSchemaType", _NAMES))


def _spelled(node: _Node) -> dict[str, Any]:
    """A node as a JSON value, inner nodes first."""
    value: dict[str, Any]
    if isinstance(node, _Object):
        return _spelled_object(node, False)
    if isinstance(node, _Array):
        value = {"type": "array", "items": _spelled(node.items)}
    elif isinstance(node, _AnyOf):
        value = {"anyOf": [_spelled(member) for member in node.members]}
    elif isinstance(node, _Types):
        value = {"type": node.types}
    elif isinstance(node, _Reference):
        return {"$ref": node.target}
    else:
        value = {"type": _WORDS[type(node)]}
        for field in dataclasses.fields(node):
            item = getattr(node, field.name)
            if item is not None:
                value[field.name] = item
        return value
    if node.description is not None:
        value["description"] = node.description
    return value


def _spelled_object(node: _Object, may_be_empty: bool) -> dict[str, Any]:
    properties = node.properties or {}
    if not properties and not may_be_empty:
        raise StrictSchemaError("An object with no properties is not allowed.")
    spelled = {name: _spelled(inner) for name, inner in properties.items()}
    definitions = None
    if node.definitions is not None:
        definitions = {name: _spelled(inner) for name, inner in node.definitions.items()}
    if node.required is not None:
        _check_required(node.required, properties)
    if node.additional:
        raise StrictSchemaError("additionalProperties should not be true")
    value: dict[str, Any] = {
        "type": "object",
        "properties": spelled,
        "additionalProperties": False,
        "required": list(properties),
    }
    if node.description is not None:
        value["description"] = node.description
    if definitions is not None:
        value["$def"] = definitions
    return value


def _check_required(names: list[str], properties: Mapping[str, object]) -> None:
    seen: set[str] = set()
    for name in names:
        if name not in properties:
            raise StrictSchemaError(f"Required property '{name}' not found in object")
        if name in seen:
            raise StrictSchemaError(f"Duplicate required property '{name}'")
        seen.add(name)
    if len(seen) < len(properties):
        raise StrictSchemaError("Required properties must match all properties in the object")

"""Which JSON types the values of a schema can have.

Decides a set that holds at least those types. Never checks values. In: a closed schema. Out: names
of types.
"""

from __future__ import annotations

from typing import Any, cast

from ds_jax.structured import schema_keywords as keywords

ALL = frozenset(keywords.TYPE_NAMES) - {"integer"}
"""Every value has exactly one of these; an integer is a number."""
_PREFIX = "#/$defs/"
_LONGEST_CHAIN = 32


def possible(schema: dict[str, Any]) -> frozenset[str]:
    """Types that values of a closed schema may have."""
    return _possible(schema, cast("dict[str, Any]", schema.get("$defs", {})), 0)


def _possible(schema: Any, definitions: dict[str, Any], depth: int) -> frozenset[str]:
    if isinstance(schema, bool):
        return ALL if schema else frozenset()
    if depth > _LONGEST_CHAIN:
        return ALL
    items = cast("dict[str, Any]", schema)
    known = ALL
    if "type" in items:
        types = items["type"]
        names = cast("list[str]", [types] if isinstance(types, str) else types)
        known &= {"number" if name == "integer" else name for name in names}
    constants = constants_of(items)
    if constants is not None:
        known &= {type_of(value) for value in constants}
    if "$ref" in items:
        target = definitions.get(items["$ref"].removeprefix(_PREFIX), True)
        known &= _possible(target, definitions, depth + 1)
    for branch in items.get("allOf", ()):
        known &= _possible(branch, definitions, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in items:
            branches = (_possible(each, definitions, depth + 1) for each in items[keyword])
            known &= frozenset[str]().union(*branches)
    return known


def constants_of(schema: dict[str, Any]) -> list[Any] | None:
    """The values that `const` or `enum` lists; None without them."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def type_of(value: Any) -> str:
    """The type of a JSON value; an integer is a number."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(cast("type[Any]", type(value)), "object")


def shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """The types a schema names itself, if they are types; for schemas that cannot be enforced."""
    types = schema.get("type")
    names = cast("list[Any]", types) if isinstance(types, list) else [types]
    known = [name for name in names if isinstance(name, str) and name in keywords.TYPE_NAMES]
    return {"type": known} if known and len(known) == len(names) else {}


def only(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that asks for the types of another, and for its constants if it is a plain list."""
    constants = constants_of(schema)
    if constants and all(isinstance(value, str) for value in constants):
        return {"enum": constants}
    names = schema.get("type")
    if isinstance(names, str):
        return {"type": names}
    types = possible(schema)
    return {"type": sorted(types)} if types != ALL else {}

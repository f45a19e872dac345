"""Alternatives of which exactly one may hold.

Decides when no value can satisfy two branches of a `oneOf`: different types, or one required
property with different constants, as in tagged unions. Then `anyOf` says the same. Never guesses:
what cannot be shown stays `oneOf`. In: a closed schema. Out: the schema with such `oneOf` replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from ds_jax.structured import schema_parts

_PREFIX = "#/$defs/"
_MOST_BRANCHES = 256


def as_any_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every `oneOf` of disjoint branches as `anyOf`."""
    definitions = cast("dict[str, Any]", schema.get("$defs", {}))
    out = cast("dict[str, Any]", _rewritten(schema, definitions))
    if definitions:
        out["$defs"] = {name: _rewritten(value, definitions) for name, value in definitions.items()}
    return out


def _rewritten(schema: Any, definitions: dict[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema)
    out = schema_parts.replaced(parts, lambda part: _rewritten(part, definitions))
    if "oneOf" in out and "anyOf" not in out and _are_disjoint(out["oneOf"], definitions):
        out["anyOf"] = out.pop("oneOf")
    return out


def _are_disjoint(branches: list[Any], definitions: dict[str, Any]) -> bool:
    if len(branches) > _MOST_BRANCHES:
        return False
    resolved = [_resolved(branch, definitions) for branch in branches]
    if any(branch is None for branch in resolved):
        return False
    known = cast("list[dict[str, Any]]", resolved)
    types = [_types(branch) for branch in known]
    tags = [_tags(branch, definitions) for branch in known]
    return all(
        not types[one] & types[two] or _differ(tags[one], tags[two])
        for two in range(len(known))
        for one in range(two)
    )


def _resolved(schema: Any, definitions: dict[str, Any]) -> dict[str, Any] | None:
    """What a chain of plain references leads to."""
    for _ in range(16):
        if not isinstance(schema, dict):
            return None
        items = cast("dict[str, Any]", schema)
        if "$ref" not in items:
            return items
        schema = definitions[items["$ref"].removeprefix(_PREFIX)]
    return None


def _types(schema: dict[str, Any]) -> set[str]:
    types = schema.get("type")
    if types is None:
        values = _constants(schema)
        if values is None:
            types = ["array", "boolean", "null", "number", "object", "string"]
        else:
            types = [_type_of(value) for value in values]
    names = {types} if isinstance(types, str) else set(types)
    return {"number" if name == "integer" else name for name in names}


def _tags(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, set[str]]:
    """Constants of the required properties, and of the value itself under an empty name."""
    tags: dict[str, set[str]] = {}
    values = _constants(schema)
    if values is not None:
        tags[""] = _spelled(values)
    if _types(schema) == {"object"}:
        for name in schema.get("required", ()):
            member = _resolved(schema.get("properties", {}).get(name), definitions)
            values = _constants(member) if member is not None else None
            if values is not None:
                tags[f"/{name}"] = _spelled(values)
    return tags


def _differ(one: dict[str, set[str]], two: dict[str, set[str]]) -> bool:
    return any(not one[name] & two[name] for name in one.keys() & two.keys())


def _constants(schema: dict[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _spelled(values: Iterable[Any]) -> set[str]:
    """Equal JSON values have one spelling: 1 and 1.0 are the same, 1 and true are not."""
    return {json.dumps(_plain(value), sort_keys=True) for value in values}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in cast("dict[str, Any]", value).items()}
    return value


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(cast("type[Any]", type(value)), "object")

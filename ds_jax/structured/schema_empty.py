"""Subschemas that no finite value satisfies.

Decides which parts of a schema lead nowhere: `false`, and references that never come to an end.
Never counts lengths or compares bounds. In: a closed schema. Out: the same language with `false` in
their place, so that no output can walk into one.

A part is kept as soon as it might have a value. Least fixed point over the definitions: a value is
finite, so its parts were shown to exist before it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, cast

from ds_jax.structured import schema_parts

_PREFIX = "#/$defs/"


def without_empty(schema: dict[str, Any]) -> dict[str, Any] | bool:
    """The schema without parts that have no value; False if nothing is left.

    Complexity: each definition is looked at once for every definition it refers to.
    """
    definitions: dict[str, Any] = schema.get("$defs", {})
    users: dict[str, list[str]] = collections.defaultdict(list)
    for name, value in definitions.items():
        for target in set(_references(value)):
            users[target].append(name)
    alive: set[str] = set()
    waiting = collections.deque(definitions)
    while waiting:
        name = waiting.popleft()
        if name not in alive and _has_value(definitions[name], alive):
            alive.add(name)
            waiting.extend(users[name])
    first = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
    kept = _pruned(first, alive)
    if isinstance(kept, bool) or not definitions:
        return kept
    return kept | {
        "$defs": {
            name: _pruned(value, alive) for name, value in definitions.items() if name in alive
        }
    }


def _references(schema: Any) -> Iterator[str]:
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value)
            if "$ref" in items:
                yield items["$ref"].removeprefix(_PREFIX)
            stack.extend(schema_parts.each(items))


def _has_value(schema: Any, alive: set[str]) -> bool:
    if isinstance(schema, bool):
        return schema
    items = cast("dict[str, Any]", schema)
    if "$ref" in items and items["$ref"].removeprefix(_PREFIX) not in alive:
        return False
    if not all(_has_value(each, alive) for each in items.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in items and not any(_has_value(each, alive) for each in items[keyword]):
            return False
    types = items.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if types == {"object"}:
        return _has_object(items, alive)
    if types == {"array"}:
        return _has_array(items, alive)
    if types == {"object", "array"}:
        return _has_object(items, alive) or _has_array(items, alive)
    return True


def _has_object(items: dict[str, Any], alive: set[str]) -> bool:
    declared = items.get("properties", {})
    others = items.get("additionalProperties", True)
    for name in items.get("required", ()):
        if name in declared:
            possible = _has_value(declared[name], alive)
        else:
            possible = bool(items.get("patternProperties")) or _has_value(others, alive)
        if not possible:
            return False
    return True


def _has_array(items: dict[str, Any], alive: set[str]) -> bool:
    least = items.get("minItems", 0)
    first = items.get("prefixItems", [])
    if not all(_has_value(each, alive) for each in first[:least]):
        return False
    return least <= len(first) or _has_value(items.get("items", True), alive)


def _pruned(schema: Any, alive: set[str]) -> Any:
    if not _has_value(schema, alive):
        return False
    if isinstance(schema, bool):
        return schema
    parts = cast("dict[str, Any]", schema)
    out = schema_parts.replaced(parts, lambda part: _pruned(part, alive))
    for keyword in ("anyOf", "oneOf"):
        if keyword in out:
            out[keyword] = [each for each in out[keyword] if each is not False]
    return out

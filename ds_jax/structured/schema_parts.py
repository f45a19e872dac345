"""Where a closed schema holds subschemas.

Decides the keywords, once. Never judges a schema. In: a schema of enforced keywords only.
Out: its subschemas, or the schema with each replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MEMBERS = ("properties", "patternProperties")
_SINGLE = ("items", "additionalProperties")


def each(schema: dict[str, Any]) -> Iterator[Any]:
    """The direct subschemas, without definitions."""
    for keyword in _LISTS:
        yield from schema.get(keyword, ())
    for keyword in _MEMBERS:
        yield from schema.get(keyword, {}).values()
    for keyword in _SINGLE:
        if keyword in schema:
            yield schema[keyword]


def replaced(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy with every direct subschema changed; definitions stay."""
    out = dict(schema)
    for keyword in _LISTS:
        if keyword in out:
            out[keyword] = [change(part) for part in out[keyword]]
    for keyword in _MEMBERS:
        if keyword in out:
            out[keyword] = {name: change(part) for name, part in out[keyword].items()}
    for keyword in _SINGLE:
        if keyword in out:
            out[keyword] = change(out[keyword])
    return out

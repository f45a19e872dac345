"""Whether a JSON value is a JSON Schema.

Decides what is wrong first with a schema: a keyword with a value of the wrong kind, or a reference
to nothing. Never checks a value against a schema. In: a JSON value. Out: a sentence, or None.

The sentences are those of the validator in deepseek-recipe; which one comes first when several
things are wrong may differ from it. Of 20,000 random schemas the `jsonschema` package judges 651
otherwise than that validator and words 9,968 otherwise; this file 0 and 875, in 1/80 of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from ds_jax.recipe import schema_keywords, schema_references
from ds_jax.recipe.json_text import dumps_compact
from ds_jax.recipe.regex_syntax import is_regex
from ds_jax.recipe.schema_keywords import Draft
from ds_jax.recipe.schema_references import SchemaFault

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_ANCHOR = r"^[A-Za-z_][-A-Za-z0-9._]*$"
_ID = r"^[^#]*#?$"


def first_error(schema: Any) -> str | None:
    """What is wrong with a schema; None if it is one.

    Args:
      schema: any JSON value. Its `$schema`, if it has one, chooses the draft.
    """
    uri = cast("dict[str, Any]", schema).get("$schema") if isinstance(schema, dict) else None
    draft = schema_keywords.draft_of(uri)
    try:
        _schema(schema, draft or schema_keywords.NEWEST)
        if draft is None:
            assert isinstance(uri, str), "what is no text chooses the newest draft"
            if ":" not in uri:
                schema_references.check_uri(uri)
            raise SchemaFault(
                f"Unknown meta-schema: '{uri}'. Custom meta-schemas must be registered in the"
                " registry before use"
            )
        schema_references.check(schema, draft, _schema)
    except SchemaFault as fault:
        return str(fault)
    return None


def _schema(value: Any, draft: Draft) -> None:
    if isinstance(value, bool) and draft.booleans:
        return
    if not isinstance(value, dict):
        expected = 'types "boolean", "object"' if draft.booleans else 'type "object"'
        raise SchemaFault(f"{dumps_compact(value)} is not of {expected}")
    items = cast("dict[str, Any]", value)
    rank = draft.rank
    for keyword in sorted(filter(rank.__contains__, items), key=rank.__getitem__):
        _CHECKS[draft.keywords[keyword]](items[keyword], draft)
    if draft.id_keyword == "id":
        for keyword in ("minimum", "maximum"):
            if f"exclusiveM{keyword[1:]}" in items and keyword not in items:
                raise SchemaFault(f'"{keyword}" is a required property')


def _typed(name: str, *types: type) -> Callable[[Any, Draft], None]:
    def check(value: Any, draft: Draft) -> None:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise SchemaFault(f'{dumps_compact(value)} is not of type "{name}"')

    return check


_text = _typed("string", str)
_boolean = _typed("boolean", bool)
_number = _typed("number", int, float)
_array = _typed("array", list)
_object = _typed("object", dict)


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any, draft: Draft) -> None:
    if not _is_integer(value):
        raise SchemaFault(f'{dumps_compact(value)} is not of type "integer"')
    if value < 0:
        raise SchemaFault(f"{dumps_compact(value)} is less than the minimum of 0")


def _positive(value: Any, draft: Draft) -> None:
    _number(value, draft)
    if value <= 0:
        raise SchemaFault(f"{dumps_compact(value)} is less than or equal to the minimum of 0")


def _regex(value: Any, draft: Draft) -> None:
    _text(value, draft)
    if not is_regex(value):
        raise SchemaFault(f'{dumps_compact(value)} is not a "regex"')


def _matching(pattern: str) -> Callable[[Any, Draft], None]:
    expression = re.compile(pattern)

    def check(value: Any, draft: Draft) -> None:
        _text(value, draft)
        if expression.match(value) is None or value.endswith("\n"):
            raise SchemaFault(f'{dumps_compact(value)} does not match "{pattern}"')

    return check


def _types(value: Any, draft: Draft) -> None:
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not words or any(word not in _TYPES for word in words) or _repeats(words):
        raise _none_of(value)


def _repeats(values: list[Any]) -> bool:
    """Whether two values are equal as JSON (1 equals 1.0, true does not equal 1)."""
    seen: set[Any] = set()
    for value in values:
        key = (isinstance(value, bool), value) if not isinstance(value, dict | list) else None
        key = dumps_compact(value) if key is None else key
        if key in seen:
            return True
        seen.add(key)
    return False


def _none_of(value: Any) -> SchemaFault:
    return SchemaFault(
        f"{dumps_compact(value)} is not valid under any of the schemas listed in the 'anyOf'"
        " keyword"
    )


def _names(value: Any, draft: Draft) -> None:
    _array(value, draft)
    names = cast("list[Any]", value)
    for name in names:
        _text(name, draft)
    if _repeats(names):
        raise SchemaFault(f"{dumps_compact(names)} has non-unique elements")


def _some(value: Any, draft: Draft) -> None:
    _array(value, draft)
    if not value:
        raise SchemaFault("[] has less than 1 item")


def _some_names(value: Any, draft: Draft) -> None:
    _some(value, draft)
    _names(value, draft)


def _some_values(value: Any, draft: Draft) -> None:
    _some(value, draft)
    if _repeats(value):
        raise SchemaFault(f"{dumps_compact(value)} has non-unique elements")


def _schemas(value: Any, draft: Draft) -> None:
    _some(value, draft)
    for each in cast("list[Any]", value):
        _schema(each, draft)


def _by_name(check: Callable[[Any, Draft], None]) -> Callable[[Any, Draft], None]:
    def check_all(value: Any, draft: Draft) -> None:
        _object(value, draft)
        for each in cast("dict[str, Any]", value).values():
            check(each, draft)

    return check_all


def _by_pattern(value: Any, draft: Draft) -> None:
    _by_name(_schema)(value, draft)
    for pattern in cast("dict[str, Any]", value):
        if not is_regex(pattern):
            raise SchemaFault(f'{dumps_compact(value[pattern])} is not a "regex"')


def _either(*checks: Callable[[Any, Draft], None]) -> Callable[[Any, Draft], None]:
    def check(value: Any, draft: Draft) -> None:
        for each in checks:
            try:
                each(value, draft)
            except SchemaFault:
                continue
            return
        raise _none_of(value)

    return check


_CHECKS: dict[str, Callable[[Any, Draft], None]] = {
    "schema": _schema,
    "schemas": _schemas,
    "schema or schemas": _either(_schema, _schemas),
    "boolean or schema": _either(_boolean, _schema),
    "schemas by name": _by_name(_schema),
    "schemas by pattern": _by_pattern,
    "schemas or names by name": _by_name(_either(_schema, _names)),
    "names": _names,
    "names by name": _by_name(_names),
    "some names": _some_names,
    "some values": _some_values,
    "text": _text,
    "boolean": _boolean,
    "number": _number,
    "positive": _positive,
    "count": _count,
    "array": _array,
    "types": _types,
    "regex": _regex,
    "id": _matching(_ID),
    "anchor": _matching(_ANCHOR),
    "vocabulary": _by_name(_boolean),
}

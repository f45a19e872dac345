"""Raw text parameters of a tool call.

Decides which lexemes spell the strings of a schema without quotes and escapes. Never spells JSON.
In: a closed schema. Out: lexemes that end in `</`, or a `RequestError` for what raw text cannot be
held to.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn, cast

from ds_jax.structured import backend, formats, schema_types
from ds_jax.structured.refusal import refused, shown

FREE = r"/(?s:.*)<\//"
_PREFIX = "#/$defs/"
_LONGEST_CHAIN = 32


def lexemes(schema: dict[str, Any]) -> list[str]:
    """One definition for each way a string of the schema can come about."""
    return _lexemes(schema, cast("dict[str, Any]", schema.get("$defs", {})), 0)


def _lexemes(schema: Any, definitions: dict[str, Any], depth: int) -> list[str]:
    if isinstance(schema, bool):
        return [FREE] if schema else []
    items = {
        keyword: value
        for keyword, value in cast("dict[str, Any]", schema).items()
        if keyword in _OF_STRINGS
    }
    types = items.pop("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        return []
    for keyword in _COMBINERS:
        if keyword in items:
            return _combined(keyword, items, definitions, depth)
    constants = schema_types.constants_of(items)
    if constants is not None:
        texts = [value for value in constants if isinstance(value, str)]
        if texts and len(items) > 1:
            _refuse("'enum' and 'const' beside other keywords about strings", "enum")
        return ["/" + "|".join(map(_literal, texts)) + "/"] if texts else []
    return [_constrained(items)]


_COMBINERS = ("$ref", "anyOf", "oneOf", "allOf")
_BOUNDS = ("minLength", "maxLength", "pattern", "format")
_OF_STRINGS = frozenset({"type", "enum", "const", *_COMBINERS, *_BOUNDS})


def _combined(
    keyword: str, items: dict[str, Any], definitions: dict[str, Any], depth: int
) -> list[str]:
    if depth > _LONGEST_CHAIN:
        _refuse("references that lead through more than 32 others", keyword)
    if len(items) > 1:
        _refuse(f"{keyword!r} beside other keywords about strings", keyword)
    branches = (
        [definitions[items[keyword].removeprefix(_PREFIX)]]
        if keyword == "$ref"
        else (items[keyword])
    )
    if keyword == "oneOf" or (keyword == "allOf" and len(branches) > 1):
        of_strings = [each for each in branches if "string" in _types(each, definitions)]
        if keyword == "allOf" or len(of_strings) > 1:
            _refuse(f"{keyword!r} of several schemas of strings", keyword)
    return list(
        dict.fromkeys(one for each in branches for one in _lexemes(each, definitions, depth + 1))
    )


def _types(schema: Any, definitions: dict[str, Any]) -> frozenset[str]:
    if isinstance(schema, bool):
        return schema_types.ALL if schema else frozenset()
    return schema_types.possible(cast("dict[str, Any]", schema) | {"$defs": definitions})


def _constrained(items: dict[str, Any]) -> str:
    parts: list[str] = []
    if "minLength" in items or "maxLength" in items:
        low, high = items.get("minLength", 0), items.get("maxLength", "")
        if high != "" and low > high:
            _refuse(f"minLength {low} is above maxLength {high}", "minLength")
        parts.append(rf"/(?s:.{{{low},{high}}})<\//")
    if "pattern" in items:
        parts.append(f"/{_searched(items['pattern'])}<\\//")
    if "format" in items:
        known = formats.PATTERNS.get(items["format"])
        if known is None:
            _refuse(f"the format {items['format']!r} of raw text; use a pattern", "format")
        parts.append(f"/({known})<\\//")
    return " & ".join(parts) or FREE


def _searched(pattern: str) -> str:
    """An expression that a whole text matches if the pattern is found in it."""
    starts = pattern.startswith("^")
    ends = re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    core = pattern[starts : len(pattern) - ends]
    if (starts or ends) and _has_open_bar(core):
        _refuse("a pattern whose anchors belong to one alternative; put it in a group", "pattern")
    if re.search(r"(?<!\\)(?:\\\\)*[\^$]", re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", core)):
        _refuse("a pattern with anchors inside", "pattern")
    spelled = backend.regex_text(core, "dw")
    before, after = "" if starts else "(?s:.*)", "" if ends else "(?s:.*)"
    return f"{before}(?:{spelled}){after}"


def _has_open_bar(pattern: str) -> bool:
    plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern, flags=re.DOTALL)
    depth = 0
    for character in plain:
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            return True
    return False


def _literal(text: str) -> str:
    spelled = "".join(
        character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):X}}}"
        for character in text
    )
    return f"{spelled}<\\/"


def _refuse(reason: str, keyword: str) -> NoReturn:
    raise refused("json_schema", f"cannot be enforced on raw text: {shown(reason)}", keyword)

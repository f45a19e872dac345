"""JSON as prompts and conversions spell it.

Decides how JSON text is read (strictly), which Python values count as JSON, and how values are
written: `, ` and `: ` as separators or none, raw UTF-8, and one of two spellings of small floats.
Never guesses at broken JSON. In: text or values. Out: values or text.

| writer | separators | 1e-5 | 1e-7 | 1e16 | used for |
|---|---|---|---|---|---|
| `dumps` | spaced | `1e-05` | `1e-07` | `1e+16` | V4.1 prompts |
| `dumps_decimal` | spaced | `0.00001` | `1e-7` | `1e+16` | V4 prompts, arguments made from values |
| `dumps_compact` | none | `0.00001` | `1e-7` | `1e+16` | output constraints, events |
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from typing import Any, cast

MAX_DEPTH = 127
"""Deepest nesting of text that is read; Python values may have one level more."""

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
# Valid JSON text matches from end to end when every surrogate escape is half of a pair.
_PAIRED_ESCAPES = re.compile(
    r"[^\\]*+(?:\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u(?![dD][89a-fA-F])|[^u])[^\\]*+)*+"
)
# Strings, and whatever else is no bracket.
_NOT_BRACKETS = re.compile(r'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")++')
_CONTAINERS = frozenset({dict, list})
_DEPTH_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
# A string, or a number that Python spells with a negative exponent (1e-05, 2.5e-07).
_STRING_OR_SMALL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?)(\d)(?:\.(\d+))?e-(\d+)')


def loads(text: str) -> Any:
    """Reads strict JSON; numbers outside 64 bits become floats, `-0` becomes -0.0.

    Raises:
      ValueError: not JSON, or a number, escape or nesting depth that is not allowed.
    """
    try:
        value = _read(text)
    except RecursionError as error:
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels") from error
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        paired = _PAIRED_ESCAPES.match(text)
        if paired is None or paired.end() != len(text):
            raise ValueError("a surrogate escape stands alone; use both halves of the pair")
    if _is_too_deep(text, value):
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels")
    return value


def dumps(value: Any) -> str:
    """Writes a value with spaces after `,` and `:`; floats as Python spells them."""
    return str(value) if type(value) is int else _spaced(value)


def dumps_decimal(value: Any) -> str:
    """Writes a value with spaces after `,` and `:`; 1e-5 in decimals, shorter exponents."""
    return _respelled(_spaced(value))


def dumps_compact(value: Any) -> str:
    """Writes a value without spaces; floats as in `dumps_decimal`."""
    return _respelled(_compact(value))


def copy(value: Any) -> Any:
    """A deep copy of a Python value as JSON: dict, list, str, int, float, bool and None.

    Tuples become lists, subclasses of the JSON types become the plain types.

    Raises:
      TypeError: a value of another type, or a key that is no string.
      ValueError: a number that is not finite, or a container inside itself.
      OverflowError: an integer outside 64 bits.
      RecursionError: nested deeper than 128 levels.
      UnicodeEncodeError: a lone surrogate.
    """
    return _copy(value, ())


def _copy(value: Any, parents: tuple[int, ...]) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is str:
        if not value.isascii():
            value.encode()
        return value
    if value is None or kind is bool:
        return value
    if isinstance(value, dict | list | tuple):
        return _copy_container(cast("Any", value), parents)
    if isinstance(value, str):
        return _copy(str.__str__(value), parents)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise OverflowError("integer is outside the JSON number range")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            shown = "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
            raise ValueError(f"{shown} is not a finite JSON number")
        return float(value)
    raise TypeError(f"{kind.__name__} is not a JSON value")


def _copy_container(value: Any, parents: tuple[int, ...]) -> Any:
    if id(value) in parents:
        raise ValueError("circular reference in JSON input")
    if len(parents) > MAX_DEPTH:
        raise RecursionError(f"JSON input exceeds the maximum nesting depth of {MAX_DEPTH + 1}")
    inside = (*parents, id(value))
    if not isinstance(value, dict):
        return [
            item if type(item) is str and item.isascii() else _copy(item, inside) for item in value
        ]
    record: dict[str, Any] = {}
    for key, item in cast("dict[Any, Any]", value).items():
        if type(key) is not str or not key.isascii():
            if not isinstance(key, str):
                raise TypeError("JSON object keys must be str")
            key = _copy(key, ())
        if type(item) is not str or not item.isascii():
            item = _copy(item, inside)
        record[key] = item
    return record


def _read(text: str) -> Any:
    try:
        value, end = _scan(text, 0)
    except StopIteration:  # blanks first, or no JSON
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def _integer(text: str) -> int | float:
    if text == "-0":
        return -0.0
    if len(text) <= 20 and -(2**63) <= (value := int(text)) < 2**64:
        return value
    return _float(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number out of range: {text[:40]}")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON; use a finite number or null")


def _is_too_deep(text: str, value: Any) -> bool:
    """Whether valid JSON text nests too deep, values that a repeated key replaces included."""
    spare = text.count("[") + text.count("{")
    if spare <= MAX_DEPTH:
        return False
    depth = 0
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    while level:
        level = [
            item
            for container in level
            for item in (container.values() if hasattr(container, "values") else container)
            if type(item) in _CONTAINERS
        ]
        spare -= len(level)
        depth += 1
    # What was replaced or stands in strings may add one level a bracket.
    return depth > MAX_DEPTH or (depth + spare > MAX_DEPTH and _depth(text) > MAX_DEPTH)


def _depth(text: str) -> int:
    """Deepest nesting of valid JSON text, replaced values included."""
    brackets = _NOT_BRACKETS.sub("", text)
    return max(itertools.accumulate(map(_DEPTH_STEP.__getitem__, brackets)), default=0)


def _respelled(text: str) -> str:
    """Python's JSON with small floats in the other spelling."""
    return _STRING_OR_SMALL.sub(_small, text) if "e-" in text else text


def _small(match: re.Match[str]) -> str:
    sign, first, rest, exponent = match.groups()
    if first is None:
        return match[0]
    zeros = int(exponent)
    if zeros <= 5:
        return f"{sign}0.{'0' * (zeros - 1)}{first}{rest or ''}"
    return f"{sign}{first}{'.' + rest if rest else ''}e-{zeros}"


def _writer(item_separator: str, key_separator: str) -> Callable[[Any], str]:
    """What `json.dumps` does, without setting an encoder up for every value."""
    separators = (item_separator, key_separator)
    encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=separators)
    made: Any = getattr(json.encoder, "c_make_encoder", None)
    if made is None:
        return encoder.encode
    pieces = made(
        *(None, encoder.default, json.encoder.encode_basestring, None),
        *(key_separator, item_separator, False, False, True),
    )
    return lambda value: "".join(pieces(value, 0))


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant)
# The decoder's own first step, which suffices for text without blanks around it.
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_DECODER, "scan_once")  # noqa: B009
_spaced = _writer(", ", ": ")
_compact = _writer(",", ":")

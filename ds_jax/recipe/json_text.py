"""JSON as prompts spell it.

Decides how argument text is read (strictly) and how values are written (`, ` and `: ` separators,
raw UTF-8, Python float spelling). Never guesses at broken JSON. In: text or values. Out: values or
text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

MAX_DEPTH = 127


def loads(text: str) -> Any:
    """Reads strict JSON; numbers outside 64 bits become floats, `-0` becomes -0.0.

    Raises:
      ValueError: not JSON, or a number, escape or nesting depth that is not allowed.
    """
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels") from error
    _check(value, MAX_DEPTH)
    return value


def dumps(value: Any) -> str:
    """Writes a value with spaces after `,` and `:`; keys keep their order."""
    return json.dumps(value, ensure_ascii=False)


def compact(value: Any) -> str:
    """Writes a value without spaces, floats by Rust's rule: plain from 0.00001 on, `1e-7` below."""
    return _write(value, (",", ":"))


def dumps_rust(value: Any) -> str:
    """Writes a value with `, ` and `: ` and floats by Rust's rule."""
    return _write(value, (", ", ": "))


def rust_float(number: float) -> str:
    """Shortest digits; decimal exponents -5 to 15 are written out, others as `1.5e-7`, `1e+16`."""
    text = repr(number)
    if "e-" not in text:
        return text
    digits, exponent = text.split("e-")
    if exponent != "05":
        return f"{digits}e-{exponent.lstrip('0')}"
    sign = "-" if digits[0] == "-" else ""
    return f"{sign}0.0000{digits.lstrip('-').replace('.', '')}"


_SMALL_FLOAT = re.compile(r"\de-\d")


def _write(value: Any, separators: tuple[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    # Python and Rust spell floats alike but for negative exponents.
    if _SMALL_FLOAT.search(text) is None:
        return text
    parts: list[str] = []
    _write_slowly(value, separators, parts)
    return "".join(parts)


def _write_slowly(value: Any, separators: tuple[str, str], parts: list[str]) -> None:
    comma, colon = separators
    if isinstance(value, float):
        parts.append(rust_float(value))
    elif isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        parts.append("{")
        for index, (key, item) in enumerate(record.items()):
            parts.append(f"{comma if index else ''}{json.dumps(key, ensure_ascii=False)}{colon}")
            _write_slowly(item, separators, parts)
        parts.append("}")
    elif isinstance(value, list):
        parts.append("[")
        for index, item in enumerate(cast("list[Any]", value)):
            if index:
                parts.append(comma)
            _write_slowly(item, separators, parts)
        parts.append("]")
    else:
        parts.append(json.dumps(value, ensure_ascii=False))


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


def _check(value: Any, depth: int) -> None:
    """Refuses lone surrogates and too deep nesting."""
    if isinstance(value, str):
        value.encode("utf-8")
        return
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels")
    items: list[Any] = cast("list[Any]", value)
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        items = [*record.keys(), *record.values()]
    for item in items:
        _check(item, depth - 1)

"""JSON as prompts spell it.

Decides how argument text is read (strictly) and how values are written (`, ` and `: ` separators,
raw UTF-8, Python float spelling). Never guesses at broken JSON. In: text or values. Out: values or
text.
"""

from __future__ import annotations

import json
import math
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

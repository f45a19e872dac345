"""Checks of what callers pass to the public classes.

Decides which Python types an argument may have and what the error says. Never changes a value, but
subclasses of `str` become `str` and sequences become tuples. In: an argument's name and value. Out:
the checked value.

A wrong type is a `TypeError` that names the argument; a lone surrogate is a `UnicodeEncodeError`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeVar, cast

T = TypeVar("T")

MAX_COUNT = 2**64 - 1


def text(name: str, value: Any) -> str:
    """A string that can be encoded."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise wrong_type(name, value, "str")
        value = str.__str__(value)
    if not value.isascii():
        value.encode()
    return value


def optional_text(name: str, value: Any) -> str | None:
    """A string that can be encoded, or None."""
    return None if value is None else text(name, value)


def flag(name: str, value: Any) -> bool:
    """True or False; NumPy's booleans count."""
    if value is True or value is False:
        return value
    kind = cast("type[Any]", type(value))
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return bool(value)
    raise wrong_type(name, value, "bool")


def optional_flag(name: str, value: Any) -> bool | None:
    """True, False or None."""
    return None if value is None else flag(name, value)


def count(name: str, value: Any, largest: int = MAX_COUNT) -> int:
    """An integer from 0 to `largest`; anything that is an index counts.

    Raises:
      OverflowError: it is negative or larger.
    """
    try:
        number = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(
            f"argument '{name}': '{kind}' object cannot be interpreted as an integer"
        ) from None
    if not 0 <= number <= largest:
        raise OverflowError(f"argument '{name}': {number} is not between 0 and {largest}")
    return number


def blob(name: str, value: Any) -> bytes:
    """Bytes, or something that holds them.

    Raises:
      OverflowError: a sequence holds more than bytes.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value))
    if isinstance(value, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(value, Sequence):
        raise wrong_type(name, value, "Sequence")
    try:
        return bytes(cast("Sequence[Any]", value))
    except ValueError:
        raise OverflowError("out of range integral type conversion attempted") from None


def records(name: str, value: Any, kind: type[T]) -> tuple[T, ...]:
    """A sequence of `kind` (not a string) as a tuple."""
    if isinstance(value, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(value, Sequence):
        raise wrong_type(name, value, "Sequence")
    items = tuple(cast("Sequence[Any]", value))
    for item in items:
        if not isinstance(item, kind):
            raise wrong_type(name, item, kind.__name__)
    return items


def record(name: str, value: Any, kind: type[T]) -> T:
    """An instance of `kind`."""
    if not isinstance(value, kind):
        raise wrong_type(name, value, kind.__name__)
    return value


def wrong_type(name: str, value: Any, kind: str) -> TypeError:
    """The error for an argument of another type than `kind`."""
    return TypeError(
        f"argument '{name}': '{type(value).__name__}' object cannot be cast as '{kind}'"
    )

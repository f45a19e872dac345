"""Readers of JSON values, with the texts of the deepseek-recipe library for what is wrong.

Decides how numbers, strings, words, arrays and maps are read, and how readers are combined. Never
knows a protocol. In: a JSON value of `body`. Out: what it stands for.

A reader is a function from a JSON value to what it stands for; it raises `DecodeError`. Records are
read by `decode_record`, values with a tag by `decode_tagged`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ds_jax.recipe import rust_text

T = TypeVar("T")
Reader = Callable[[Any], T]


class DecodeError(ValueError):
    """A value does not have the declared shape.

    Attributes:
      path: the keys and indices that lead to the value.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: tuple[str | int, ...] = ()

    def inside(self, step: str | int) -> DecodeError:
        """The same error, found inside a container at `step`. Mutates itself."""
        self.path = (step, *self.path)
        return self


def invalid_type(value: object, expected: str) -> DecodeError:
    """The error for a value of another JSON type."""
    return DecodeError(f"invalid type: {rust_text.describe(value)}, expected {expected}")


def unknown_variant(word: str, words: Mapping[str, object]) -> DecodeError:
    """The error for a word outside an enumeration."""
    quoted = [f"`{each}`" for each in words]
    if len(quoted) == 1:
        expected = quoted[0]
    elif len(quoted) == 2:
        expected = " or ".join(quoted)
    else:
        expected = "one of " + ", ".join(quoted)
    return DecodeError(f"unknown variant `{word}`, expected {expected}")


# Scalars -------------------------------------------------------------------------------------


def anything(value: Any) -> Any:
    """Any JSON value, as it is."""
    return value


def string(value: Any) -> str:
    """A string."""
    if type(value) is str:
        return value
    raise invalid_type(value, "a string")


def boolean(value: Any) -> bool:
    """True or false."""
    if value is True or value is False:
        return value
    raise invalid_type(value, "a boolean")


def _integer(name: str, low: int, high: int) -> Reader[int]:
    def read(value: Any) -> int:
        if type(value) is not int:
            raise invalid_type(value, name)
        if not low <= value <= high:
            raise DecodeError(f"invalid value: integer `{value}`, expected {name}")
        return value

    return read


u8 = _integer("u8", 0, 2**8 - 1)
u32 = _integer("u32", 0, 2**32 - 1)
u64 = _integer("u64", 0, 2**64 - 1)
i64 = _integer("i64", -(2**63), 2**63 - 1)


def number(value: Any) -> int | float:
    """A number as it is."""
    if type(value) is float or type(value) is int:
        return value
    raise invalid_type(value, "a JSON number")


def f64(value: Any) -> float:
    """A number as a 64-bit float."""
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise invalid_type(value, "f64")


def f32(value: Any) -> float:
    """A number rounded to 32 bits (0.95 becomes 0.949999988079071); too large ones are infinite."""
    if type(value) is not float and type(value) is not int:
        raise invalid_type(value, "f32")
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# Combinations --------------------------------------------------------------------------------


def option(reader: Reader[T]) -> Reader[T | None]:
    """None for null, else what `reader` reads."""

    def read(value: Any) -> T | None:
        return None if value is None else reader(value)

    return read


def array(reader: Reader[T]) -> Reader[list[T]]:
    """An array whose elements `reader` reads."""

    def read(value: Any) -> list[T]:
        if type(value) is not list:
            raise invalid_type(value, "a sequence")
        return _elements_of(cast("list[Any]", value), reader)

    return read


def mapping(reader: Reader[T]) -> Reader[dict[str, T]]:
    """An object with any keys whose values `reader` reads."""

    def read(value: Any) -> dict[str, T]:
        if type(value) is not dict:
            raise invalid_type(value, "a map")
        read_items: dict[str, T] = {}
        key = ""
        try:
            for key, item in cast("dict[str, Any]", value).items():
                read_items[key] = reader(item)
        except DecodeError as error:
            raise error.inside(key) from None
        return read_items

    return read


def string_or_array(reader: Reader[T], text: str) -> Reader[str | list[T]]:
    """A string, or an array whose elements `reader` reads; `text` says that it is neither."""

    def read(value: Any) -> str | list[T]:
        if type(value) is str:
            return value
        if type(value) is list:
            return _elements_of(cast("list[Any]", value), reader)
        raise DecodeError(text)

    return read


def _elements_of(values: list[Any], reader: Reader[T]) -> list[T]:
    read: list[T] = []
    try:
        for item in values:
            read.append(reader(item))
    except DecodeError as error:
        raise error.inside(len(read)) from None
    return read


def at_field(name: str, reader: Reader[T]) -> Reader[T]:
    """What `reader` reads; its errors name the field."""

    def read(value: Any) -> T:
        try:
            return reader(value)
        except DecodeError as error:
            located = DecodeError(f"field `{name}`: {error}")
            located.path = (name, *error.path)
            raise located from None

    return read


def choice(words: Mapping[str, T]) -> Reader[T]:
    """One of some words, as what it stands for. `{"word": null}` is read like `"word"`."""

    def read(value: Any) -> T:
        if type(value) is str:
            if value in words:
                return words[value]
            raise unknown_variant(value, words)
        if type(value) is not dict:
            raise invalid_type(value, "string or map")
        items = cast("dict[str, Any]", value)
        if len(items) != 1:
            raise DecodeError("invalid value: map, expected map with a single key")
        ((word, unit),) = items.items()
        if word not in words:
            raise unknown_variant(word, words)
        if unit is not None:
            raise invalid_type(unit, "unit")
        return words[word]

    return read


def words(*names: str) -> Reader[str]:
    """One of some words, as itself."""
    return choice({name: name for name in names})

"""Values whose tag says what they are.

Decides how an enumeration whose variants hold fields is read: the word under its tag names the
record. Never knows a protocol. In: a JSON value of `body`. Out: one of the variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from ds_jax.recipe.decode import DecodeError, Reader, invalid_type, unknown_variant
from ds_jax.recipe.decode_record import ObjectReader, record

T = TypeVar("T")


class Unit(Generic[T]):
    """Reads a variant that holds nothing but its tag."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __call__(self, value: Any) -> T:
        """What the variant stands for, whatever else is given."""
        return self._value

    def from_object(self, items: Mapping[str, Any]) -> T:
        """What the variant stands for."""
        return self._value

    def from_array(self, values: list[Any]) -> T:
        """What the variant stands for, if nothing follows the tag."""
        if values:
            raise DecodeError(f"invalid length {len(values)}, expected 0 elements in sequence")
        return self._value


def variants(enum: str, table: Mapping[str, tuple[str, type[Any]]]) -> dict[str, ObjectReader[Any]]:
    """Readers of an enumeration's variants: tag to (variant name, dataclass)."""
    return {
        tag: record(cls, f"struct variant {enum}::{name}", buffered=True)
        for tag, (name, cls) in table.items()
    }


def tagged(
    enum: str,
    tag: str,
    table: Mapping[str, ObjectReader[T]],
    *,
    other: ObjectReader[T] | None = None,
    numbered: bool = False,
) -> Reader[T]:
    """An object whose key `tag` names the record to read (or an array that begins with the tag).

    Args:
      enum: what errors call it.
      tag: the key.
      table: tag word to reader, in the order in which errors list the words.
      other: the reader for unknown words; without it they are an error.
      numbered: whether the tag may also be a word's place in the table (inside another tagged
        value).
    """
    missing = f"missing field `{tag}`"

    def pick(word: Any) -> ObjectReader[T]:
        if type(word) is not str:
            if not numbered or type(word) is not int or word < 0:
                raise invalid_type(word, "variant identifier")
            if word >= len(table):
                if other is not None:
                    return other
                raise DecodeError(
                    f"invalid value: integer `{word}`, expected variant index 0 <= i < {len(table)}"
                )
            return list(table.values())[word]
        reader = table.get(word, other)
        if reader is None:
            raise unknown_variant(word, table)
        return reader

    def read(value: Any) -> T:
        if type(value) is dict:
            items = cast("dict[str, Any]", value)
            if tag not in items:
                raise DecodeError(missing)
            return pick(items[tag]).from_object(items)
        if type(value) is list:
            values = cast("list[Any]", value)
            if not values:
                raise DecodeError(missing)
            return pick(values[0]).from_array(values[1:])
        raise invalid_type(value, f"internally tagged enum {enum}")

    return read

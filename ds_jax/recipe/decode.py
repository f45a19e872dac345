"""Typed records from JSON values, with the texts of the deepseek-recipe library for what is wrong.

Decides how a declared shape is read: a record is a dataclass whose fields name their readers
(`required`, `optional`, `defaulted`), an enumeration is a table of words, and readers are combined
(`array`, `option`, `tagged`, …). Never knows a protocol. In: a JSON value of `body`. Out: records.

A reader is a function from a JSON value to what it stands for; it raises `DecodeError`. Unknown
keys are ignored. Values are read in the order in which the caller wrote them, so the first wrong
one is reported; missing fields come after that, in declaration order.

    @dataclasses.dataclass(frozen=True, slots=True)
    class Function:
        name: str = required(string)
        description: str | None = optional(string)

    read_function = record(Function, "struct Function")
    read_function({"name": "f"})   # Function(name="f", description=None)
    read_function({})              # DecodeError: missing field `name`
    read_function(5)               # DecodeError: invalid type: integer `5`, expected struct …
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from ds_jax.recipe import rust_text

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Reader = Callable[[Any], T]

_MISSING: Any = object()


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


class ObjectReader(Protocol[T_co]):
    """A reader that can also read a value whose tag was already taken off."""

    def __call__(self, value: Any) -> T_co:
        """Reads any JSON value."""
        ...

    def from_object(self, items: Mapping[str, Any]) -> T_co:
        """Reads an object (keys that are not fields, the tag among them, are ignored)."""
        ...

    def from_array(self, values: list[Any]) -> T_co:
        """Reads the fields in declaration order, without names."""
        ...


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


# Records -------------------------------------------------------------------------------------


def required(reader: Reader[T], *, key: str | None = None) -> T:
    """A field that must be there (null counts as there); `key` when the JSON name differs."""
    return _field(reader, key, (), _MISSING)


def optional(
    reader: Reader[T], *, key: str | None = None, aliases: tuple[str, ...] = ()
) -> T | None:
    """A field that may be absent or null, then None; `aliases` are further JSON names."""
    return _field(reader, key, aliases, None, nullable=True)


def defaulted(reader: Reader[T], default: T, *, key: str | None = None) -> T:
    """A field that may be absent, then `default`; null is read by `reader`."""
    return _field(reader, key, (), default)


def _field(
    reader: Reader[Any],
    key: str | None,
    aliases: tuple[str, ...],
    default: Any,
    *,
    nullable: bool = False,
) -> Any:
    return dataclasses.field(
        metadata={
            "reader": reader,
            "key": key,
            "aliases": aliases,
            "default": default,
            "nullable": nullable,
        }
    )


class Record(Generic[T]):
    """Reads a slotted dataclass declared with `required`, `optional` and `defaulted` fields."""

    def __init__(self, cls: type[T], what: str, *, buffered: bool) -> None:
        self._cls = cls
        self._what = what
        self._buffered = buffered
        fields = dataclasses.fields(cast(Any, cls))
        self._names = [field.metadata["key"] or field.name for field in fields]
        # Slots are set directly: twice as fast as the constructor of a frozen dataclass.
        self._setters: list[Callable[[T, Any], None]] = [
            getattr(cls, field.name).__set__ for field in fields
        ]
        self._readers: list[Reader[Any]] = [
            option(field.metadata["reader"])
            if field.metadata["nullable"]
            else field.metadata["reader"]
            for field in fields
        ]
        self._defaults: list[Any] = [field.metadata["default"] for field in fields]
        self._slots: dict[str, tuple[int, Reader[Any], bool]] = {}
        for index, field in enumerate(fields):
            slot = (index, field.metadata["reader"], field.metadata["nullable"])
            for name in (self._names[index], *field.metadata["aliases"]):
                self._slots[name] = slot
        self._required = [i for i, default in enumerate(self._defaults) if default is _MISSING]
        self._has_aliases = len(self._slots) > len(fields)

    def __call__(self, value: Any) -> T:
        """Reads an object, or an array with the fields in order."""
        if type(value) is dict:
            return self.from_object(cast("dict[str, Any]", value))
        if type(value) is list:
            return self.from_array(cast("list[Any]", value))
        raise invalid_type(value, self._what)

    def from_object(self, items: Mapping[str, Any]) -> T:
        """Reads named fields; unknown names are ignored."""
        if self._has_aliases:
            self._refuse_twice(items)
        values = self._defaults.copy()
        slots = self._slots
        key = ""
        try:
            for key, item in items.items():
                slot = slots.get(key)
                if slot is not None:
                    index, reader, nullable = slot
                    values[index] = None if item is None and nullable else reader(item)
        except DecodeError as error:
            raise error.inside(key) from None
        for index in self._required:
            if values[index] is _MISSING:
                raise DecodeError(f"missing field `{self._names[index]}`")
        return self._made(values)

    def from_array(self, values: list[Any]) -> T:
        """Reads all fields in declaration order; only `defaulted` ones may be absent."""
        count = len(self._readers)
        read: list[Any] = []
        try:
            for reader, value in zip(self._readers, values, strict=False):
                read.append(reader(value))
        except DecodeError as error:
            raise error.inside(self._names[len(read)]) from None
        for index in range(len(values), count):
            default = self._defaults[index]
            if default is None or default is _MISSING:
                raise DecodeError(
                    f"invalid length {index}, expected {self._what} with {_elements(count)}"
                )
            read.append(default)
        if len(values) > count:
            rest = (
                f"{_elements(count)} in sequence" if self._buffered else "fewer elements in array"
            )
            raise DecodeError(f"invalid length {len(values)}, expected {rest}")
        return self._made(read)

    def _made(self, values: list[Any]) -> T:
        made = object.__new__(self._cls)
        for store, value in zip(self._setters, values, strict=True):
            store(made, value)
        return made

    def _refuse_twice(self, items: Mapping[str, Any]) -> None:
        """Refuses a field given under two of its names, unless a wrong value comes before that."""
        seen: set[int] = set()
        for key, item in items.items():
            slot = self._slots.get(key)
            if slot is not None:
                if slot[0] in seen:
                    raise DecodeError(f"duplicate field `{self._names[slot[0]]}`")
                seen.add(slot[0])
                self._readers[slot[0]](item)


def record(cls: type[T], what: str, *, buffered: bool = False) -> Record[T]:
    """A reader for a dataclass.

    Args:
      cls: a slotted dataclass of `required`, `optional` and `defaulted` fields.
      what: what errors call it, such as `struct ResponsesRequest`.
      buffered: whether it only occurs inside a `tagged` or `adjacent` value (the texts for arrays
        that are too long differ there).
    """
    return Record(cls, what, buffered=buffered)


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


def _elements(count: int) -> str:
    return f"{count} element" if count == 1 else f"{count} elements"

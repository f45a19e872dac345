"""Records from JSON objects.

Decides how a dataclass whose fields name their readers (`required`, `optional`, `defaulted`) is
read. Never knows a protocol. In: a JSON value of `body`. Out: the dataclass.

Unknown keys are ignored. Values are read in the order in which the caller wrote them, so the first
wrong one is reported; missing fields come after that, in declaration order.

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
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from ds_jax.recipe.decode import DecodeError, Reader, invalid_type, option

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MISSING: Any = object()


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


def _elements(count: int) -> str:
    return f"{count} element" if count == 1 else f"{count} elements"

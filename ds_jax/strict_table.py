"""A table of keys read strictly into the fields of a frozen dataclass.

Decides which JSON or TOML value fits which annotated field. Never knows what a key means.
In: a mapping and a dataclass. Out: keyword arguments of it, or a `ConfigError` that names the key.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

from ds_jax.errors import ConfigError

_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def read(cls: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Reads every key of `table` as a field of `cls`.

    Args:
      cls: a dataclass whose field names are the allowed keys.
      table: values as the JSON or TOML parser gives them.
      where: prefix for messages, such as "text_config".

    Returns:
      Values converted to the annotated types (lists become tuples, whole numbers become floats).

    Raises:
      ConfigError: unknown key, missing key, or a value of the wrong type.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}
    reject_unknown(table, fields, where)
    required = [
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in table]
    if missing:
        raise ConfigError(f"{where}: missing {', '.join(missing)}; these keys have no default")
    hints = typing.get_type_hints(cls)
    return {name: convert(value, hints[name], f"{where}.{name}") for name, value in table.items()}


def reject_unknown(table: Mapping[str, Any], allowed: Collection[str], where: str) -> None:
    """Raises ConfigError if `table` has a key that is not in `allowed`."""
    unknown = [key for key in table if key not in allowed]
    if not unknown:
        return
    hints = [difflib.get_close_matches(key, allowed, n=1) for key in unknown]
    named = [
        f"'{key}'" + (f" (did you mean '{close[0]}'?)" if close else "")
        for key, close in zip(unknown, hints, strict=True)
    ]
    raise ConfigError(f"{where}: unknown key {', '.join(named)}; remove it or correct its name")


def convert(value: Any, hint: Any, key: str) -> Any:
    """Converts one parsed value to an annotated type, or raises ConfigError naming `key`."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return None if value is None else convert(value, inner[0], key)
    if origin is tuple:
        return _convert_tuple(value, typing.get_args(hint), key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key}={value!r}: must be a table of keys")
        return hint(**read(hint, typing.cast("Mapping[str, Any]", value), key))
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{key}={value!r}: must be {_NAMES.get(hint, hint)}")
    return value


def _convert_tuple(value: Any, arms: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{key}={value!r}: must be a list")
    items: list[Any] = list(typing.cast("list[Any]", value))
    open_ended = len(arms) == 2 and arms[1] is Ellipsis
    if not open_ended and len(items) != len(arms):
        raise ConfigError(f"{key}={items!r}: must have {len(arms)} entries")
    hints = [arms[0]] * len(items) if open_ended else list(arms)
    pairs = zip(items, hints, strict=True)
    return tuple(convert(item, hint, f"{key}[{i}]") for i, (item, hint) in enumerate(pairs))

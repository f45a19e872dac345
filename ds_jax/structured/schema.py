"""A JSON Schema in the form the library is given.

Decides which schemas are taken: every keyword is enforced, an annotation, or refused by its name
and place. Never compiles. In: text. Out: a new schema with only enforced keywords, whose references
all lead to its own `$defs`.

References are followed only where something in use refers to them, so an unsupported keyword in an
unused definition does no harm.
"""

from __future__ import annotations

import json
import math
from collections import deque
from typing import Any, NoReturn, cast
from urllib.parse import unquote

from ds_jax.structured import ecma, formats, schema_empty, schema_one_of
from ds_jax.structured import schema_keywords as keywords
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import refused, shown

KIND = "json_schema"


def read(text: str, limits: Limits, *, strict: bool = False) -> dict[str, Any]:
    """The schema in a text.

    Args:
      text: JSON.
      limits: how large it may be.
      strict: forbid undeclared properties wherever properties are declared.

    Raises:
      RequestError: no JSON, no schema, too large, a keyword that cannot be enforced, or no value
        can satisfy it.
    """
    return closed(parse(text, limits), "", limits, strict=strict)


def parse(text: str, limits: Limits, kind: str = KIND) -> Any:
    """The JSON value of a text.

    Raises:
      RequestError: with line and column of the fault.
    """
    if len(text) > limits.text_bytes or len(text.encode("utf-8", "replace")) > limits.text_bytes:
        raise refused(kind, f"{len(text)} characters; at most {limits.text_bytes} bytes")
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_float)
        text.encode()
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise refused(kind, f"no JSON: {error.msg}; correct it", place) from error
    except RecursionError as error:
        raise refused(kind, f"nested deeper than {limits.depth} levels") from error
    except ValueError as error:
        raise refused(kind, f"no JSON: {error}") from error
    return value


def closed(root: Any, pointer: str, limits: Limits, *, strict: bool = False) -> dict[str, Any]:
    """One subschema of a document with everything it refers to.

    Args:
      root: the document, a JSON value.
      pointer: JSON pointer of the subschema; empty: the document itself.
      limits: how large it may be.
      strict: forbid undeclared properties wherever properties are declared.
    """
    if isinstance(root, dict):
        _check_draft(cast("dict[str, Any]", root).get("$schema"))
    reader = _Reader(root, limits, strict)
    schema = schema_empty.without_empty(reader.read(pointer))
    if schema is False:
        raise refused(
            KIND,
            "no value satisfies it (a required part is false, or refers to itself without an end); "
            "make the recursion optional",
            f"#{pointer}",
        )
    schema = schema_one_of.as_any_of({} if schema is True else schema)
    return schema


class _Reader:
    """Rewrites one document. Mutates itself."""

    def __init__(self, root: Any, limits: Limits, strict: bool):
        self._root = root
        self._limits = limits
        self._strict = strict
        self._nodes = 0
        self._names: dict[tuple[str, bool], str] = {}
        self._waiting: deque[tuple[str, bool]] = deque()

    def read(self, pointer: str) -> dict[str, Any]:
        """The subschema as `{"$ref": ...}` over its definitions, or itself if it has none."""
        first = self._schema(self._target(pointer, pointer), pointer, 0, False)
        definitions: dict[str, Any] = {}
        while self._waiting:
            target = self._waiting.popleft()
            value = self._target(target[0], target[0])
            definitions[self._names[target]] = self._schema(value, target[0], 0, target[1])
        if isinstance(first, bool):
            first = cast("dict[str, Any]", {} if first else {"allOf": [False]})
        return {**first, "$defs": definitions} if definitions else first

    def _schema(self, value: Any, place: str, depth: int, merged: bool) -> Any:
        """`merged`: inside allOf, where other branches may declare more properties."""
        self._nodes += 1
        if self._nodes > self._limits.schema_nodes:
            self._refuse(f"more than {self._limits.schema_nodes} subschemas", place)
        if depth > self._limits.depth:
            self._refuse(f"nested deeper than {self._limits.depth} levels", place)
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            self._wrong(value, keywords.SCHEMA, place)
        items = cast("dict[str, Any]", value)
        out: dict[str, Any] = {}
        for keyword, item in items.items():
            self._check_refused(keyword, item, place, depth)
            wanted = keywords.ENFORCED.get(keyword)
            if wanted is not None:
                at = f"{place}/{keyword}"
                inside = merged or keyword == "allOf"
                out[keyword] = self._value(wanted, item, at, depth, inside)
        return self._tidied(out, place, merged)

    def _check_refused(self, keyword: str, item: Any, place: str, depth: int) -> None:
        if keyword in keywords.REFUSED:
            harmless = keywords.HARMLESS.get(keyword, ())
            if not any(type(item) is type(each) and item == each for each in harmless):
                advice = keywords.REFUSED[keyword]
                self._refuse(
                    f"the keyword {keyword!r} cannot be enforced; {advice}", f"{place}/{keyword}"
                )
        elif keyword == "$id" and (place or depth):
            self._refuse("'$id' inside a schema cannot be followed; leave it out", place)

    def _value(self, wanted: str, value: Any, place: str, depth: int, merged: bool) -> Any:
        match wanted:
            case keywords.SCHEMA:
                return self._schema(value, place, depth + 1, merged)
            case keywords.ITEMS if type(value) is not list:
                return self._schema(value, place, depth + 1, merged)
            case keywords.SCHEMAS | keywords.SOME_SCHEMAS | keywords.ITEMS:
                if not isinstance(value, list) or (wanted == keywords.SOME_SCHEMAS and not value):
                    self._wrong(cast(Any, value), wanted, place)
                return [
                    self._schema(each, f"{place}/{index}", depth + 1, merged)
                    for index, each in enumerate(cast("list[Any]", value))
                ]
            case keywords.SCHEMAS_BY_NAME:
                return self._by_name(value, place, depth, merged)
            case _:
                if not _fits(wanted, value):
                    self._wrong(value, wanted, place)
                return cast(Any, value)

    def _by_name(self, value: Any, place: str, depth: int, merged: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(value, keywords.SCHEMAS_BY_NAME, place)
        members = cast("dict[str, Any]", value)
        if len(members) > self._limits.properties:
            self._refuse(f"{len(members)} entries; at most {self._limits.properties}", place)
        is_pattern = place.endswith("/patternProperties")
        out: dict[str, Any] = {}
        for name, each in members.items():
            at = f"{place}/{name.replace('~', '~0').replace('/', '~1')}"
            if is_pattern:
                name = ecma.translated(name, KIND, f"#{at}")
            out[name] = self._schema(each, at, depth + 1, merged)
        return out

    def _tidied(self, out: dict[str, Any], place: str, merged: bool) -> dict[str, Any]:
        """The same schema without what says nothing and in one spelling."""
        if "$ref" in out:
            out["$ref"] = self._reference(out["$ref"], place, merged or "allOf" in out)
        if isinstance(out.get("items"), list):
            out["prefixItems"] = out.pop("items")
            if "additionalItems" in out:
                out["items"] = out["additionalItems"]
        out.pop("additionalItems", None)
        if "required" in out:
            out["required"] = list(dict.fromkeys(out["required"]))
        if "pattern" in out:
            out["pattern"] = ecma.translated(out["pattern"], KIND, f"#{place}/pattern")
        for keyword in ("minItems", "minLength", "minProperties"):
            if keyword in out:
                out[keyword] = int(out[keyword])
                if out[keyword] >= keywords.UNBOUNDED:
                    self._refuse(f"{out[keyword]} is more than any output holds", place)
        for keyword in ("maxItems", "maxLength", "maxProperties"):
            if keyword in out:
                out[keyword] = int(out[keyword])
                if out[keyword] >= keywords.UNBOUNDED:
                    del out[keyword]
        self._check_numbers(out, place)
        self._take_format(out, place)
        declares = "properties" in out or "patternProperties" in out
        open_ended = "additionalProperties" not in out and not ("allOf" in out or "$ref" in out)
        if self._strict and declares and open_ended and not merged:
            out["additionalProperties"] = False
        return out

    def _check_numbers(self, out: dict[str, Any], place: str) -> None:
        """The library reads bounds as doubles; one it would round is refused."""
        for keyword in keywords.NUMBERS:
            value = out.get(keyword)
            if isinstance(value, int) and abs(value) > 2**53:
                self._refuse(f"{shown(str(value))} is beyond 2**53", f"{place}/{keyword}")

    def _take_format(self, out: dict[str, Any], place: str) -> None:
        """Spells a format that the library takes too generously as a pattern."""
        name = out.get("format")
        if name is None or name in formats.OF_LIBRARY:
            return
        types: str | list[str] = out.get("type", "string")
        known = formats.PATTERNS.get(name)
        if "string" in types:
            if known is None:
                allowed = ", ".join(sorted(formats.PATTERNS.keys() | formats.OF_LIBRARY))
                self._refuse(
                    f"the format {shown(name)!r} cannot be enforced; allowed: {allowed}",
                    f"{place}/format",
                )
            if "pattern" in out:
                out["allOf"] = [*out.get("allOf", ()), {"pattern": f"^{known}$"}]
            else:
                out["pattern"] = f"^{known}$"
        del out["format"]  # it speaks of strings only

    def _reference(self, reference: str, place: str, merged: bool) -> str:
        if reference != "#" and not reference.startswith("#/"):
            self._refuse(
                f"{shown(reference)!r} is no JSON pointer from the root; nothing is fetched, "
                "use #/$defs/...",
                f"{place}/$ref",
            )
        pointer = unquote(reference[1:])
        self._target(pointer, f"{place}/$ref")
        target = (pointer, merged and self._strict)
        if target not in self._names:
            self._names[target] = f"r{len(self._names)}"
            self._waiting.append(target)
        return f"#/$defs/{self._names[target]}"

    def _target(self, pointer: str, place: str) -> Any:
        value = self._root
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = cast("dict[str, Any]", value)[key]
            elif (
                isinstance(value, list)
                and key.isdecimal()
                and len(key) < 8
                and int(key) < len(cast("list[Any]", value))
            ):
                value = cast("list[Any]", value)[int(key)]
            else:
                self._refuse(f"nothing stands at #{shown(pointer)}; define it", place)
        return value

    def _wrong(self, value: Any, wanted: str, place: str) -> NoReturn:
        self._refuse(f"{shown(json.dumps(value)[:300])}: must be {wanted}", place)

    def _refuse(self, reason: str, place: str) -> NoReturn:
        raise refused(KIND, reason, f"#{place}")


def _fits(wanted: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match wanted:
        case keywords.TYPES:
            types = cast("list[Any]", value) if isinstance(value, list) else [value]
            return bool(types) and all(
                isinstance(each, str) and each in keywords.TYPE_NAMES for each in types
            )
        case keywords.NAMES:
            names = cast("list[Any]", value)
            return isinstance(value, list) and all(isinstance(name, str) for name in names)
        case keywords.COUNT:
            return is_number and value >= 0 and value == math.floor(value)
        case keywords.NUMBER:
            return is_number
        case keywords.POSITIVE:
            return is_number and value > 0
        case keywords.TEXT:
            return isinstance(value, str)
        case keywords.VALUES:
            return isinstance(value, list) and value != []
        case _:
            return True


def _check_draft(uri: Any) -> None:
    if uri is None or (isinstance(uri, str) and uri.removesuffix("#") in keywords.DRAFTS):
        return
    raise refused(
        KIND,
        f"unknown $schema {shown(repr(uri))}; use https://json-schema.org/draft/2020-12/schema",
        "#/$schema",
    )


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number out of range: {shown(text)}")
    return value

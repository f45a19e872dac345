"""Whether the references inside a JSON Schema lead somewhere.

Decides what is wrong first: a URI that is none, a document that is not there, a pointer or an
anchor without a target; in the newer drafts also a pattern that is no regular expression. Never
fetches anything. In: a schema whose keywords have the right kinds. Out: nothing, or `SchemaFault`.

Schemas under `$defs` and `definitions` are followed only when something refers to them; documents
are looked for in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote, urljoin

from ds_jax.recipe.json_text import dumps_compact
from ds_jax.recipe.regex_syntax import is_regex
from ds_jax.recipe.schema_keywords import ROOT, Draft, is_known_document

# urljoin knows the rules of http only; the root's scheme is exchanged around it.
_STAND_IN = "http://json-schema/"
_UNUSED = ("$defs", "definitions", "contentSchema")
_NOT_URI = re.compile(r"[^A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})")
_Step: TypeAlias = Literal["enter", "refer", "match"]
"""Into a schema, to what a reference names, or over patterns."""


class SchemaFault(Exception):
    """The first thing that is wrong with a schema."""


def check(schema: Any, draft: Draft, check_schema: Callable[[Any, Draft], None]) -> None:
    """Looks up what the references of a schema refer to.

    Args:
      schema: a schema whose keywords have the right kinds.
      draft: its draft.
      check_schema: checks the keywords of what stands where no schema has to stand.

    Raises:
      SchemaFault: a reference leads nowhere, or to what is no schema.
    """
    _References(schema, draft, check_schema).check()


class _References:
    """The documents and anchors of one schema. Mutates itself."""

    def __init__(
        self, schema: Any, draft: Draft, check_schema: Callable[[Any, Draft], None]
    ) -> None:
        self._check_schema = check_schema
        self._root = schema
        self._draft = draft
        self._subschemas = draft.subschemas
        self._documents: dict[str, Any] = {ROOT: schema}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._bases: dict[int, str] = {}
        self._followed = draft.references
        if draft.late_patterns:
            self._followed += ("pattern", "patternProperties")
        self._must_follow = False

    def check(self) -> None:
        self._collect()
        if not self._must_follow:
            return
        for value, base in self._everything():
            if isinstance(reference := value.get("$ref"), str):
                self._check_document(base, reference)
        self._follow()

    def _collect(self) -> None:
        """Finds the documents and anchors."""
        stack: list[tuple[Any, str]] = [(self._root, ROOT)]
        while stack:
            value, base = stack.pop()
            if not isinstance(value, dict):
                continue
            items = cast("dict[str, Any]", value)
            identifier = items.get(self._draft.id_keyword)
            if isinstance(identifier, str) and not (self._draft.ref_alone and "$ref" in items):
                base = self._identify(items, base, identifier)
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := items.get(keyword), str):
                    self._anchors.setdefault((base, anchor), items)
            self._bases[id(items)] = base
            if not self._must_follow:
                self._must_follow = any(keyword in items for keyword in self._followed)
            stack.extend((child, base) for child in reversed(list(self._children(items))))

    def _identify(self, items: dict[str, Any], base: str, identifier: str) -> str:
        if identifier.startswith("#"):
            self._anchors.setdefault((base, identifier[1:]), items)
            return base
        check_uri(identifier)
        base = _join(base, identifier).partition("#")[0]
        self._documents.setdefault(base, items)
        return base

    def _everything(self) -> Iterator[tuple[dict[str, Any], str]]:
        stack: list[Any] = [self._root]
        while stack:
            value = stack.pop()
            if isinstance(value, dict):
                items = cast("dict[str, Any]", value)
                yield items, self._bases[id(items)]
                stack.extend(reversed(list(self._children(items))))

    def _children(self, items: dict[str, Any]) -> Iterator[Any]:
        """The schemas directly inside a schema, in use or not."""
        for keyword, value in items.items():
            yield from self._under(keyword, value)

    def _under(self, keyword: str, value: Any) -> Iterator[Any]:
        """The schemas under a keyword."""
        kind = self._subschemas.get(keyword)
        if kind is None:
            return
        if isinstance(value, list):
            yield from cast("list[Any]", value)
        elif "by" in kind and isinstance(value, dict):
            yield from cast("dict[str, Any]", value).values()
        else:
            yield value

    def _check_document(self, base: str, reference: str) -> None:
        if reference.startswith("#"):
            return
        check_uri(reference)
        document = _join(base, reference).partition("#")[0]
        if document not in self._documents and not is_known_document(document):
            raise _absent(document, f"Retrieval is disabled, cannot fetch {document}")

    def _follow(self) -> None:
        """Goes through every schema that is in use, and what it refers to, keyword by keyword."""
        stack: list[tuple[_Step, Any, str]] = [("enter", self._root, ROOT)]
        seen: set[int] = set()
        while stack:
            step, value, base = stack.pop()
            if step == "match":
                _check_patterns(value)
                continue
            if step == "refer":
                value = self._target(base, value)
            if not isinstance(value, dict) or id(cast(object, value)) in seen:
                continue
            items = cast("dict[str, Any]", value)
            seen.add(id(items))
            base = self._bases.get(id(items), base)
            stack.extend((step, value, base) for step, value in reversed(list(self._steps(items))))

    def _steps(self, items: dict[str, Any]) -> Iterator[tuple[_Step, Any]]:
        """What a validator does with a schema, in its order."""
        alone = self._draft.ref_alone and "$ref" in items
        for keyword, value in items.items():
            if keyword in self._draft.references and isinstance(value, str):
                yield "refer", value
            elif not alone:
                if self._draft.late_patterns and keyword in ("pattern", "patternProperties"):
                    yield "match", value
                if _is_in_use(keyword, items):
                    for each in self._under(keyword, value):
                        yield "enter", each

    def _target(self, base: str, reference: str) -> Any:
        document, _, fragment = reference.partition("#")
        uri = _join(base, document).partition("#")[0] if document else base
        if uri not in self._documents:
            if uri == self._draft.uri:
                return None
            raise _absent(
                uri, "Retrieving external resources is not supported once the registry is populated"
            )
        fragment = unquote(fragment)
        value = self._documents[uri]
        if not fragment:
            return value
        if not fragment.startswith("/"):
            if (uri, fragment) not in self._anchors:
                raise SchemaFault(f"Anchor '{fragment}' does not exist")
            return self._anchors[uri, fragment]
        for part in fragment[1:].split("/"):
            value = _step(value, part.replace("~1", "/").replace("~0", "~"))
            if value is _NOTHING:
                raise SchemaFault(f"Pointer '{fragment}' does not exist")
        if id(value) not in self._bases:
            self._check_schema(value, self._draft)
            self._bases[id(value)] = uri
        return value


def _absent(document: str, why: str) -> SchemaFault:
    return SchemaFault(
        f"Resource '{document}' is not present in a registry and retrieving it failed: {why}"
    )


def _is_in_use(keyword: str, items: dict[str, Any]) -> bool:
    """Whether a validator would look into the schema under a keyword without a reference to it."""
    if keyword == "if":
        return "then" in items or "else" in items
    if keyword in ("then", "else"):
        return "if" in items
    if keyword == "additionalItems":
        return isinstance(items.get("items"), list)
    return keyword not in _UNUSED


def _check_patterns(value: Any) -> None:
    """Refuses the value of `pattern` or `patternProperties` if it holds no regular expressions."""
    if isinstance(value, str):
        value = {value: value}
    for pattern, named in cast("dict[str, Any]", value).items():
        if not is_regex(pattern):
            raise SchemaFault(f'{dumps_compact(named)} is not a "regex"')


_NOTHING = object()


def _step(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(key, _NOTHING)
    if isinstance(value, list) and key.isdecimal() and key.isascii():
        array = cast("list[Any]", value)
        return array[int(key)] if len(key) < 10 and int(key) < len(array) else _NOTHING
    return _NOTHING


def _join(base: str, reference: str) -> str:
    joined = urljoin(base.replace(ROOT, _STAND_IN), reference)
    return joined.replace(_STAND_IN, ROOT)


def check_uri(reference: str) -> None:
    """Raises SchemaFault for characters that a URI reference cannot have."""
    wrong = _NOT_URI.search(reference)
    if wrong is not None:
        what = "invalid percent-encoded octet" if wrong[0] == "%" else "unexpected character"
        place = len(reference[: wrong.start()].encode())
        raise SchemaFault(f"Invalid URI reference '{reference}': {what} at index {place}")

"""The parameters of a tool call, as grammar rules.

Decides which types a parameter can have and how each is spelled: raw text up to the closing marker,
or JSON. Never knows tools. In: the schema of a tool's parameters. Out: rules.

A raw text is one lexeme that ends in `</`, directly in front of the marker: what looks like an end
inside the text is no end, because the marker is a control token.
"""

from __future__ import annotations

import json
from typing import Any, cast

from ds_jax import errors
from ds_jax.structured import backend, schema, schema_types, tool_texts
from ds_jax.structured.limits import Limits

_ANY_NAME = r"/[A-Za-z_][A-Za-z0-9_.\-]{0,63}/"
_NOT_TEXT = sorted(schema_types.ALL - {"string"})


class Writer:
    """Collects the rules of one grammar. Mutates itself.

    Args:
      marker: the control token as the grammar spells it.
      limits: how large schemas may be.
      blanks: regular expression of the blanks inside JSON values; None: none.
    """

    def __init__(self, marker: str, limits: Limits, blanks: str | None):
        self.marker = marker
        self.limits = limits
        self.lines: list[str] = []
        self._blanks = blanks
        self._count = 0
        self._known: dict[str, str] = {}

    def fresh(self, prefix: str) -> str:
        """A name that no rule has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def terminal(self, definition: str) -> str:
        """The lexeme of a definition."""
        return self._named("T", definition)

    def json_value(self, value: dict[str, Any]) -> str:
        """The rule of a JSON value of a closed schema."""
        return self._named("json", backend.schema_text(value, self._blanks))

    def text_parameter(self, name: str, lexeme: str) -> str:
        """A parameter of raw text; the lexeme ends in `</`."""
        return self._parameter(name, "true", lexeme)

    def json_parameter(self, name: str, rule: str) -> str:
        """A parameter whose value is JSON."""
        return self._parameter(name, "false", f'{rule} "</"')

    def any_parameter(self) -> str:
        """Any parameter with any value."""
        head = f'"<" {self.marker} " parameter name=\\"" {self.terminal(_ANY_NAME)} '
        text = f'"\\" string=\\"true\\">" {self.terminal(tool_texts.FREE)}'
        other = f'"\\" string=\\"false\\">" {self.json_value({"type": _NOT_TEXT})} "</"'
        return self._named("any", f'{head} ({text} | {other}) {self.marker} " parameter>\\n"')

    def _parameter(self, name: str, flag: str, value: str) -> str:
        head = json.dumps(f' parameter name="{name}" string="{flag}">', ensure_ascii=False)
        return f'"<" {self.marker} {head} {value} {self.marker} " parameter>\\n"'

    def _named(self, prefix: str, definition: str) -> str:
        if definition not in self._known:
            self._known[definition] = self.fresh(prefix)
            self.lines.append(f"{self._known[definition]}: {definition}")
        return self._known[definition]


class Reader:
    """The parameters of one tool.

    Args:
      parameters: their schema, a JSON object.
      strict: whether values follow the whole schema, or only its types.
      writer: takes the rules.
    """

    def __init__(self, parameters: dict[str, Any], strict: bool, writer: Writer):
        self._parameters = parameters
        self._strict = strict
        self._writer = writer

    def check(self) -> None:
        """Refuses a schema that cannot be enforced.

        Raises:
          RequestError: with the place inside the schema.
        """
        schema.closed(self._parameters, "", self._writer.limits)

    def parameter(self, name: str) -> str | None:
        """What one parameter looks like; None if it can have no value.

        Raises:
          RequestError: strict, and the schema cannot be enforced.
        """
        known = self._value(name)
        if known is None:
            return None
        types = schema_types.possible(known)
        ways: list[str] = []
        if "string" in types:
            lexemes = tool_texts.lexemes(known)
            ways += [
                self._writer.text_parameter(name, self._writer.terminal(lexeme))
                for lexeme in lexemes
            ]
        if types - {"string"}:
            if "string" in types:
                definitions = known.get("$defs")
                inner = {keyword: value for keyword, value in known.items() if keyword != "$defs"}
                known = {"allOf": [inner, {"type": sorted(types - {"string"})}]}
                known |= {"$defs": definitions} if definitions else {}
            ways.append(self._writer.json_parameter(name, self._writer.json_value(known)))
        return f"({' | '.join(ways)})" if ways else None

    def _value(self, name: str) -> dict[str, Any] | None:
        declared = cast("dict[str, Any]", self._parameters.get("properties", {}))
        if name not in declared:
            return {}
        escaped = name.replace("~", "~0").replace("/", "~1")
        limits = self._writer.limits
        if self._strict:
            if declared[name] is False:
                return None
            return schema.closed(self._parameters, f"/properties/{escaped}", limits)
        value = declared[name]
        if not isinstance(value, dict):
            return None if value is False else {}
        try:
            # Only what says which type a value has: the rest need not even be a schema.
            known = schema.closed(self._parameters, f"/properties/{escaped}", limits)
        except errors.RequestError:
            known = schema_types.shallow(cast("dict[str, Any]", value))
        return schema_types.only(known)

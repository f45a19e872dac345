"""Grammars in GBNF, the EBNF of llama.cpp.

Decides what its text means: `name ::= ...`, `|`, groups, `* + ? {m,n}`, literals, classes, `.` for
any character, `#` comments. Line breaks are blanks; a rule ends where the next one starts. Never
compiles. In: text. Out: rules, or a `RequestError` with line and column.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ds_jax.structured import expression as ex
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import line_and_column, refused, shown

KIND = "ebnf"
ROOT = "root"

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_DEFINES = re.compile(r"[ \t]*::=")
_COUNT = re.compile(r"\{[ \t]*(\d*)[ \t]*(?:(,)[ \t]*(\d*)[ \t]*)?\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_ESCAPES = dict(zip("ntrabfv0e", "\n\t\r\a\b\f\v\0\x1b", strict=True))
_LITERAL_ESCAPES = "\\\"'?/[]-^"
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MOST_REPEATS = 2**31 - 1
_MOST_MARKS = 8


def parse(text: str, limits: Limits) -> dict[str, ex.Expression]:
    """The rules of a grammar; `root` is among them and every name is defined.

    Raises:
      RequestError: with line and column.
    """
    if len(text) > limits.text_bytes or len(text.encode("utf-8", "replace")) > limits.text_bytes:
        raise refused(KIND, f"{len(text)} characters; at most {limits.text_bytes} bytes")
    return _Parser(text, limits).rules()


class _Parser:
    """Reads one text. Mutates itself."""

    def __init__(self, text: str, limits: Limits):
        self._text = text
        self._limits = limits
        self._at = 0
        self._depth = 0
        self._nodes = 0
        self._uses: dict[str, int] = {}

    def rules(self) -> dict[str, ex.Expression]:
        rules: dict[str, ex.Expression] = {}
        self._skip()
        while self._at < len(self._text):
            start = self._at
            name = self._rule_name()
            if name is None:
                self._fail("a rule such as 'name ::= ...' must start here")
            if name in rules:
                self._fail(f"the rule {shown(name)!r} is defined twice", start)
            rules[name] = self._choice()
            if self._at < len(self._text) and self._rule_name(peek=True) is None:
                self._fail(f"{self._text[self._at]!r} is not expected here")
        if ROOT not in rules:
            raise refused(KIND, f"no rule {ROOT!r}; the output is what {ROOT!r} describes")
        for name, offset in self._uses.items():
            if name not in rules:
                self._fail(f"the rule {shown(name)!r} is not defined", offset)
        return rules

    def _rule_name(self, *, peek: bool = False) -> str | None:
        name = _NAME.match(self._text, self._at)
        defines = _DEFINES.match(self._text, name.end()) if name else None
        if name is None or defines is None:
            return None
        if not peek:
            self._at = defines.end()
            self._skip()
        return name[0]

    def _choice(self) -> ex.Expression:
        parts = [self._sequence()]
        while self._text.startswith("|", self._at):
            self._at += 1
            self._skip()
            parts.append(self._sequence())
        return ex.choice(parts)

    def _sequence(self) -> ex.Expression:
        parts: list[ex.Expression] = []
        while True:
            part = self._repeated()
            if part is None:
                return ex.sequence(parts)
            parts.append(part)

    def _repeated(self) -> ex.Expression | None:
        part = self._atom()
        if part is None:
            return None
        self._skip()
        marks = 0
        while self._at < len(self._text) and (mark := self._text[self._at]) in "*+?{":
            start = self._at
            low, high = _REPEATS[mark] if mark != "{" else self._counts()
            if mark != "{":
                self._at += 1
            if high is not None and low > high:
                self._fail(f"at least {low} and at most {high} times is never", start)
            if low > _MOST_REPEATS:
                self._fail(f"{shown(str(low))} repeats are more than any output holds", start)
            self._count_nodes(1)
            high = None if high is not None and high > _MOST_REPEATS else high
            marks += 1
            if marks > _MOST_MARKS:
                self._fail(f"more than {_MOST_MARKS} repeats of one part", start)
            part = ex.repeat(part, low, high)
            self._skip()
        return part

    def _counts(self) -> tuple[int, int | None]:
        found = _COUNT.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            self._fail("a repeat is written {m}, {m,} or {m,n}")
        if max(len(found[1]), len(found[3] or "")) > 20:
            self._fail("a count of more than 20 digits")
        self._at = found.end()
        low = int(found[1] or 0)
        if not found[2]:
            return low, low
        return low, int(found[3]) if found[3] else None

    def _atom(self) -> ex.Expression | None:
        mark = self._text[self._at : self._at + 1]
        if mark == '"':
            value = self._literal()
            self._count_nodes(len(value))
            return ex.text(value)
        self._count_nodes(1)
        if mark == "[":
            return self._class()
        if mark == ".":
            self._at += 1
            return ex.Characters(ex.normalized([], negated=True))
        if mark == "(":
            return self._group()
        name = _NAME.match(self._text, self._at)
        if name is None or self._rule_name(peek=True) is not None:
            return None
        self._uses.setdefault(name[0], self._at)
        self._at = name.end()
        return ex.Name(name[0])

    def _group(self) -> ex.Expression:
        start = self._at
        self._depth += 1
        if self._depth > self._limits.depth:
            self._fail(f"groups nested deeper than {self._limits.depth} levels")
        self._at += 1
        self._skip()
        inner = self._choice()
        if not self._text.startswith(")", self._at):
            self._fail("this '(' has no ')'", start)
        self._at += 1
        self._depth -= 1
        return inner

    def _literal(self) -> str:
        start = self._at
        self._at += 1
        out: list[str] = []
        while (character := self._character(start, "literal")) is not None:
            out.append(chr(character))
        self._at += 1
        return "".join(out)

    def _class(self) -> ex.Expression:
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (low := self._character(start, "class")) is not None:
            high = low
            if self._text.startswith("-", self._at) and self._text[self._at + 1 :][:1] != "]":
                self._at += 1
                upper = self._character(start, "class")
                if upper is None or upper < low:
                    self._fail("a range must go from a lower to a higher character", start)
                high = upper
            ranges.append((low, high))
            self._count_nodes(1)
        self._at += 1
        known = ex.normalized(ranges, negated=negated)
        if not known:
            self._fail("this class has no character", start)
        return ex.Characters(known)

    def _character(self, start: int, what: str) -> int | None:
        """The next code point of a literal or class; None at its end."""
        character = self._text[self._at : self._at + 1]
        if character in ("", "\n", "\r"):
            self._fail(f"this {what} does not end on its line", start)
        if character == ('"' if what == "literal" else "]"):
            return None
        self._at += 1
        if character != "\\":
            if 0xD800 <= ord(character) <= 0xDFFF:
                self._fail("a lone surrogate is no character", self._at - 1)
            return ord(character)
        found = _HEX.match(self._text, self._at)
        if found is not None:
            value = int(found[1] or found[2] or found[3], 16)
            if value > ex.LAST_CHARACTER or 0xD800 <= value <= 0xDFFF:
                self._fail(f"\\{found[0]} is no character", self._at - 1)
            self._at = found.end()
            return value
        escaped = self._text[self._at : self._at + 1]
        if not escaped or (escaped not in _ESCAPES and escaped not in _LITERAL_ESCAPES):
            self._fail(f"unknown escape \\{escaped}; write \\\\ for a backslash", self._at - 1)
        self._at += 1
        return ord(_ESCAPES.get(escaped, escaped))

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None, "the pattern matches nothing as well"
        self._at = blank.end()

    def _count_nodes(self, count: int) -> None:
        self._nodes += count
        if self._nodes > self._limits.expression_nodes:
            self._fail(f"more than {self._limits.expression_nodes} parts")

    def _fail(self, reason: str, offset: int | None = None) -> NoReturn:
        place = line_and_column(self._text, self._at if offset is None else offset)
        raise refused(KIND, reason, place)

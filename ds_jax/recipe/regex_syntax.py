"""Whether text is a regular expression, as JSON Schema's `pattern` takes them.

Decides syntax only: groups, classes, escapes, repeats, back references and a bound on the size when
repeats are written out. Never matches anything, and takes any well-formed name of a Unicode
property for one that exists. In: text. Out: yes or no. Linear in the length of the text.

The dialect is ECMAScript's with look-around, inline flags (`(?i)`), possessive repeats (`a*+`) and
`\\A`, `\\z`, without atomic groups, named references, conditions and comments.
"""

from __future__ import annotations

import dataclasses
import re

MAX_DEPTH = 63
"""Deepest nesting of groups."""

_MAX_COST = 10 * 2**20
"""Bound on the estimated size in bytes; a{327673} is just below it."""

_REPEAT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_GROUP = re.compile(
    r"\(\?(?:(?P<look><?[=!])|P?<(?P<name>[^\W\d][\w.\[\]]*)>|(?P<flags>[a-zA-Z-]*)(?P<end>[:)]))"
)
_NUMBER = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xuU]\{[0-9a-fA-F]+\}")
_PROPERTY = re.compile(
    r"[pP](?:[A-Z]|\{\s*\^?[A-Za-z][\w ]*(?:(?:!?=|:)\s*[A-Za-z]\w*\s*)?\})", re.A
)
_BOUNDARY = re.compile(r"b\{(?:start|end|start-half|end-half)\}")
_DIGITS = re.compile(r"[0-9]{1,9}")
_CONTROL = re.compile(r"c[A-Za-z]")
_FLAGS = frozenset("imsUuxR")
_SETS = frozenset("dDwWsS")
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_LITERAL_COST = 32
_SET_COST = 72
_ANY_COST = 1000


class _Invalid(Exception):
    """The text is no regular expression."""


def is_regex(text: str) -> bool:
    """Whether `text` is a regular expression."""
    try:
        _Checker(text).check()
    except _Invalid:
        return False
    return True


@dataclasses.dataclass(slots=True)
class _Level:
    """What was read inside one group."""

    look: bool
    cost: int = 0
    atom: int | None = None  # cost of what a repeat would repeat


class _Checker:
    """Reads one expression. Mutates itself."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._levels = [_Level(False)]
        self._names: set[str] = set()
        self._groups = 0
        self._highest_reference = 0

    def check(self) -> None:
        """Reads the whole text; raises `_Invalid`."""
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "(":
                self._open()
            elif character == ")":
                self._close()
            elif character == "|":
                self._at += 1
                self._levels[-1].atom = None
            elif character in "*+?{":
                self._repeat()
            elif character == "[":
                self._atom(self._class())
            elif character == "\\":
                self._at += 1
                self._atom(self._escape())
            else:
                self._at += 1
                self._atom(_cost(character))
        if len(self._levels) > 1 or self._highest_reference > self._groups:
            raise _Invalid
        if self._levels[0].cost > _MAX_COST:
            raise _Invalid

    def _atom(self, cost: int) -> None:
        level = self._levels[-1]
        level.cost += cost
        level.atom = cost

    def _open(self) -> None:
        match = _GROUP.match(self._text, self._at)
        if match is None:
            if self._text.startswith("(?", self._at):
                raise _Invalid
            self._groups += 1
            self._at += 1
            self._levels.append(_Level(False))
        else:
            self._at = match.end()
            name, flags = match["name"], match["flags"]
            if name is not None:
                if name in self._names:
                    raise _Invalid
                self._names.add(name)
                self._groups += 1
            if flags is not None:
                _check_flags(flags, match["end"] == ")")
                if match["end"] == ")":
                    self._levels[-1].atom = None
                    return
            self._levels.append(_Level(match["look"] is not None))
        if len(self._levels) > MAX_DEPTH + 1:
            raise _Invalid

    def _close(self) -> None:
        if len(self._levels) == 1:
            raise _Invalid
        inner = self._levels.pop()
        self._at += 1
        self._atom(inner.cost)
        if inner.look:
            self._levels[-1].atom = None

    def _repeat(self) -> None:
        """Reads a repeat, what makes it lazy or possessive, and counts that follow it."""
        level = self._levels[-1]
        brace = self._text[self._at] == "{"
        if brace and self._brace_is_text(level.atom is None):
            self._at += 1
            self._atom(_LITERAL_COST)
            return
        if level.atom is None:
            raise _Invalid
        times, optional = self._count()
        self._at += self._text.startswith(("?", "+"), self._at)
        while self._text.startswith("{", self._at) and not self._brace_is_text(False):
            more, _ = self._count()
            times *= more
            self._at += self._text.startswith("?", self._at)
        each = level.atom + (40 if optional else 0)
        level.cost += each * max(times, 1) - level.atom
        level.atom = None
        if level.cost > _MAX_COST:
            raise _Invalid

    def _brace_is_text(self, alone: bool) -> bool:
        """Whether an opening brace is a character: inside look-around, if it can be no repeat."""
        if not any(level.look for level in self._levels):
            return False
        return alone or _REPEAT.match(self._text, self._at) is None

    def _count(self) -> tuple[int, bool]:
        """How often at most (copies to write out) and whether some of them may be missing."""
        if self._text[self._at] != "{":
            self._at += 1
            return 1, True
        match = _REPEAT.match(self._text, self._at)
        if match is None or len(match[1]) > 10 or len(match[3] or "") > 10:
            raise _Invalid
        self._at = match.end()
        low = int(match[1])
        if match[2] is None:
            return low, False
        if not match[3]:
            return low, True
        high = int(match[3])
        if high < low:
            raise _Invalid
        return high, high > low

    def _escape(self) -> int:
        """Reads what follows a backslash outside a class; its cost."""
        text = self._text
        match = _BOUNDARY.match(text, self._at)
        if match is not None:
            self._at = match.end()
            return _LITERAL_COST
        character = text[self._at : self._at + 1]
        if character and character in "bBAz":
            self._at += 1
            return _LITERAL_COST
        if "1" <= character <= "9" or character == "0":
            digits = _DIGITS.match(text, self._at)
            assert digits is not None, "a digit was seen"
            self._at = digits.end()
            if int(digits[0]) == 0:
                raise _Invalid
            self._highest_reference = max(self._highest_reference, int(digits[0]))
            return _LITERAL_COST
        found = self._common_escape()
        return _SET_COST if found is None else _cost(found)

    def _common_escape(self) -> str | None:
        """Reads an escape that classes have too: the character, or None for a set."""
        text = self._text
        character = text[self._at : self._at + 1]
        if character in _SETS and character:
            self._at += 1
            return None
        match = _PROPERTY.match(text, self._at)
        if match is not None:
            self._at = match.end()
            return None
        match = _NUMBER.match(text, self._at)
        if match is not None:
            self._at = match.end()
            digits = match[0][1:].strip("{}").lstrip("0") or "0"
            if len(digits) > 6 or 0xD800 <= int(digits, 16) < 0xE000 or int(digits, 16) > 0x10FFFF:
                raise _Invalid
            return chr(int(digits, 16))
        match = _CONTROL.match(text, self._at)
        if match is not None:
            self._at = match.end()
            return chr(ord(match[0][1]) % 32)
        self._at += 1
        if character in _CHARACTERS:
            return _CHARACTERS[character]
        if not character or character.isalnum() or not character.isascii():
            raise _Invalid
        return character

    def _class(self) -> int:
        """Reads a class in brackets; its cost."""
        text = self._text
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        items = 0
        while self._at < len(text):
            if text[self._at] == "]" and items:
                self._at += 1
                return _ANY_COST if negated else _SET_COST + 8 * (items - 1)
            self._range()
            items += 1
        raise _Invalid

    def _range(self) -> None:
        """Reads one member of a class: a character, a set, or a range."""
        text = self._text
        low = self._member()
        if not text.startswith("-", self._at) or text[self._at + 1 : self._at + 2] in ("", "]"):
            return
        self._at += 1
        high = self._member()
        if low is None or high is None or low > high:
            raise _Invalid

    def _member(self) -> str | None:
        character = self._text[self._at : self._at + 1]
        self._at += 1
        if character != "\\":
            if not character:
                raise _Invalid
            return character
        if self._text.startswith("a", self._at):
            self._at += 1
            return "\a"
        return self._common_escape()


def _check_flags(flags: str, alone: bool) -> None:
    """Refuses unknown, repeated and dangling flags; `alone`: they are not followed by a group."""
    on, minus, off = flags.partition("-")
    letters = on + off
    if (minus and not off) or "-" in off or (alone and not letters):
        raise _Invalid
    if not _FLAGS.issuperset(letters) or len(set(letters)) < len(letters):
        raise _Invalid


def _cost(character: str) -> int:
    return (
        _ANY_COST if character == "." else _LITERAL_COST * len(character.encode("utf-8", "replace"))
    )

"""Where and why text is not JSON.

Decides the wording and the position (line and byte column, both as the deepseek-recipe library
counts them) of the first error in a text. Never builds a value. In: bytes that were refused.
Out: a sentence such as `trailing comma at line 1 column 8`. Linear in the length of the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

_MAX_DEPTH = 128
_SPACE = re.compile(rb"[ \t\n\r]*+")
# The longest beginning of a string's inside that has no error (its UTF-8 is checked apart).
_INSIDE = (
    rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb'[^"\\\x00-\x1f]*+)*+'
)
_PLAIN = re.compile(_INSIDE)
# Elements and members that surely have no error, each with the comma after it: skipped at once.
_BLANKS = rb"[ \t\n\r]*+"
_ASCII = rb'"(?:[^"\\\x00-\x1f\x80-\xff]|\\["\\/bfnrt])*+"'
_SURE = rb"(?:-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?|true|false|null|" + _ASCII + rb")"
_ELEMENTS = re.compile(rb"(?:" + _BLANKS + _SURE + _BLANKS + rb",)*+")
_MEMBERS = re.compile(
    rb"(?:" + _BLANKS + _ASCII + _BLANKS + rb":" + _BLANKS + _SURE + _BLANKS + rb",)*+"
)
_DIGITS = re.compile(rb"[0-9]*+")
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_WORDS = {ord("n"): b"null", ord("t"): b"true", ord("f"): b"false"}


class _Found(Exception):
    """The first error: what it is, and after how many bytes."""


def first_error(data: bytes) -> str:
    """The first error of a text, with its position.

    Args:
      data: the text in UTF-8, or any bytes.

    Returns:
      `WHAT at line L column C`; `invalid JSON` when the text has no error after all.
    """
    try:
        _Scanner(data).scan()
    except _Found as found:
        what, end = found.args
        end = min(end, len(data))
        start = data.rfind(b"\n", 0, end) + 1
        line = data.count(b"\n", 0, start) + 1
        return f"{what} at line {line} column {end - start}"
    return "invalid JSON"


class _Scanner:
    """Reads one JSON text and raises `_Found` at its first error. Mutates itself."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def scan(self) -> None:
        """Reads one value and the blanks after it."""
        containers: list[Callable[[bool], bool]] = []
        self._value(containers)
        while containers:
            if containers[-1](False):
                self._value(containers)
            else:
                containers.pop()
        if self._peek() is not None:
            raise self._next("trailing characters")

    def _peek(self) -> int | None:
        """Skips blanks; the byte after them."""
        match = _SPACE.match(self._data, self._at)
        assert match is not None, "the pattern matches every text"
        self._at = match.end()
        return self._here()

    def _here(self) -> int | None:
        return self._data[self._at] if self._at < len(self._data) else None

    def _next(self, what: str) -> _Found:
        """An error that counts the byte which was looked at."""
        return _Found(what, self._at + 1)

    def _done(self, what: str) -> _Found:
        """An error that counts the bytes which were used up."""
        return _Found(what, self._at)

    def _value(self, containers: list[Callable[[bool], bool]]) -> None:
        """Reads a scalar, or opens containers until a scalar or an empty container was read."""
        while True:
            byte = self._peek()
            if byte is None:
                raise self._next("EOF while parsing a value")
            if byte in b"[{":
                if len(containers) + 1 == _MAX_DEPTH:
                    raise self._next("recursion limit exceeded")
                self._at += 1
                step = self._array_step if byte == ord("[") else self._object_step
                if not step(True):
                    return
                containers.append(step)
                continue
            self._scalar(byte)
            return

    def _scalar(self, byte: int) -> None:
        if byte in _WORDS:
            for expected in _WORDS[byte]:
                found = self._here()
                if found is None:
                    raise self._done("EOF while parsing a value")
                self._at += 1
                if found != expected:
                    raise self._done("expected ident")
        elif byte == ord('"'):
            self._at += 1
            self._string()
        elif byte == ord("-") or byte in b"0123456789":
            self._number()
        else:
            raise self._next("expected value")

    def _array_step(self, first: bool) -> bool:
        """Reads what stands before an element; False after the closing bracket."""
        return self._separator(first, "]", "a list", _ELEMENTS)

    def _object_step(self, first: bool) -> bool:
        """Reads what stands before a value, its key included; False after the closing brace."""
        if not self._separator(first, "}", "an object", _MEMBERS):
            return False
        if self._peek() != ord('"'):
            raise self._next("key must be a string")
        self._at += 1
        self._string()
        byte = self._peek()
        if byte is None:
            raise self._next("EOF while parsing an object")
        if byte != ord(":"):
            raise self._next("expected `:`")
        self._at += 1
        return True

    def _separator(self, first: bool, close: str, name: str, run: re.Pattern[bytes]) -> bool:
        """Reads a comma (none before the first) and all that `run` can skip; False at `close`."""
        byte = self._peek()
        if byte is None:
            raise self._next(f"EOF while parsing {name}")
        if byte == ord(close):
            self._at += 1
            return False
        if not first:
            if byte != ord(","):
                raise self._next(f"expected `,` or `{close}`")
            self._at += 1
        match = run.match(self._data, self._at)
        assert match is not None, "the pattern matches every text"
        self._at = match.end()
        if not first or match[0]:
            byte = self._peek()
            if byte is None:
                raise self._next("EOF while parsing a value")
            if byte == ord(close):
                raise self._next("trailing comma")
        return True

    def _string(self) -> None:
        """Reads the rest of a string after its opening quote."""
        start = self._at
        while True:
            match = _PLAIN.match(self._data, self._at)
            assert match is not None, "the pattern matches every text"
            self._at = match.end()
            byte = self._here()
            if byte is None:
                raise self._done("EOF while parsing a string")
            self._at += 1
            if byte == ord('"'):
                break
            if byte != ord("\\"):
                raise self._done("control character (\\u0000-\\u001F) found while parsing a string")
            self._escape()
        try:
            self._data[start : self._at].decode("utf-8")
        except UnicodeDecodeError:
            raise self._done("invalid unicode code point") from None

    def _escape(self) -> None:
        byte = self._string_byte()
        self._at += 1
        if byte != ord("u"):
            if byte not in b'"\\/bfnrt':
                raise self._done("invalid escape")
            return
        lead = self._hex()
        if 0xDC00 <= lead <= 0xDFFF:
            raise self._done("lone leading surrogate in hex escape")
        if 0xD800 <= lead <= 0xDBFF:
            for expected in b"\\u":
                found = self._string_byte()
                self._at += 1
                if found != expected:
                    raise self._done("unexpected end of hex escape")
            if not 0xDC00 <= self._hex() <= 0xDFFF:
                raise self._done("lone leading surrogate in hex escape")

    def _string_byte(self) -> int:
        byte = self._here()
        if byte is None:
            raise self._done("EOF while parsing a string")
        return byte

    def _hex(self) -> int:
        digits = self._data[self._at : self._at + 4]
        self._at = min(self._at + 4, len(self._data))
        if len(digits) < 4:
            raise self._done("EOF while parsing a string")
        if _HEX.fullmatch(digits) is None:
            raise self._done("invalid escape")
        return int(digits, 16)

    def _number(self) -> None:
        start = self._at
        if self._here() == ord("-"):
            self._at += 1
        byte = self._here()
        if byte is None:
            raise self._done("EOF while parsing a value")
        self._at += 1
        if byte == ord("0"):
            byte = self._here()
            if byte is not None and byte in b"0123456789":
                raise self._next("invalid number")
        elif byte in b"123456789":
            self._digits()
        else:
            raise self._done("invalid number")
        if self._here() == ord("."):
            self._at += 1
            if not self._digits():
                found = self._here() is not None
                raise self._next("invalid number" if found else "EOF while parsing a value")
        if self._here() in (ord("e"), ord("E")):
            self._exponent(start)
        if math.isinf(float(self._data[start : self._at])):
            raise self._done("number out of range")

    def _exponent(self, start: int) -> None:
        zero = not self._data[start : self._at].strip(b"-0.")
        self._at += 1
        negative = self._here() == ord("-")
        if negative or self._here() == ord("+"):
            self._at += 1
        byte = self._here()
        if byte is None:
            raise self._done("EOF while parsing a value")
        if byte not in b"0123456789":
            self._at += 1
            raise self._done("invalid number")
        first = self._at
        self._digits()
        value = 0
        for index, digit in enumerate(self._data[first : self._at]):
            value = value * 10 + digit - ord("0")
            if value > 2**31 - 1:
                if not zero and not negative:
                    self._at = first + index + 1
                    raise self._done("number out of range")
                return

    def _digits(self) -> bool:
        match = _DIGITS.match(self._data, self._at)
        assert match is not None, "the pattern matches every text"
        found = match.end() > self._at
        self._at = match.end()
        return found

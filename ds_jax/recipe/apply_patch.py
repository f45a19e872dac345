"""The input of a custom tool, decoded while its arguments still arrive.

Decides which part of the arguments `{"input": "..."}` is the tool's input and undoes the JSON
escapes in it. Never fails: what is no such object is passed on as it is. In: pieces of JSON text.
Out: pieces of plain text.
"""

from __future__ import annotations

import re

# Before each of these, blanks may stand.
_OPENING = ("{", '"input"', ":", '"')
_BLANKS = " \t\n\f\r"
# Text up to the closing quote or to an escape that needs more care.
_PLAIN = re.compile(r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*+')
_ESCAPE = re.compile(r"\\(?:u(....)|(.))")
_SIMPLE = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HEX = frozenset("0123456789abcdefABCDEF")


class InputDecoder:
    """Reads arguments piece by piece; the time is linear in their length.

    An escape cut in two waits for its other half. An escape that means nothing (or half a surrogate
    pair) is passed on as it was written, with the character that showed the fault; reading goes on
    behind it. After the closing quote everything is ignored.
    """

    __slots__ = ("_held", "_matched", "_raw", "_step", "_stopped")

    def __init__(self) -> None:
        self._step: int = 0
        self._matched = 0
        self._raw = False
        self._stopped = False
        # The opening as far as it was read, later the escape that is not complete yet.
        self._held: list[str] = []

    def add(self, piece: str) -> str:
        """The plain text that `piece` completes; maybe empty. Mutates the decoder."""
        if self._raw:
            return piece
        if self._stopped:
            return ""
        start = 0
        if self._step < len(_OPENING):
            start = self._open(piece)
            if self._raw:
                self._held.append(piece)
                return self.rest()
            if self._step < len(_OPENING):
                self._held.append(piece)
                return ""
            self._held.clear()
        return self._decode(piece, start)

    def rest(self) -> str:
        """What is still held, as it was written. Mutates the decoder."""
        held = "".join(self._held)
        self._held.clear()
        return held

    def _open(self, piece: str) -> int:
        """Matches the opening further; returns where it ends. Mutates the decoder."""
        for position, character in enumerate(piece):
            expected = _OPENING[self._step]
            if self._matched == 0 and character in _BLANKS:
                continue
            if character != expected[self._matched]:
                self._raw = True
                return position
            self._matched += 1
            if self._matched == len(expected):
                self._matched = 0
                self._step += 1
                if self._step == len(_OPENING):
                    return position + 1
        return len(piece)

    def _decode(self, piece: str, start: int) -> str:
        """Decodes string contents up to the closing quote. Mutates the decoder."""
        parts: list[str] = []
        position = start
        while position < len(piece):
            if self._held:
                parts.append(self._escape(piece[position]))
                position += 1
                continue
            plain = _PLAIN.match(piece, position)
            assert plain is not None, "an empty text always matches"
            text, position = plain[0], plain.end()
            parts.append(_ESCAPE.sub(_unescaped, text) if "\\" in text else text)
            if position < len(piece):
                self._stopped = piece[position] == '"'
                if self._stopped:
                    break
                self._held.append("\\")
                position += 1
        return "".join(parts)

    def _escape(self, character: str) -> str:
        """One more character of an escape; returns text when it ends. Mutates the decoder."""
        held = self._held
        held.append(character)
        length = len(held)
        if length == 2:
            if character == "u":
                return ""
            written = self.rest()
            return _SIMPLE.get(character, written)
        if length == 7 or length == 8:
            return "" if character == "\\u"[length - 7] else self.rest()
        if character not in _HEX:
            return self.rest()
        if length == 6:
            first = int("".join(held[2:6]), 16)
            if 0xD800 <= first < 0xDC00:
                return ""
            written = self.rest()
            return written if 0xDC00 <= first < 0xE000 else chr(first)
        if length == 12:
            first, second = int("".join(held[2:6]), 16), int("".join(held[8:12]), 16)
            written = self.rest()
            if 0xDC00 <= second < 0xE000:
                return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            return written
        return ""


def _unescaped(match: re.Match[str]) -> str:
    return _SIMPLE[match[2]] if match[1] is None else chr(int(match[1], 16))

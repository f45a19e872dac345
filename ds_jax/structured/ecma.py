"""Regular expressions of JSON Schema, which follow ECMAScript, for the library, which does not.

Decides where the two dialects differ: what `.`, `\\s` and `\\S` match, and what stands for itself
inside a class. Never matches. In: an expression. Out: one of the same meaning, or a `RequestError`.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ds_jax.structured import regex
from ds_jax.structured.refusal import refused

_SPACES = (
    r"\t\n\x0B\x0C\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
    r"\x{FEFF}"
)
_OTHERS = (
    r"\x00-\x08\x0E-\x1F!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}"
    r"\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}"
)
_NO_LINE_END = r"[^\n\r\x{2028}\x{2029}]"
_TOKEN = re.compile(r"\\.|.", re.DOTALL)


def translated(pattern: str, kind: str, place: str) -> str:
    """The expression in the library's dialect.

    Raises:
      RequestError: not an expression, or one that the dialects read differently.
    """
    regex.check(pattern, kind, place)
    out: list[str] = []
    in_class = False
    tokens = _TOKEN.findall(pattern)
    for index, token in enumerate(tokens):
        after = tokens[index + 1] if index + 1 < len(tokens) else ""
        if in_class:
            if token == "-" and after == "-":
                _refuse("`--` inside a class", kind, place)
            in_class = token != "]"
            out.append(_IN_CLASS.get(token, token))
        elif token == "[":
            if after == "]" or (after == "^" and tokens[index + 2 : index + 3] == ["]"]):
                _refuse("an empty class", kind, place)
            in_class = True
            out.append(token)
        elif token == "{" and after == ",":
            _refuse("a repeat without its least count", kind, place)
        else:
            out.append(_OUTSIDE.get(token, token))
    return "".join(out)


_IN_CLASS = {"[": r"\[", "&": r"\&", "~": r"\~", r"\s": _SPACES, r"\S": _OTHERS}
_OUTSIDE = {".": _NO_LINE_END, r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]"}


def _refuse(what: str, kind: str, place: str) -> NoReturn:
    raise refused(kind, f"{what} cannot be enforced; spell it out", place)

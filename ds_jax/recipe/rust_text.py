"""How the deepseek-recipe library spells values inside its messages.

Decides the wording of a JSON value in an error. Never raises. In: a JSON value. Out: text.
"""

from __future__ import annotations

import unicodedata

from ds_jax.recipe import json_text

_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\0": "\\0",
}


def describe(value: object) -> str:
    """A JSON value by type, with scalars spelled out: `integer \\`5\\``, `string "x"`, `map`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{'true' if value else 'false'}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{json_text.dumps_compact(value)}`"
    if isinstance(value, str):
        return f"string {quoted(value)}"
    return "sequence" if isinstance(value, list) else "map"


def quoted(text: str) -> str:
    """Text in double quotes; unprintable and combining characters become `\\u{hex}`."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    short = _SHORT.get(character)
    if short is not None:
        return short
    if character.isprintable() and unicodedata.category(character) not in ("Mn", "Me"):
        return character
    return f"\\u{{{ord(character):x}}}"

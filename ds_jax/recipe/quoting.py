"""Text in double quotes, as error texts and `repr` show it.

Decides which characters are escaped: control and invisible characters, combining marks, quotes and
backslashes. Never writes JSON (json_text does). In: any text. Out: quoted text on one line.
"""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = {"\0": r"\0", "\t": r"\t", "\n": r"\n", "\r": r"\r", '"': r"\"", "\\": r"\\"}
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
# Visible spacing marks that join the character before them (Other_Grapheme_Extend).
_JOINING = frozenset(
    map(
        chr,
        [
            *(0x9BE, 0x9D7, 0xB3E, 0xB57, 0xBBE, 0xBD7, 0xCC0, 0xCC2, 0xCC7, 0xCC8, 0xCCA, 0xCCB),
            *(0xCD5, 0xCD6, 0xD3E, 0xD57, 0xDCF, 0xDDF, 0x1715, 0x1734, 0x1B35, 0x1B3B, 0x1B3D),
            *(0x1B43, 0x1B44, 0x1BAA, 0x1BF2, 0x1BF3, 0x302E, 0x302F, 0xA953, 0xA9C0, 0xFF9E),
            *(0xFF9F, 0x111C0, 0x11235, 0x1133E, 0x1134D, 0x11357, 0x114B0, 0x114BD, 0x115AF),
            *(0x116B6, 0x11930, 0x1193D, 0x16FF0, 0x16FF1, 0x1D165, 0x1D166),
            *range(0x1D16D, 0x1D173),
        ],
    )
)


def quoted(text: str) -> str:
    """`text` in double quotes; characters that cannot be seen become `\\u{...}`.

    Args:
      text: any text without lone surrogates.

    Returns:
      The spelling Rust's debug format gives the same text.
    """
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    hidden = not character.isprintable() or character in _JOINING
    if hidden or unicodedata.category(character) in ("Mn", "Me"):
        return f"\\u{{{ord(character):x}}}"
    return character

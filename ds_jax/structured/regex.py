"""Regular expressions that a whole output has to match.

Decides which texts are refused before the library sees them, and how its own refusals read. Never
matches. In: text. Out: nothing, or a `RequestError` with the place.

The syntax is that of Rust's regex crate: groups, classes, `\\p{..}`, lazy repeats, inline flags;
no look-around, no back references, no word boundaries. `.` does not match a newline.
"""

from __future__ import annotations

import re

from ds_jax.structured.refusal import refused

_LAST_BACKSLASHES = re.compile(r"\\*\Z")
_REASON = re.compile(r"error: (.*)")


def check(text: str, kind: str = "regex", place: str = "") -> None:
    """Refuses an unfinished escape, which the library would take.

    Raises:
      RequestError: with the character at which it is wrong.
    """
    last = _LAST_BACKSLASHES.search(text)
    assert last is not None, "the pattern matches nothing as well"
    if len(last[0]) % 2:
        raise refused(
            kind,
            f"no regular expression: a backslash at its end (character {len(text) - 1}); "
            "write \\\\ for a backslash",
            place,
        )


def reason(message: str) -> str:
    """The library's several lines about a broken expression as one."""
    found = _REASON.search(message)
    if "regex parse error" not in message or found is None:
        return " ".join(message.split())
    caret = re.search(r"^( *)\^", message, re.MULTILINE)
    at = f" at character {len(caret[1]) - 4}" if caret else ""  # it indents by 4
    return f"no regular expression: {found[1]}{at}; correct the pattern"

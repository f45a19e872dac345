"""Why a grammar was refused, and where.

Decides how such a refusal reads. In: what is wrong and its place. Out: a `RequestError`.
"""

from __future__ import annotations

from ds_jax import errors

_SHOWN_CHARACTERS = 200


def refused(kind: str, reason: str, place: str = "") -> errors.RequestError:
    """An error of status 400 that a caller can act on.

    Args:
      kind: the kind of grammar, such as `json_schema`.
      reason: what is wrong, what is allowed, what to do.
      place: a JSON pointer, or line and column; empty: the whole text.
    """
    at = f" at {shown(place)}" if place else ""
    return errors.RequestError(f"{kind}{at}: {reason}", param=kind, code="invalid_grammar")


def shown(text: str) -> str:
    """A caller's text, cut to a length that fits a message."""
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 3]}..."


def line_and_column(text: str, offset: int) -> str:
    """The place of a character, both numbers from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - (text.rfind(chr(10), 0, offset) + 1) + 1}"

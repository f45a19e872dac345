"""Marks of places in images inside the assistant's own text.

Decides which parts of what the assistant wrote are control tokens again in the next prompt: the
tokens around referred objects, boxes, points and polygons, and no others. Never looks at text of any
other role. In: text and spellings. Out: text and control tokens in order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_jax.recipe.special_tokens import SpecialTokens


def spellings(tokens: SpecialTokens) -> tuple[str, ...]:
    """The spellings to look for; none when one of them is empty."""
    found = (
        *(tokens.ref, tokens.ref_end, tokens.box, tokens.box_end),
        *(tokens.point, tokens.point_end, tokens.polygon, tokens.polygon_end),
    )
    return found if all(found) else ()


def cut(text: str, tokens: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Cuts text at the tokens.

    Among overlapping tokens the one that ends first counts, of those that end together the longest.

    Args:
      text: what the assistant wrote.
      tokens: spellings; none may be empty.

    Returns:
      (text, is a control token) in order; joined they are `text`.

    *Complexity*: linear in the text, for a fixed number of tokens.
    """
    at = 0
    starts = {token: start for token in tokens if (start := text.find(token)) >= 0}
    while starts:
        token = min(starts, key=lambda one: (starts[one] + len(one), -len(one)))
        start = starts[token]
        yield text[at:start], False
        yield token, True
        at = start + len(token)
        for other in [one for one, start in starts.items() if start < at]:
            start = text.find(other, at)
            if start >= 0:
                starts[other] = start
            else:
                del starts[other]
    yield text[at:], False

"""Marks of places in images inside the assistant's own text.

Decides which parts of what the assistant wrote are control tokens again in the next prompt: the
tokens around referred objects, boxes, points and polygons, and no others. Never looks at text of
any other role. In: text and spellings. Out: text and control tokens in turn.
"""

from __future__ import annotations

import functools
import itertools

from ds_jax.recipe.special_tokens import SpecialTokens


@functools.lru_cache(8)
def _common(spellings: tuple[str, ...]) -> str:
    """How all of them begin."""
    letters = zip(min(spellings), max(spellings), strict=False)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], letters)
    return "".join(letter for letter, _ in same)


class Marks:
    """The spellings to look for; none when one of them is empty.

    Args:
      tokens: spelling of every control token.
    """

    __slots__ = ("_spellings",)

    def __init__(self, tokens: SpecialTokens):
        spellings = (
            *(tokens.ref, tokens.ref_end, tokens.box, tokens.box_end),
            *(tokens.point, tokens.point_end, tokens.polygon, tokens.polygon_end),
        )
        self._spellings = spellings if all(spellings) else ()

    def may_occur(self, text: str) -> bool:
        """Whether looking closer is worth while."""
        return bool(self._spellings) and _common(self._spellings) in text

    def cut(self, text: str) -> list[str]:
        """Cuts text at the marks.

        Among overlapping marks the one that ends first counts, of those that end together the
        longest.

        Args:
          text: what the assistant wrote.

        Returns:
          Text, mark, text, ..., text; joined they are `text`.

        *Complexity*: linear in the text.
        """
        parts: list[str] = []
        at = 0
        starts = {mark: start for mark in self._spellings if (start := text.find(mark)) >= 0}
        while starts:
            mark = min(starts, key=lambda one: (starts[one] + len(one), -len(one)))
            parts += [text[at : starts[mark]], mark]
            at = starts[mark] + len(mark)
            for other in [one for one, start in starts.items() if start < at]:
                start = text.find(other, at)
                if start >= 0:
                    starts[other] = start
                else:
                    del starts[other]
        return [*parts, text[at:]]

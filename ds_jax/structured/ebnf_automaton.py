"""A regular part of a grammar as an automaton over its characters.

Decides which characters can lengthen a word of one part into the beginning of a word of another.
Never compiles. In: regular expressions. Out: sets of characters as bits.

States are the places of an expression where a character stands (Glushkov); every place lies on the
way of some word, so whatever the automaton can read begins a word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ds_jax.structured import expression as ex


class Alphabet:
    """Cuts the characters into classes that a grammar never tells apart; a set is an integer.

    Args:
      characters: every set the grammar names.
    """

    def __init__(self, characters: Iterable[ex.Characters]):
        edges = {
            edge for each in characters for low, high in each.ranges for edge in (low, high + 1)
        }
        self._rank = {edge: rank for rank, edge in enumerate(sorted(edges))}

    def bits(self, characters: ex.Characters) -> int:
        """The classes of a set."""
        out = 0
        for low, high in characters.ranges:
            out |= (1 << self._rank[high + 1]) - (1 << self._rank[low])
        return out


def character_sets(value: ex.Expression) -> Iterator[ex.Characters]:
    """Every set of characters inside."""
    stack = [value]
    while stack:
        each = stack.pop()
        match each:
            case ex.Characters():
                yield each
            case ex.Sequence() | ex.Choice():
                stack.extend(each.parts)
            case ex.Repeat():
                stack.append(each.part)
            case ex.Name():
                pass


@dataclasses.dataclass(frozen=True, slots=True)
class Automaton:
    """Places numbered from 0; sets of places are integers.

    Attributes:
      labels: characters of each place.
      first: places at which a word can begin.
      last: places at which a word can end.
      follow: places behind each place.
    """

    labels: tuple[int, ...]
    first: int
    last: int
    follow: tuple[int, ...]

    def starts(self) -> int:
        """Characters at which a word can begin."""
        return self.union(self.first)

    def union(self, places: int) -> int:
        """The characters of some places."""
        out = 0
        for place in _members(places):
            out |= self.labels[place]
        return out


def automaton(value: ex.Expression, alphabet: Alphabet) -> Automaton:
    """The automaton of an expression without names; repeats are written out."""
    builder = _Builder(alphabet)
    _, first, last = builder.add(value)
    return Automaton(tuple(builder.labels), first, last, tuple(builder.follow))


class _Builder:
    """Numbers places. Mutates itself."""

    def __init__(self, alphabet: Alphabet):
        self._alphabet = alphabet
        self.labels: list[int] = []
        self.follow: list[int] = []

    def add(self, value: ex.Expression) -> tuple[bool, int, int]:
        """(matches the empty text, first places, last places)."""
        match value:
            case ex.Characters():
                place = 1 << len(self.labels)
                self.labels.append(self._alphabet.bits(value))
                self.follow.append(0)
                return False, place, place
            case ex.Sequence():
                return self._chain(iter(value.parts))
            case ex.Choice():
                empty, first, last = False, 0, 0
                for part in value.parts:
                    one_empty, one_first, one_last = self.add(part)
                    empty, first, last = empty or one_empty, first | one_first, last | one_last
                return empty, first, last
            case ex.Repeat():
                return self._repeat(value)
            case ex.Name():
                raise AssertionError("names are replaced before")

    def _chain(self, parts: Iterator[ex.Expression]) -> tuple[bool, int, int]:
        empty, first, last = True, 0, 0
        for part in parts:
            one_empty, one_first, one_last = self.add(part)
            self._link(last, one_first)
            first |= one_first if empty else 0
            last = one_last | (last if one_empty else 0)
            empty = empty and one_empty
        return empty, first, last

    def _repeat(self, value: ex.Repeat) -> tuple[bool, int, int]:
        empty, first, last = True, 0, 0
        copies = max(value.low, 1) if value.high is None else value.high
        for number in range(copies):
            one_empty, one_first, one_last = self.add(value.part)
            self._link(last, one_first)
            first |= one_first if empty else 0
            optional = one_empty or number >= value.low
            last = one_last | (last if optional else 0)
            empty = empty and optional
            if value.high is None and number == copies - 1:
                self._link(one_last, one_first)
        return empty, first, last

    def _link(self, before: int, after: int) -> None:
        for place in _members(before):
            self.follow[place] |= after


def extensions(one: Automaton, two: Automaton, budget: int) -> int | None:
    """Characters that lengthen a whole word of `one` into the beginning of a longer word of `two`.

    Returns:
      The characters; None if the search took more than `budget` pairs of places.
    """
    found = 0
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[int, int]] = []

    def meet(ones: int, twos: int) -> None:
        for left in _members(ones):
            label = one.labels[left]
            for right in _members(twos):
                if label & two.labels[right] and (left, right) not in seen:
                    seen.add((left, right))
                    waiting.append((left, right))

    meet(one.first, two.first)
    while waiting:
        if len(seen) > budget:
            return None
        left, right = waiting.pop()
        if one.last >> left & 1:
            found |= two.union(two.follow[right])
        meet(one.follow[left], two.follow[right])
    return found


def _members(places: int) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest

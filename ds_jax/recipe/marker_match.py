"""Finds the first of several patterns in a growing sequence of symbols.

Decides when a pattern is complete and which symbols at the end can still become one. Never acts on
a match and keeps no text. In: symbols, one after the other. Out: nodes that say what was found and
how much must be held back.

A symbol is a character together with where it came from. Each pattern is followed as Knuth, Morris
and Pratt do; the joint state of all patterns is a `Node`, and steps between nodes are remembered,
so that a symbol seen before costs one dictionary look-up.
"""

from __future__ import annotations

import array
import dataclasses
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

TEXT: Final = 1
"""A character of backend text."""
TOKEN: Final = 2
"""A character of ordinary tokens."""
CONTROL: Final = 4
"""A character of a control token's spelling."""
LITERAL: Final = TEXT | TOKEN
"""Where the literal parts of a pattern may come from."""
MARKER: Final = TEXT | CONTROL
"""Where a marker may come from: ordinary tokens that happen to spell it are plain text."""

_MAX_NODES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for.

    Args:
      symbols: the characters in order.
      kinds: for each, where it may come from, as bits.
      newlines: newlines directly before the symbols belong to the match.
      first_only: matches only as the first symbol of all; such a pattern has one symbol.
    """

    symbols: str
    kinds: bytes
    newlines: bool = False
    first_only: bool = False

    def accepts(self, place: int, kind: int, symbol: str) -> bool:
        """Whether the symbol at `place` may be this one."""
        return bool(self.kinds[place] & kind) and self.symbols[place] == symbol

    def borders(self) -> array.array[int]:
        """For each prefix: length of its longest proper suffix that is a prefix as well."""
        borders = array.array("L")
        border = 0
        for place in range(len(self.symbols)):
            if place:
                while border and not self._covers(border, place):
                    border = borders[border - 1]
                border += self._covers(border, place)
            borders.append(border)
        return borders

    def _covers(self, place: int, other: int) -> bool:
        same = self.symbols[place] == self.symbols[other]
        return same and not self.kinds[other] & ~self.kinds[place]


class Node:
    """The joint state of all patterns after some symbols.

    A pattern "runs" when newlines directly before its matched symbols belong to it; where they
    begin is known to the reader of the symbols, who notes it when a pattern is in `begins`.
    """

    __slots__ = ("begins", "found", "hold", "memory", "places", "runs")

    def __init__(
        self,
        places: tuple[int, ...],
        runs: tuple[int, ...],
        begins: tuple[int, ...],
        found: int | None,
    ) -> None:
        self.places = places
        """Matched symbols of each pattern; -1: it cannot match any more."""
        self.runs = runs
        """Patterns that run."""
        self.begins = begins
        """Patterns whose newlines begin with the symbol just read."""
        self.found = found
        """The pattern that is complete, else None."""
        self.hold = max(places, default=0)
        """How many symbols at the end must be held back, newlines of `runs` not counted."""
        self.memory: dict[int, dict[str, Node]] = {TEXT: {}, TOKEN: {}, CONTROL: {}}
        """Known steps from here: for each kind, the node after a symbol."""


_Key: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int | None]


class Matcher:
    """Follows several patterns at once. Shared by all streams; only its memory grows, to a bound.

    Args:
      patterns: the patterns; if two are complete at the same symbol the earlier one is found.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.lengths = tuple(len(pattern.symbols) for pattern in self.patterns)
        self._borders = [pattern.borders() for pattern in self.patterns]
        places = tuple(-1 if pattern.first_only else 0 for pattern in self.patterns)
        self.root = Node(places, (), (), None)
        """Nothing is held, and nothing was."""
        self.start = self.root
        """Before the first symbol."""
        if any(pattern.first_only for pattern in self.patterns):
            self.start = Node((0,) * len(self.patterns), (), (), None)
        self.trigger = re.compile(self._trigger())
        """Finds the next character that leads away from the root."""
        self._alphabet = {symbol for pattern in self.patterns for symbol in pattern.symbols}
        self._alphabet.add("\n")
        self._has_empty = 0 in self.lengths
        self._nodes: dict[_Key, Node] = {}
        self._forget()

    def step(self, node: Node, kind: int, symbol: str) -> Node:
        """The node after one more symbol.

        Args:
          node: a node that found nothing.
          kind: `TEXT`, `TOKEN` or `CONTROL`.
          symbol: a character.

        Mutates: the memory of steps.
        """
        if symbol not in self._alphabet and not self._has_empty:
            return self.root
        after = self._after(node, kind, symbol)
        node.memory[kind][symbol] = after
        return after

    def _after(self, node: Node, kind: int, symbol: str) -> Node:
        newline = symbol == "\n" and kind & LITERAL
        places: list[int] = []
        runs: list[int] = []
        begins: list[int] = []
        found = None
        for index, pattern in enumerate(self.patterns):
            place, running = node.places[index], index in node.runs
            if not place and newline and pattern.newlines:
                if not running:
                    begins.append(index)
                running = True
            else:
                place, kept = self._place_after(index, place, kind, symbol)
                running = running and kept
            if pattern.first_only and not place:
                place = -1
            places.append(place)
            if running:
                runs.append(index)
            if found is None and place == self.lengths[index]:
                found = index
        return self._node(tuple(places), tuple(runs), tuple(begins), found)

    def _place_after(self, index: int, place: int, kind: int, symbol: str) -> tuple[int, bool]:
        """Matched symbols of one pattern after one more, and whether the old ones still count.

        A newline that breaks off a match does not begin a run.
        """
        pattern, kept = self.patterns[index], True
        while place >= 0:
            if place < self.lengths[index] and pattern.accepts(place, kind, symbol):
                return place + 1, kept
            kept = False
            if not place:
                break
            place = self._borders[index][place - 1]
        return place, kept

    def _node(
        self,
        places: tuple[int, ...],
        runs: tuple[int, ...],
        begins: tuple[int, ...],
        found: int | None,
    ) -> Node:
        key = (places, runs, begins, found)
        node = self._nodes.get(key)
        if node is None:
            if len(self._nodes) >= _MAX_NODES:
                self._forget()
            node = self._nodes[key] = Node(places, runs, begins, found)
        return node

    def _forget(self) -> None:
        for node in (self.start, self.root):
            node.memory = {TEXT: {}, TOKEN: {}, CONTROL: {}}
        self._nodes = {(self.root.places, (), (), None): self.root}

    def _trigger(self) -> str:
        if 0 in self.lengths:
            return "(?s:.)"
        firsts = {pattern.symbols[0] for pattern in self.patterns if not pattern.first_only}
        if any(pattern.newlines for pattern in self.patterns):
            firsts.add("\n")
        return f"[{''.join(map(re.escape, sorted(firsts)))}]" if firsts else "(?!)"

"""The parts a context-free grammar is made of.

Decides nothing. In: parsed text. Out: frozen records that compare by content.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

LAST_CHARACTER = 0x10FFFF


@dataclasses.dataclass(frozen=True, slots=True)
class Characters:
    """One character of these ranges, both ends included; sorted, not overlapping, not empty."""

    ranges: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that follow each other; none: the empty text."""

    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A part `low` to `high` times; None: without end."""

    part: Expression
    low: int
    high: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """A rule."""

    name: str


Expression: TypeAlias = Characters | Sequence | Choice | Repeat | Name

EMPTY = Sequence(())


def sequence(parts: Iterable[Expression]) -> Expression:
    """Parts that follow each other, without empty ones and without a shell around a single one."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, Sequence) else [part]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(parts: Iterable[Expression]) -> Expression:
    """Each different alternative once; an empty one makes the others optional."""
    flat: dict[Expression, None] = {}
    for part in parts:
        flat |= dict.fromkeys(part.parts if isinstance(part, Choice) else [part])
    kept = [part for part in flat if part != EMPTY]
    inner = kept[0] if len(kept) == 1 else Choice(tuple(kept)) if kept else EMPTY
    return repeat(inner, 0, 1) if EMPTY in flat else inner


def repeat(part: Expression, low: int, high: int | None) -> Expression:
    """A repeated part, without shells that say nothing."""
    if part == EMPTY or high == 0:
        return EMPTY
    if (low, high) == (1, 1):
        return part
    if isinstance(part, Repeat) and all(
        one in (0, 1) and two in (1, None) for one, two in ((low, high), (part.low, part.high))
    ):
        high = 1 if high == part.high == 1 else None
        return Repeat(part.part, low * part.low, high)
    return Repeat(part, low, high)


def text(value: str) -> Expression:
    """A literal text."""
    return sequence(Characters(((ord(character), ord(character)),)) for character in value)


def normalized(ranges: list[tuple[int, int]], *, negated: bool) -> tuple[tuple[int, int], ...]:
    """Sorted ranges without overlap and without surrogates, which no text has."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    if negated:
        edges = [-1, *(edge for pair in merged for edge in pair), LAST_CHARACTER + 1]
        merged = [
            (low + 1, high - 1)
            for low, high in zip(edges[::2], edges[1::2], strict=True)
            if low + 1 <= high - 1
        ]
    kept: list[tuple[int, int]] = []
    for low, high in merged:
        kept += [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]
    return tuple((low, high) for low, high in kept if low <= high)

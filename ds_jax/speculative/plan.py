"""How many drafts a step verifies: the budget that gives most tokens per second.

Decides the budget K and, on the host, who gets its places. Never sees an array of the device, never
measures. In: survival rates of drafts, measured times of compiled steps. Out: K, lengths.

The rates that decide K are those of drafts two steps old, so K cannot know the values of the drafts
it is for: that keeps the output's law exact (docs/speculation.md). The survival of draft k is the
product of the confidences of drafts 1 to k. It never rises with k, so the K largest survivals of
all sequences are a prefix of each.

Time of a step of B rows: curve(g) + slope g + rest, with g the smallest compiled size >= B. The
slope stands for what the curve cannot know, the length of contexts; the rest is what does not
depend on K. Both are corrected at run time. Tokens are summed in float32, as in the reference.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

WINDOW = 5000  # steps whose forward times are kept
LEAST_STEPS = 10  # of a size, before it counts
RESTS, LEAST_RESTS = 9, 5  # newest times of the rest; of one number of sequences


@dataclasses.dataclass(frozen=True)
class Curve:
    """Milliseconds of compiled steps by their rows; an empty curve knows nothing."""

    rows: tuple[int, ...] = ()
    times_ms: tuple[float, ...] = ()

    @classmethod
    def of(cls, measured: Mapping[int, float]) -> Curve:
        """A curve through measured points."""
        rows = tuple(sorted(measured))
        return cls(rows, tuple(measured[r] for r in rows))

    def size(self, rows: int) -> int | None:
        """The smallest compiled size with room for so many rows; None: there is none."""
        at = bisect.bisect_left(self.rows, rows)
        return self.rows[at] if at < len(self.rows) else None

    def time_ms(self, size: int) -> float:
        """Time of a compiled size."""
        return self.times_ms[bisect.bisect_left(self.rows, size)]


class Planner:
    """A cost curve with corrections. `measured` mutates it.

    Args:
      curve: of the compiled sizes.
      without: the size that verifies no drafts, whatever room its sequences leave; 0: all can.
    """

    def __init__(self, curve: Curve, without: int = 0):
        self.curve = curve
        self.without = without
        self._excess: collections.deque[tuple[int, float]] = collections.deque(maxlen=WINDOW)
        self._rests: collections.deque[tuple[int, float]] = collections.deque(maxlen=WINDOW)
        self._slope: float | None = None

    def measured(self, sequences: int, size: int, forward_ms: float, rest_ms: float) -> None:
        """A step of this size has run."""
        if size in self.curve.rows:
            self._excess.append((size, (forward_ms - self.curve.time_ms(size)) / size))
            self._slope = None
        self._rests.append((sequences, rest_ms))

    @property
    def slope_ms(self) -> float:
        """Milliseconds a row on top of the curve; never below 0."""
        if self._slope is None:
            by_size: dict[int, list[float]] = {}
            for size, excess in self._excess:
                by_size.setdefault(size, []).append(excess)
            medians = [_median(x) for x in by_size.values() if len(x) >= LEAST_STEPS]
            self._slope = max(_median(medians), 0.0) if medians else 0.0
        return self._slope

    def rest_ms(self, sequences: int) -> float:
        """What a step takes beside its forward pass."""
        own = [rest for count, rest in self._rests if count == sequences][-RESTS:]
        if len(own) >= LEAST_RESTS:
            return _median(own)
        last = [rest for _, rest in self._rests][-RESTS:]
        return _median(last) if last else 0.0

    def step_ms(self, sequences: int, rows: int) -> float | None:
        """Time of a step; None: nothing compiled holds it."""
        size = self.curve.size(rows)
        if size is None:
            return None
        return self.curve.time_ms(size) + self.slope_ms * size + self.rest_ms(sequences)

    def size(self, sequences: int, drafts: int) -> int | None:
        """The compiled size that verifies so many drafts; None: there is none."""
        rows = sequences + drafts
        return self.curve.size(max(rows, self.without + 1) if drafts else rows)

    def budget(self, rates: np.ndarray) -> int:
        """Drafts to verify, 0 .. R K.

        Args:
          rates: float32 [R K], survivals two steps old; never rising along a row.

        The global best, not the first local one: a curve of compiled sizes has steps.
        """
        return self.best(rates)[0]

    def best(self, rates: np.ndarray) -> tuple[int, float]:
        """`budget`, and the tokens a millisecond that it promises; 0 where nothing is known."""
        sequences = len(rates)
        if not self.curve.rows:
            return rates.size, 0.0
        slope, rest = self.slope_ms, self.rest_ms(sequences)
        ordered = np.sort(np.asarray(rates, np.float32).reshape(-1))[::-1]
        tokens, best, chosen = np.float32(sequences), 0.0, 0
        for count in range(rates.size + 1):
            if count:
                tokens = np.float32(tokens + ordered[count - 1])
            size = self.size(sequences, count)
            if size is None:
                break
            time_ms = self.curve.time_ms(size) + slope * size + rest
            if (speed := float(tokens) / time_ms) > best:
                best, chosen = speed, count
        return chosen, best


def places(rates: np.ndarray, budget: int) -> np.ndarray:
    """Drafts verified of each sequence, int [R]: the `budget` largest rates, the first of equals.

    The device does the same with younger rates (`confidence.lengths`).
    """
    flat = np.asarray(rates, np.float32).reshape(-1)
    order = np.argsort(-flat, kind="stable")[:budget]
    return np.bincount(order // rates.shape[1], minlength=len(rates))


def known_rates(
    known: Sequence[Sequence[float] | np.ndarray], drafts: int, comes: Sequence[bool]
) -> np.ndarray:
    """float32 [R K]; a sequence of which nothing is known counts 1 if it has drafts, else 0."""
    out = np.zeros((len(known), drafts), np.float32)
    for row, rates, has in zip(out, known, comes, strict=True):
        row[:] = rates if len(rates) else float(has)
    return out


def _median(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values, np.float64)))

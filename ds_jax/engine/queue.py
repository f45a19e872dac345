"""Sequences in an order, without those that have ended.

Decides how ended ones are dropped: when they come first, and all of them once they are most.
In: sequences with a place. Out: the first one.
"""

from __future__ import annotations

import heapq
import math

from ds_jax.engine.sequence import Sequence, State


class OrderedSequences:
    """A heap by place, then by arrival. All methods but `live` mutate it."""

    def __init__(self):
        self._heap: list[tuple[float, int, Sequence]] = []

    def push(self, place: float, sequence: Sequence) -> None:
        """Adds a sequence; a smaller place comes first."""
        heapq.heappush(self._heap, (place, sequence.number, sequence))

    def first(self, most: float = math.inf) -> Sequence | None:
        """The first sequence that has not ended, if its place is at most `most`."""
        heap = self._heap
        while heap and heap[0][2].state is State.ENDED:
            heapq.heappop(heap)
        return heap[0][2] if heap and heap[0][0] <= most else None

    def pop(self) -> None:
        """Takes the first sequence out."""
        heapq.heappop(self._heap)

    def trim(self, live: int) -> None:
        """Drops ended ones where they are most; `live`: sequences that have not ended anywhere."""
        if len(self._heap) > 2 * live + 64:
            self._heap = [entry for entry in self._heap if entry[2].state is not State.ENDED]
            heapq.heapify(self._heap)

    def live(self) -> list[Sequence]:
        """All that have not ended, in no order."""
        return [entry[2] for entry in self._heap if entry[2].state is not State.ENDED]

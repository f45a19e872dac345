"""Runs any number of prompts through the slots of a replica.

Decides the order of steps: all prompts in slots first, in chunks, then decode steps for all of them
together; a free slot takes the next prompt. Never renders text. In: `GenerateRequest`s.
Out: `TokenEvent`s, in the order the device finishes them.

The token of a step stays on the device and feeds the next one; the host reads it one step late, so
a sequence that meets its end token runs one more row, which nobody reads. At most two steps are in
flight.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ds_jax import records
from ds_jax.engine import batch as batches
from ds_jax.engine.runner import Runner
from ds_jax.engine.step import StepOutput

IN_FLIGHT = 2


@dataclasses.dataclass(eq=False)
class Running:
    """A request with a slot. `computed` tokens are launched, `sampled` outputs are on their way."""

    request: records.GenerateRequest
    seed: int
    limit: int
    rank: int = -1
    slot: int = -1
    computed: int = 0
    sampled: int = 0
    received: int = 0
    finished: bool = False

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return self.request.prompt_token_ids

    @property
    def to_prefill(self) -> int:
        """Prompt tokens that are not launched yet."""
        return max(0, len(self.prompt) - self.computed)


@dataclasses.dataclass(frozen=True)
class Flight:
    """A launched step and the sequences whose token it brings, with their places."""

    output: StepOutput
    readers: tuple[tuple[Running, int], ...]


class OfflineLoop:
    """One call's worth of prompts. Mutates itself and the runner's state.

    Args:
      requests: valid requests; every prompt leaves room for one token of the context.
      seeds: seed of each request.
      end_token_ids: ids that end a sequence unless it ignores them.
    """

    def __init__(
        self,
        runner: Runner,
        requests: Sequence[records.GenerateRequest],
        seeds: Sequence[int],
        end_token_ids: frozenset[int],
    ):
        room = runner.engine.max_context
        self.runner = runner
        self.end_token_ids = end_token_ids
        self.waiting = collections.deque(
            Running(r, s, min(r.params.max_tokens, room - len(r.prompt_token_ids)))
            for r, s in zip(requests, seeds, strict=True)
        )
        self.live: list[Running] = []
        self.flights: collections.deque[Flight] = collections.deque()
        # one decode program a call: sizes do not shrink as sequences end
        widest = max((len(s.prompt) + s.limit for s in self.waiting), default=1)
        most = min(-(-len(self.waiting) // runner.ranks), runner.engine.max_sequences)
        self.decode_key = runner.buckets.decode(max(most, 1), widest)
        self.context = widest
        self.free = [
            collections.deque(range(runner.engine.max_sequences)) for _ in range(runner.ranks)
        ]

    def run(self) -> Iterator[records.TokenEvent]:
        """Yields events until every sequence has ended."""
        try:
            while self.waiting or self.live:
                self._admit()
                launched = self._prefill()
                if not launched:
                    if not self.runner.has(self.decode_key):  # do not hold tokens back for it
                        yield from self._read(0)
                    launched = self._decode()
                yield from self._read(IN_FLIGHT - 1 if launched else 0)
        finally:
            self.flights.clear()

    def _admit(self) -> None:
        while self.waiting:
            rank = max(range(self.runner.ranks), key=lambda r: len(self.free[r]))
            if not self.free[rank]:
                return
            sequence = self.waiting.popleft()
            sequence.rank, sequence.slot = rank, self.free[rank].popleft()
            self.live.append(sequence)

    def _prefill(self) -> bool:
        """Launches a chunk of as many sequences as fit, either all fresh or all continued."""
        pending = [s for s in self.live if s.to_prefill]
        if not pending:
            return False
        fresh = pending[0].computed == 0
        pending = [s for s in pending if (s.computed == 0) == fresh]
        buckets = self.runner.buckets
        longest = buckets.chunks[-1]
        group = buckets.group(min(pending[0].to_prefill, longest))
        chosen: list[Running] = []
        for sequence in pending:
            tokens = min(max(s.to_prefill for s in [*chosen, sequence]), longest)
            same_rank = sum(s.rank == sequence.rank for s in chosen)
            if same_rank < min(group, buckets.group(tokens)):
                chosen.append(sequence)
        most = max(collections.Counter(s.rank for s in chosen).values())
        tokens = min(max(s.to_prefill for s in chosen), longest)
        key = buckets.prefill(most, tokens, self.context, fresh=fresh)
        rows = [self._chunk(s, key.tokens) for s in chosen]
        output, places = self.runner.launch(key, rows)
        readers = []
        for sequence, row, place in zip(chosen, rows, places, strict=True):
            sequence.computed += len(row.token_ids)
            if not sequence.to_prefill:
                sequence.sampled = 1
                readers.append((sequence, place))
        self._launched(output, readers)
        return True

    def _chunk(self, sequence: Running, most: int) -> batches.Row:
        start = sequence.computed
        ids = sequence.prompt
        return self._row(
            sequence,
            start,
            ids[start : start + most],
            ids[max(0, start - self.runner.back) : start],
        )

    def _decode(self) -> bool:
        """Launches one token of every sequence that may go on; all of them have their prompt."""
        ready = [s for s in self.live if s.sampled < s.limit]
        if not ready:
            return False
        # the newest token is on the device: any id stands for it
        rows = [self._row(s, s.computed, (0,), ()) for s in ready]
        output, places = self.runner.launch(self.decode_key, rows)
        for sequence in ready:
            sequence.computed += 1
            sequence.sampled += 1
        self._launched(output, list(zip(ready, places, strict=True)))
        return True

    def _row(self, s: Running, start: int, ids: Sequence[int], before) -> batches.Row:
        pages = self.runner.pages_of(s.slot)
        return batches.Row(s.rank, s.slot, start, ids, before, pages, s.request.params, s.seed)

    def _launched(self, output: StepOutput, readers: list[tuple[Running, int]]) -> None:
        output.tokens.copy_to_host_async()
        self.flights.append(Flight(output, tuple(readers)))

    def _read(self, left: int) -> Iterator[records.TokenEvent]:
        """Reads the oldest steps until `left` are in flight."""
        while len(self.flights) > left:
            flight = self.flights.popleft()
            tokens = np.asarray(flight.output.tokens)
            for sequence, place in flight.readers:
                if not sequence.finished:
                    yield self._receive(sequence, int(tokens[place]))

    def _receive(self, sequence: Running, token: int) -> records.TokenEvent:
        params = sequence.request.params
        ended = token in params.stop_token_ids or (
            token in self.end_token_ids and not params.ignore_eos
        )
        index = sequence.received
        sequence.received += 1
        reason = None
        if ended:
            reason = records.FinishReason.STOP
        elif sequence.received >= sequence.limit:
            reason = records.FinishReason.LENGTH
        if reason is not None:
            sequence.finished = True
            self.live.remove(sequence)
            self.free[sequence.rank].append(sequence.slot)
        return records.TokenEvent(
            sequence.request.request_id, index, None if ended else token, reason
        )

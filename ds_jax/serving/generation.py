"""The sequences of one request, from its place in the queue to its last token.

Decides when a request enters the engine, how the streams of several answers are read, and what is
counted. Never parses tokens. In: `GenerateRequest`s. Out: batches of `TokenEvent`s.

Whatever ends the reading (an end, an error, a client that went away) aborts what is left of the
sequences and gives the place back.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence

from ds_jax.errors import RequestError
from ds_jax.records import FinishReason, GenerateRequest, TokenEvent
from ds_jax.serving.backend import Stream
from ds_jax.serving.gate import Gate
from ds_jax.serving.keys import Principal
from ds_jax.serving.metrics import Metrics
from ds_jax.serving.problems import Problem
from ds_jax.serving.replica import Replica


@dataclasses.dataclass(slots=True)
class Tally:
    """What one sequence has used; times in seconds, 0: not yet."""

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    reason: FinishReason | None = None

    @property
    def uncached_tokens(self) -> int:
        """Tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens + self.completion_tokens


@dataclasses.dataclass(frozen=True, slots=True)
class Desk:
    """What every generation needs."""

    replica: Replica
    gate: Gate
    metrics: Metrics
    clock: Callable[[], float]
    max_wait_s: float


class Generation:
    """Methods mutate it.

    Args:
      requests: one an answer; they have one prompt each.
      began: when the request arrived.
      deadline_s: the answer is of no use after these seconds.
      whole: nobody looks at an answer before its end, so its tokens need not come one by one.
    """

    def __init__(
        self,
        desk: Desk,
        principal: Principal,
        requests: Sequence[GenerateRequest],
        began: float,
        deadline_s: float | None,
        *,
        whole: bool = False,
    ):
        self.requests = requests
        self.tallies = [Tally(len(r.prompt_token_ids)) for r in requests]
        self._desk = desk
        self._began = began
        self._whole = whole
        self._entered = 0.0
        self._wait_s = desk.max_wait_s if deadline_s is None else min(deadline_s, desk.max_wait_s)
        self._streams: list[Stream] = []
        self._ended = [False] * len(requests)
        cost = float(sum(len(r.prompt_token_ids) for r in requests))
        self._place = desk.gate.enter(principal, len(requests), cost, deadline_s)

    @property
    def backlog(self) -> int:
        """Events that wait to be read, of the sequence that has most."""
        return max((stream.backlog for stream in self._streams), default=0)

    @property
    def first_token_s(self) -> float | None:
        """From the request's arrival to its first token."""
        found = [t.first_at for t in self.tallies if t.first_at]
        return min(found) - self._began if found else None

    async def batches(self) -> AsyncIterator[tuple[int, list[TokenEvent]]]:
        """Number of an answer and its newest events, until all answers have ended.

        Raises: Overloaded, Problem, RequestError: an answer cannot be had.
        """
        try:
            await self._place.wait(self._wait_s)
            self._entered = self._desk.clock()
            self._desk.metrics.queue_s.observe(self._entered - self._began)
            for request in self.requests:
                self._streams.append(self._desk.replica.submit(request, None))
            if len(self._streams) == 1:
                stream = self._streams[0]
                while not self._ended[0] and (events := await stream.batch()):
                    self._count(0, events)
                    if self._whole and not self._ended[0]:
                        more = await stream.rest()
                        self._count(0, more, len(more) - (more[-1].token_id is None))
                        events += more
                    yield 0, events
            else:
                async for index, events in self._merged():
                    self._count(index, events)
                    yield index, events
        finally:
            await self.close()

    async def end(self, index: int) -> None:
        """An answer is complete, whatever the engine would still say."""
        if not self._ended[index]:
            self._ended[index] = True
            self.tallies[index].reason = FinishReason.STOP
            await self._streams[index].aclose()

    async def close(self) -> None:
        """Ends everything; further calls do nothing."""
        for stream in self._streams:
            await stream.aclose()
        if self._streams:
            used = sum(tally.uncached_tokens for tally in self.tallies)
            self._place.leave(float(used))
            self._report()
            self._streams = []
        else:
            self._place.leave(0.0)

    async def _merged(self) -> AsyncIterator[tuple[int, list[TokenEvent]]]:
        tasks = {asyncio.ensure_future(s.batch()): n for n, s in enumerate(self._streams)}
        try:
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=tasks.__getitem__):
                    index, events = tasks.pop(task), task.result()
                    if events and not self._ended[index]:
                        yield index, events
                    if events and events[-1].finish_reason is None and not self._ended[index]:
                        again = asyncio.ensure_future(self._streams[index].batch())
                        tasks[again] = index
        finally:
            for task in tasks:
                task.cancel()

    def _count(self, index: int, events: list[TokenEvent], steps: int = 1) -> None:
        now, tally, metrics = self._desk.clock(), self.tallies[index], self._desk.metrics
        first, last = events[0], events[-1]
        if not tally.first_at:
            tally.first_at = now
            if first.usage is not None:
                tally.cached_tokens = first.usage.cached_tokens
            metrics.first_token_s.observe(now - self._began)
            metrics.prefill_s.observe(now - self._entered)
        else:
            steps = max(1, steps)
            metrics.inter_token_s.observe((now - tally.last_at) / steps, steps)
        tally.last_at = now
        tally.completion_tokens += len(events)
        metrics.generated += len(events)
        if last.finish_reason is not None:
            self._ended[index] = True
            tally.reason = last.finish_reason
            tally.completion_tokens -= last.token_id is None
            metrics.generated -= last.token_id is None
            _check(last)

    def _report(self) -> None:
        metrics, now = self._desk.metrics, self._desk.clock()
        metrics.request_s.observe(now - self._began)
        metrics.inference_s.observe(now - self._entered)
        for tally in self.tallies:
            cached, prompt, done = tally.cached_tokens, tally.prompt_tokens, tally.completion_tokens
            metrics.succeeded((tally.reason or FinishReason.CANCELLED).value)
            if not tally.first_at:
                continue
            metrics.prompt_tokens.inc(prompt)
            metrics.prompt_tokens_cached.inc(cached)
            metrics.prompt_tokens_by_source["local_cache_hit"].inc(cached)
            metrics.prompt_tokens_by_source["local_compute"].inc(prompt - cached)
            metrics.prompt_size.observe(prompt)
            metrics.output_size.observe(done)
            metrics.decode_s.observe(tally.last_at - tally.first_at)
            if done > 1:
                metrics.per_token_s.observe((tally.last_at - tally.first_at) / (done - 1))


def _check(last: TokenEvent) -> None:
    """Raises what an end that is no answer means."""
    if isinstance(last.error, RequestError):
        raise last.error
    if last.finish_reason is FinishReason.ERROR:
        raise Problem(
            500,
            "the engine failed while it answered; try again",
            code="engine_error",
            retry_after_s=1.0,
        )
    if last.finish_reason is FinishReason.DEADLINE:
        raise Problem(504, "the request's time was over before its answer was complete")
    if last.finish_reason is FinishReason.CANCELLED:
        raise Problem(503, "the server stops; ask again", code="stopping", retry_after_s=1.0)

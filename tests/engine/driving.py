"""A loop around scheduler and mock device, with everything that must hold checked on the way."""

from __future__ import annotations

import collections
from collections.abc import Sequence as Many
from typing import Any

from ds_jax.engine import plan as plans
from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import Cancel, Plan, StepFailed, StepResult, Submit
from ds_jax.engine.scheduler import Scheduler
from ds_jax.engine.sequence import State
from ds_jax.engine.stop import Detokenizer
from ds_jax.kvcache.replay import Rule
from ds_jax.records import FinishReason, GenerateRequest, SamplingParams, TokenEvent
from tests.engine.mock_device import MockDevice, Model

RULE = Rule(window=3, ratios=(0, 2, 1))
END = 0


def limits(**changes: Any) -> Limits:
    """A small replica: pages of 4 tokens."""
    values: dict[str, Any] = {
        "ranks": 1,
        "slots": 4,
        "pages": 32,
        "page_tokens": 4,
        "max_context": 64,
        "step_tokens": 16,
        "chunk_tokens": 8,
        "snapshots": 6,
        "rule": RULE,
        "end_token_ids": frozenset({END}),
    }
    return Limits(**{**values, **changes})


class Unfinished:
    """A grammar that is being compiled; the scheduler never asks it."""

    def poll(self) -> None:
        raise AssertionError("the scheduler waits for an event")


class Driver:
    """Plans, runs and reads; with `overlap` a result is read one plan late."""

    def __init__(self, sizes: Limits, *, overlap: bool = True, integrity: bool = True):
        self.limits = sizes
        self.overlap = overlap
        self.integrity = integrity
        self.model = Model(sizes.rule)
        self.device = MockDevice(sizes, self.model)
        self.scheduler = Scheduler(sizes)
        self.now_s = 0.0
        self.inbox: list[plans.Event] = []
        self.flights: collections.deque[StepResult] = collections.deque()
        self.submitted: dict[str, Submit] = {}
        self.tokens: dict[str, list[int]] = collections.defaultdict(list)
        self.texts: dict[str, str] = collections.defaultdict(str)
        self.final: dict[str, TokenEvent] = {}
        self.preempted = 0
        self.rows: dict[int, set[str]] = {}  # requests of every step

    def submit(
        self,
        name: str,
        prompt: Many[int],
        *,
        seed: int = 1,
        detokenizer: Detokenizer | None = None,
        compiles: bool = False,
        params: dict[str, Any] | None = None,
        **request: Any,
    ) -> None:
        asked = GenerateRequest(name, tuple(prompt), SamplingParams(**(params or {})), **request)
        grammar = Unfinished() if compiles else None
        self.submitted[name] = Submit(asked, seed, detokenizer, grammar)
        self.inbox.append(self.submitted[name])

    def cancel(self, name: str) -> None:
        self.inbox.append(Cancel(name))

    def fail(self) -> set[str]:
        """The oldest step in flight raises and the device loses everything; who was in it."""
        number = self.flights[0].number
        self.flights.clear()
        self.device = MockDevice(self.limits, self.model)
        self.inbox.append(StepFailed(number, "the device is gone"))
        return self.rows[number]

    def step(self) -> Plan:
        """One turn of the loop."""
        events, self.inbox = self.inbox, []
        while len(self.flights) > (1 if self.overlap else 0):
            events.append(self.flights.popleft())
        plan = self.scheduler.schedule(events, self.now_s)
        self.check(plan)
        for event in plan.events:
            self.take(event)
        if plan.has_rows:
            self.flights.append(self.device.launch(plan))
            rows = [*plan.prefill, *plan.decode]
            self.rows[plan.number] = {row.sequence.request.request_id for row in rows}
        elif self.flights:
            self.inbox.append(self.flights.popleft())
        self.now_s += 1.0
        return plan

    def run(self, most: int = 10_000) -> None:
        """Until nothing is under way."""
        for _ in range(most):
            if self.scheduler.is_idle and not self.inbox and not self.flights:
                return
            self.step()
        raise AssertionError(f"{self.scheduler.num_waiting} wait after {most} steps")

    def take(self, event: TokenEvent) -> None:
        name = event.request_id
        assert name not in self.final, f"{name}: {event} after {self.final[name]}"
        if event.token_id is not None:
            assert event.index == len(self.tokens[name]), f"{event} out of order"
            self.tokens[name].append(event.token_id)
        self.texts[name] += event.text or ""
        if event.finish_reason is not None:
            self.final[name] = event

    def check(self, plan: Plan) -> None:
        """What holds for every plan."""
        sizes = self.limits
        self.preempted += len(plan.preempted)
        chunked = [c.sequence.number for c in plan.prefill]
        assert len(set(chunked)) == len(chunked), "two chunks of one sequence"
        decoding = {r.sequence.number for r in plan.decode}
        assert len(decoding) == len(plan.decode), "two rows of one sequence"
        assert not decoding & set(chunked)
        for rank in range(sizes.ranks):
            chunks = [c for c in plan.prefill if c.sequence.rank == rank]
            rows = [r for r in plan.decode if r.sequence.rank == rank]
            used = sum(c.stop - c.start for c in chunks)
            assert used <= max(
                sizes.step_tokens - len(rows) * sizes.row_tokens, sizes.least_prefill
            )
        for chunk in plan.prefill:
            assert chunk.start < chunk.stop <= chunk.start + sizes.chunk_tokens
            if sizes.rule.mode == "compact":
                kept = chunk.sequence.replay.decoder_rows(chunk.start, chunk.stop)
                assert len(kept) <= sizes.rule.keep_tokens, "the step does not compute them all"
        for rank in self.scheduler.ranks:
            for s in rank.running.values():
                served = s.number in decoding or s.number in chunked
                assert served or s.state is not State.DECODE or s.sampled >= s.limit, "starved"
        if self.integrity:
            self.scheduler.check_integrity()

    def expected(self, name: str) -> tuple[list[int], FinishReason]:
        """What a request gives alone on an endless machine, if nobody ends it."""
        request, seed = self.submitted[name][:2]
        params = request.params
        ends = set(params.stop_token_ids) | (set() if params.ignore_eos else {END})
        most = min(params.max_tokens, self.limits.context - len(request.prompt_token_ids))
        out = self.model.generate(request.prompt_token_ids, seed, most)
        for number, token in enumerate(out):
            if token in ends:
                return out[:number], FinishReason.STOP
        return out, FinishReason.LENGTH

    def check_results(self, *, exact: bool = True) -> None:
        """Every request has one final event and the tokens it would have alone."""
        assert set(self.final) == set(self.submitted), "requests without a final event"
        for name, event in self.final.items():
            if event.finish_reason is FinishReason.ERROR:
                continue
            tokens, reason = self.expected(name)
            got = self.tokens[name]
            if event.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
                assert event.finish_reason is reason or not exact
                assert got == tokens or not exact, f"{name}: {got} instead of {tokens}"
            else:
                assert got == tokens[: len(got)] or not exact
            assert event.usage is not None
            assert event.usage.completion_tokens == len(got)

    def check_empty(self) -> None:
        """Everything has come back."""
        self.scheduler.check_integrity()
        for rank in self.scheduler.ranks:
            assert rank.free_slots == self.limits.slots
            assert rank.pool.available == self.limits.pages
            assert rank.snapshots.reserved == 0

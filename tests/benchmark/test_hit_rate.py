"""What the prefix cache finds of long traces, on the scheduler alone, against what can be found."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from ds_jax.benchmark import host, workload
from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import Event, StepResult, Submit
from ds_jax.engine.scheduler import Scheduler
from ds_jax.records import GenerateRequest, SamplingParams

STEP_S = 0.05
SIZES = workload.Sizes(
    requests=4000, rate=24.0, prefixes=24, shared_tokens=1536, own_tokens=200, new_tokens=12
)


def served(trace: list[workload.Arrival], limits: Limits, *, overlap: bool = True) -> Scheduler:
    """Every request at its time, on a device that takes as long for every step."""
    scheduler = Scheduler(limits)
    waiting = collections.deque(
        Submit(GenerateRequest(str(n), a.prompt, SamplingParams(max_tokens=a.new_tokens)), seed=n)
        for n, a in enumerate(trace)
    )
    results: collections.deque[StepResult] = collections.deque()
    step = 0
    while waiting or results or not scheduler.is_idle:
        events: list[Event] = []
        while waiting and trace[-len(waiting)].at_s <= step * STEP_S:
            events.append(waiting.popleft())
        while len(results) > (1 if overlap else 0) or (results and not waiting and not events):
            events.append(results.popleft())
        plan = scheduler.schedule(events, step * STEP_S)
        if plan.has_rows:
            results.append(StepResult(plan.number, [[5]] * len(plan.readers)))
        elif results:
            scheduler.schedule([results.popleft()], step * STEP_S)
        step += 1
    return scheduler


def limits(**changes: Any) -> Limits:
    """A replica of the released model: 48 slots, pages of 128 tokens."""
    values: dict[str, Any] = {
        "ranks": 1,
        "slots": 48,
        "pages": 4096,
        "page_tokens": 128,
        "max_context": 2048,
        "step_tokens": 8192,
        "chunk_tokens": 1024,
        "snapshots": 144,
        "rule": host.RELEASED,
    }
    return Limits(**values | changes)


def found(scheduler: Scheduler) -> int:
    return sum(rank.index.statistics.hit_tokens for rank in scheduler.ranks)


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, 0.99),
        ({"snapshots": 48}, 0.98),
        # every rank computes every beginning once: 1.8 % of what one cache would find
        ({"ranks": 4, "slots": 12, "snapshots": 36}, 0.95),
    ],
    ids=["three states a slot", "one state a slot", "four ranks"],
)
def test_thousands_of_requests_find_what_the_trace_holds(
    changes: dict[str, Any], least: float
) -> None:
    trace = workload.poisson(SIZES, 3072, seed=4)
    sizes = limits(**changes)
    ideal = workload.ideal_hit_tokens(trace, sizes.page_tokens, sizes.rule)
    assert ideal > 0.85 * sum(len(a.prompt) for a in trace)
    scheduler = served(trace, sizes)
    assert scheduler.num_requests == len(trace)
    assert least * ideal <= found(scheduler) <= ideal

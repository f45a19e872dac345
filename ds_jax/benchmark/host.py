"""What planning a decode step costs the host, without any device.

Decides what is timed: one call of the scheduler with the result of an earlier step, for sequences
that all decode. Never imports jax. In: numbers of sequences. Out: seconds a step.

The clock is the thread's own time: the scheduler never waits, so other programs on the machine
do not count.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
import time

from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import Event, StepResult, Submit
from ds_jax.engine.scheduler import Scheduler
from ds_jax.kvcache.replay import Rule
from ds_jax.records import GenerateRequest, SamplingParams

SEQUENCES = (1, 8, 64, 128, 256, 512)
RELEASED = Rule(window=128, ratios=(0,) * 2 + (2,) * 18 + (1,) * 20)
PROMPT_TOKENS = 100  # decode crosses page borders within the timed steps


@dataclasses.dataclass(frozen=True)
class HostTiming:
    """Thread seconds of each timed step."""

    sequences: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def tenth_s(self) -> float:
        """One step in ten is faster: what is left when caches are not shared with others."""
        return sorted(self.seconds)[len(self.seconds) // 10]


def decode_step(sequences: int, steps: int = 300) -> HostTiming:
    """Times planned steps with overlap: a result is read one plan late."""
    limits = Limits(
        ranks=1,
        slots=sequences,
        pages=16 * sequences,
        page_tokens=128,
        max_context=1024,
        step_tokens=8192,
        chunk_tokens=512,
        snapshots=2 * sequences,
        rule=RELEASED,
    )
    scheduler = Scheduler(limits)
    params = SamplingParams(max_tokens=limits.max_context - PROMPT_TOKENS)
    events: list[Event] = [
        Submit(GenerateRequest(str(n), prompt(n), params), seed=n) for n in range(sequences)
    ]
    results: collections.deque[StepResult] = collections.deque()
    seconds: list[float] = []
    while len(seconds) < steps:
        start = time.thread_time()
        plan = scheduler.schedule(events, 0.0)
        spent = time.thread_time() - start
        if len(plan.decode) == sequences:
            seconds.append(spent)
        results.append(StepResult(plan.number, [[5]] * len(plan.readers)))
        events = [results.popleft()] if len(results) > 1 else []
    return HostTiming(sequences, tuple(seconds))


def table(timings: list[HostTiming], what: str = "planning") -> str:
    """Markdown."""
    lines = [
        f"\n| sequences | {what}, ms a decode step, median (tenth) | us a sequence |",
        "|---|---|---|",
    ]
    for timing in timings:
        each = timing.tenth_s / timing.sequences * 1e6
        lines.append(
            f"| {timing.sequences} | {timing.median_s * 1e3:.3f} ({timing.tenth_s * 1e3:.3f}) "
            f"| {each:.1f} |"
        )
    return "\n".join(lines)


def prompt(number: int) -> tuple[int, ...]:
    """Ids of a sequence, unlike those of all others."""
    return tuple((7 * number + position) % 1000 for position in range(PROMPT_TOKENS))

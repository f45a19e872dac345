"""Counters of a replica, times of its steps, and the cause of a cache miss, over all of its ranks.

Decides names, and what counts as host time and as an idle device. Never decides anything else.
In: a scheduler, records of steps. Out: plain numbers.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import queue
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ds_jax.engine.scheduler import Scheduler
from ds_jax.kvcache import explain
from ds_jax.records import ImageSpan

KEPT = 4096  # records of the newest steps


@dataclasses.dataclass(slots=True)
class StepRecord:
    """One step. Seconds; points in time are those of the loop's clock.

    Attributes:
      plan_s: the scheduler.
      read_s: before it, reading results: mostly waiting for the device (`wait_s`).
      launch_s: packing and launching.
      deliver_s: handing events over, once the step is launched.
      wait_s: waiting for this step's own result.
      launched_at: its first program was handed to the device.
      done_at: the device had finished it; 0: nobody watched.
      decode_rows, prefill_tokens, executions: what it served, and the programs it took.
    """

    plan_s: float = 0.0
    read_s: float = 0.0
    launch_s: float = 0.0
    deliver_s: float = 0.0
    wait_s: float = 0.0
    launched_at: float = 0.0
    done_at: float = 0.0
    decode_rows: int = 0
    prefill_tokens: int = 0
    executions: int = 0

    @property
    def host_s(self) -> float:
        """What the host did for the step, waiting left out."""
        return self.plan_s + self.launch_s + self.deliver_s


class StepLog:
    """Records of the newest steps. `add` mutates it."""

    def __init__(self) -> None:
        self.records: collections.deque[StepRecord] = collections.deque(maxlen=KEPT)

    def add(self, record: StepRecord) -> None:
        """A step whose result is there."""
        self.records.append(record)

    def read(self) -> dict[str, float]:
        """Medians over the newest steps, in milliseconds."""
        records = list(self.records)
        if not records:
            return {}
        decode = [r for r in records if not r.prefill_tokens] or records
        return {
            "host_ms": statistics.median(r.host_s for r in decode) * 1e3,
            "plan_ms": statistics.median(r.plan_s for r in decode) * 1e3,
            "launch_ms": statistics.median(r.launch_s for r in decode) * 1e3,
            "deliver_ms": statistics.median(r.deliver_s for r in decode) * 1e3,
            "wait_ms": statistics.median(r.wait_s for r in decode) * 1e3,
        }


def idle_share(records: Sequence[StepRecord]) -> float | None:
    """Share of the time from the first launch to the last end in which the device had nothing.

    Needs records that a `Watcher` saw, of steps that follow each other without a pause; None
    without.
    """
    if len(records) < 2 or not all(r.done_at for r in records):
        return None
    idle = sum(
        max(0.0, after.launched_at - before.done_at)
        for before, after in itertools.pairwise(records)
    )
    return idle / (records[-1].done_at - records[0].launched_at)


class Waitable(Protocol):
    """What a step leaves on the device."""

    def block_until_ready(self) -> object:
        """Returns once it is computed."""
        ...


class Watcher:
    """Notes when steps end on the device, in a thread that only waits. Methods mutate it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._steps: queue.SimpleQueue[tuple[StepRecord, Waitable] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ds_jax.watcher", daemon=True)
        self._thread.start()

    def watch(self, record: StepRecord, result: Waitable) -> None:
        """The end of `result` is the end of the step."""
        self._steps.put((record, result))

    def close(self) -> None:
        """Waits for the steps given so far, then ends the thread."""
        self._steps.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            record, result = step
            with contextlib.suppress(Exception):  # the loop tells of a step that fails
                result.block_until_ready()
                record.done_at = self._clock()


def read(scheduler: Scheduler) -> dict[str, int]:
    """Numbers now, and since the start (`_total`)."""
    pools = [rank.pool for rank in scheduler.ranks]
    prefixes = [rank.index.statistics for rank in scheduler.ranks]
    states = [rank.snapshots for rank in scheduler.ranks]
    return {
        "running": scheduler.num_running,
        "waiting": scheduler.num_waiting,
        "pages": sum(pool.num_pages for pool in pools),
        "pages_held": sum(pool.held for pool in pools),
        "pages_cached": sum(pool.evictable for pool in pools),
        "pages_pinned": sum(pool.pinned for pool in pools),
        "states_stored": sum(len(store) for store in states),
        "steps_total": scheduler.num_steps,
        "requests_total": scheduler.num_requests,
        "preemptions_total": scheduler.num_preemptions,
        "prefix_query_tokens_total": sum(p.query_tokens for p in prefixes),
        "prefix_hit_tokens_total": sum(p.hit_tokens for p in prefixes),
        "pages_evicted_total": sum(p.evicted_pages for p in prefixes),
        "states_evicted_total": sum(store.evictions for store in states),
    }


def explain_miss(
    scheduler: Scheduler,
    token_ids: Sequence[int],
    tenant: str = "",
    images: Sequence[ImageSpan] = (),
) -> explain.Miss:
    """Why a prompt is not in the cache, on the rank that knows most of it; for operators."""
    found = [rank.index.explain_miss(token_ids, tenant, images) for rank in scheduler.ranks]
    return max(found, key=lambda miss: (miss.found_tokens, miss.state_tokens))

"""What overlap, batches and cached prefixes gain: pairs of runs in one process.

Decides which runs are compared. Their ratio says something on a busy machine too; absolute figures
do not. In: a way to make pipelines. Out: rows of a table.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable

from ds_jax.benchmark import replica
from ds_jax.engine import stats
from ds_jax.pipeline import Pipeline

MIXED = 200  # requests of mixed lengths
TOGETHER = 32  # sequences beside one alone
PREFIX = 2000  # tokens of a repeated prompt


@dataclasses.dataclass(frozen=True)
class Gain:
    """One comparison: figures with and without, in the order they were measured."""

    name: str
    unit: str
    wanted: str
    having: tuple[float, ...]
    lacking: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Of the medians; infinite where one of them is 0."""
        lacking = statistics.median(self.lacking)
        return statistics.median(self.having) / lacking if lacking else float("inf")


def overlap(pipeline: Pipeline, requests: int, repeats: int) -> Gain:
    """Idle share of the device over requests of mixed lengths."""
    draw, room = random.Random(0), pipeline.runner.engine.max_context // 2
    longest, most = min(120, room), min(64, room)
    prompts = [
        replica.random_prompts(pipeline.model, 1, draw.randrange(8, longest), seed)[0]
        for seed in range(requests)
    ]
    counts = [draw.randrange(8, most) for _ in prompts]

    def idle(on: bool) -> float:
        pipeline.loop.overlap = on
        asked = replica.requests(prompts, counts, reuse_prefix=False)
        share = stats.idle_share(replica.run(pipeline, asked))
        return 0.0 if share is None else share

    idle(True)  # compiles
    found = [(idle(True), idle(False)) for _ in range(repeats)]
    pipeline.loop.overlap = True
    having, lacking = zip(*found, strict=True)
    name = f"overlap: device idle, {requests} mixed requests"
    return Gain(name, "%", "under 3 %", _times(having, 100), _times(lacking, 100))


def batching(pipeline: Pipeline, sequences: int, new_tokens: int, repeats: int) -> Gain:
    """Tokens a second of many sequences and of one alone."""
    prompts = replica.random_prompts(pipeline.model, sequences, 24)

    def speed(count: int) -> float:
        asked = replica.requests(prompts[:count], [new_tokens] * count, reuse_prefix=False)
        start = time.perf_counter()
        replica.run(pipeline, asked)
        return count * new_tokens / (time.perf_counter() - start)

    speed(sequences)  # compiles
    speed(1)
    found = [(speed(sequences), speed(1)) for _ in range(repeats)]
    having, lacking = zip(*found, strict=True)
    return Gain(f"{sequences} sequences and 1", "tokens/s", "6x or more", having, lacking)


def prefix(pipeline: Pipeline, tokens: int, repeats: int) -> Gain:
    """Seconds to the first token of a prompt of known tokens and some new ones, cold and cached."""
    known = replica.random_prompts(pipeline.model, 1, tokens)[0]
    ends = replica.random_prompts(pipeline.model, 2 * repeats + 2, 20, seed=1)

    def first_s(number: int, reuse: bool) -> float:
        prompt = known + ends[number][1:]
        (request,) = replica.requests([prompt], [1], reuse_prefix=reuse)
        start = time.perf_counter()
        for event in pipeline.engine.run([request]):
            replica.refuse(event)
        return time.perf_counter() - start

    first_s(0, True)  # compiles; stores pages and their state
    first_s(1, True)
    found = [(first_s(2 * n + 2, False), first_s(2 * n + 3, True)) for n in range(repeats)]
    cold, cached = zip(*found, strict=True)
    name = f"first token behind {tokens} tokens, cold and cached"
    return Gain(name, "s", "10x or more", cold, cached)


def measure(make: Callable[..., Pipeline], repeats: int) -> list[Gain]:
    """All comparisons; `make` takes sequences and context."""
    pipeline = make(sequences=TOGETHER, context=256)
    found = [overlap(pipeline, MIXED, repeats), batching(pipeline, TOGETHER, 64, repeats)]
    pipeline.close()
    pipeline = make(sequences=2, context=PREFIX + 128)
    found.append(prefix(pipeline, PREFIX, repeats))
    pipeline.close()
    return found


def table(found: list[Gain]) -> str:
    """Markdown."""
    lines = ["| compared | with | without | ratio | wanted |", "|---|---|---|---|---|"]
    for gain in found:
        having, lacking = (", ".join(f"{v:.3g}" for v in part) for part in _both(gain))
        lines.append(
            f"| {gain.name}, {gain.unit} | {having} | {lacking} | {gain.ratio:.3g} "
            f"| {gain.wanted} |"
        )
    return "\n".join(lines)


def _both(gain: Gain) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return gain.having, gain.lacking


def _times(values: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in values)

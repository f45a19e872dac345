"""Prefill and decode apart, as the loop of a replica runs them.

Decides which steps count: those of one phase alone, all sequences in it. Never serves a mix.
In: a pipeline and sizes. Out: a `Phase` a size: speeds, times, shares of the machine.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence

import jax

from ds_jax.benchmark import cost, equivalent, replica
from ds_jax.benchmark.machine import Machine
from ds_jax.engine import stats
from ds_jax.pipeline import Pipeline

SETTLING = 2  # decode steps that are not counted: the first overlap with prefill


@dataclasses.dataclass(frozen=True)
class Phase:
    """Medians over the timed runs.

    Attributes:
      phase: "prefill" or "decode".
      batch: sequences at once.
      context: tokens of each prompt; decode goes on behind it.
      nextn: drafts of a decode row.
      step_tokens: tokens of a step.
      steps: counted steps of a run.
      tokens_per_s: computed (prefill) or generated (decode), all sequences together.
      step_s: one step on the device, waiting for the host included.
      host_s: what the host did for a step: planning, packing, launching, handing over.
      idle: share of the time in which the device had nothing to do.
      mfu: FP8-equivalent operations over the machine's peak (`equivalent`).
      mbu: bytes that decode has to read over the machine's bandwidth; None for prefill.
    """

    phase: str
    batch: int
    context: int
    nextn: int
    step_tokens: int
    steps: int
    tokens_per_s: float
    step_s: float
    host_s: float
    idle: float
    mfu: float
    mbu: float | None

    @property
    def user_tokens_per_s(self) -> float:
        """What one of the sequences sees."""
        return self.tokens_per_s / self.batch


@dataclasses.dataclass(frozen=True)
class _Run:
    """One timed run: seconds from the first launch to the last end, and its steps."""

    seconds: float
    tokens: int
    records: list[stats.StepRecord]


def prefill(pipeline: Pipeline, machine: Machine, batch: int, context: int, repeats: int) -> Phase:
    """Prompts from nothing to their first token, several in one step where it has room."""
    prompts = replica.random_prompts(pipeline.model, batch, context)

    def run() -> _Run:
        asked = replica.requests(prompts, [1] * batch, reuse_prefix=False)
        records = [r for r in replica.run(pipeline, asked) if r.prefill_tokens]
        seconds = records[-1].done_at - records[0].launched_at
        return _Run(seconds, sum(r.prefill_tokens for r in records), records)

    limits = pipeline.loop.scheduler.limits
    chunk = min(limits.chunk_tokens, limits.step_tokens)
    work = batch * equivalent.prefill_flops(pipeline.model, context, chunk, limits.rule)
    return _phase("prefill", batch, context, _runs(run, repeats), work, machine, None)


def decode(
    pipeline: Pipeline, machine: Machine, batch: int, context: int, steps: int, repeats: int
) -> Phase:
    """Greedy decoding behind prompts that are cached after the first run."""
    prompts = replica.random_prompts(pipeline.model, batch, context)
    count = steps + SETTLING + 1

    def run() -> _Run:
        asked = replica.requests(prompts, [count] * batch, reuse_prefix=True)
        found = replica.run(pipeline, asked)
        records = [r for r in found if r.decode_rows == batch and not r.prefill_tokens][SETTLING:]
        seconds = records[-1].done_at - records[0].done_at  # of all but the first
        return _Run(seconds, batch * (len(records) - 1), records)

    runs = _runs(run, repeats)
    counted = len(runs[0].records) - 1
    model, at = pipeline.model, context + SETTLING + steps // 2
    work = counted * equivalent.decode_flops(model, batch, at)
    read = cost.bytes_per_decode_step(
        model, pipeline.runner.context.numerics, batch, at, weight_bytes(pipeline)
    )
    return _phase("decode", batch, context, runs, work, machine, counted * sum(read.values()))


def weight_bytes(pipeline: Pipeline) -> float:
    """Mean bytes of one weight in memory."""
    leaves = jax.tree.leaves(pipeline.runner.params)
    return sum(a.nbytes for a in leaves) / sum(spec.size for spec in leaves)


def _runs(run: Callable[[], _Run], repeats: int) -> list[_Run]:
    run()  # compiles
    return [run() for _ in range(repeats)]


def _phase(
    name: str,
    batch: int,
    context: int,
    runs: Sequence[_Run],
    work: float,
    machine: Machine,
    read: float | None,
) -> Phase:
    middle = sorted(runs, key=lambda r: r.seconds)[len(runs) // 2]
    records = middle.records
    steps = len(records) if name == "prefill" else len(records) - 1
    idle = stats.idle_share(records)
    step_tokens = max(r.prefill_tokens + r.decode_rows for r in records)
    return Phase(
        phase=name,
        batch=batch,
        context=context,
        nextn=0,
        step_tokens=step_tokens,
        steps=steps,
        tokens_per_s=middle.tokens / middle.seconds,
        step_s=middle.seconds / steps,
        host_s=statistics.median(r.host_s for r in records),
        idle=0.0 if idle is None else idle,
        mfu=work / middle.seconds / (equivalent.PEAK * machine.matmul_flops),
        mbu=None if read is None else read / middle.seconds / machine.read_bytes,
    )


def table(found: Sequence[Phase]) -> str:
    """Markdown."""
    lines = [
        "| phase | batch | context | tokens a step | nextn | tokens/s | per user | step ms "
        "| host ms | device idle | MFU | MBU |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for p in found:
        mbu = "-" if p.mbu is None else f"{p.mbu:.1%}"
        lines.append(
            f"| {p.phase} | {p.batch} | {p.context} | {p.step_tokens} | {p.nextn} "
            f"| {p.tokens_per_s:.1f} | {p.user_tokens_per_s:.1f} | {p.step_s * 1e3:.2f} "
            f"| {p.host_s * 1e3:.2f} | {p.idle:.1%} | {p.mfu:.1%} | {mbu} |"
        )
    return "\n".join(lines)

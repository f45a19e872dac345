"""Figures side by side with the machine's limits.

Decides the form of the table and of the JSON record. Never measures.
In: timings, costs, limits. Out: text and plain values.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ds_jax import config
from ds_jax.benchmark import cost
from ds_jax.benchmark.machine import Machine
from ds_jax.benchmark.offline import Timing, Workload


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
      timing: what was measured.
      work: operations of a run (prefill) or bytes of a run (decode).
      limit: what of the machine it is related to: "matmul peak" or "bandwidth".
      fraction: work per second of the median run over the machine's limit; None without one.
    """

    timing: Timing
    work: float
    limit: str
    fraction: float | None


def line(
    model: config.Model,
    numerics: config.Numerics,
    workload: Workload,
    timing: Timing,
    machine: Machine | None,
) -> Line:
    """Relates one timing to the machine: prefill to its matmul peak, decode to its bandwidth."""
    if timing.phase == "decode":
        middle = workload.prompt_tokens + workload.new_tokens // 2
        step = cost.bytes_per_decode_step(model, numerics, timing.batch, middle)
        work, limit = sum(step.values()) * workload.new_tokens, "bandwidth"
        most = machine.read_bytes if machine else None
    else:
        every = timing.phase == "prefill, all logits"
        flops = cost.prefill_flops(model, workload.prompt_tokens, all_logits=every)
        work, limit = flops * timing.batch, "matmul peak"
        most = machine.matmul_flops if machine else None
    rate = work * timing.tokens_per_s / timing.tokens
    return Line(timing, work, limit, rate / most if most else None)


def table(lines: list[Line], machine: Machine | None, starts: dict[str, Any] | None) -> str:
    """Markdown."""
    text = []
    if machine is not None:
        text.append(
            f"{machine.device}, {machine.cores} cores: float32 matmul "
            f"{machine.matmul_flops / 1e9:.1f} GFLOP/s, "
            f"memory {machine.read_bytes / 1e9:.1f} GB/s\n"
        )
    if lines:
        text.append("| phase | batch | tokens/s, median (best) | work per token | fraction of |")
        text.append("|---|---|---|---|---|")
    for one in lines:
        timing = one.timing
        unit = "MB" if one.limit == "bandwidth" else "MFLOP"
        share = "-" if one.fraction is None else f"{one.fraction:.1%} of {one.limit}"
        text.append(
            f"| {timing.phase} | {timing.batch} | {timing.tokens_per_s:.1f} "
            f"({timing.best_tokens_per_s:.1f}) | {one.work / timing.tokens / 1e6:.2f} {unit} "
            f"| {share} |"
        )
    if starts is not None:
        warm = ", ".join(f"{s:.1f}" for s in starts["warm_s"])
        text.append(
            f"\nfirst token of `python -m ds_jax.run`: {starts['cold_s']:.1f} s with nothing "
            f"compiled, then {warm} s"
        )
    return "\n".join(text)


def record(
    lines: list[Line], machine: Machine | None, starts: dict[str, Any] | None, about: dict[str, Any]
) -> dict[str, Any]:
    """Everything as JSON values."""
    return {
        "about": about,
        "machine": dataclasses.asdict(machine) if machine else None,
        "lines": [
            {
                "phase": one.timing.phase,
                "batch": one.timing.batch,
                "tokens": one.timing.tokens,
                "seconds": list(one.timing.seconds),
                "tokens_per_s": one.timing.tokens_per_s,
                "work": one.work,
                "limit": one.limit,
                "fraction": one.fraction,
            }
            for one in lines
        ],
        "first_token": starts,
    }

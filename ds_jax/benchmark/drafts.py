"""What drafts gain: the same answers decoded plainly, with all drafts verified, and with those that
pay.

Decides how one run is timed and what is compared. Never decides lengths (the engine does). In: two
pipelines over one checkpoint, prompts. Out: a `Comparison` a number of sequences.

All three decode greedily, so they give the same tokens, and that is checked. Runs take turns, so
that a ratio says something on a busy machine too. Time is that of decoding: from the end of the
step that prefilled the last prompt to the end of the last step.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from ds_jax.benchmark import plot, replica
from ds_jax.engine import profile
from ds_jax.engine.speculation import Speculation
from ds_jax.errors import DsJaxError
from ds_jax.pipeline import Pipeline

NONE, ALL, PAYING = "no drafts", "all verified", "those that pay"


@dataclasses.dataclass(frozen=True)
class Mode:
    """One way to decode the answers.

    Attributes:
      tokens_per_s: of every timed run, all sequences together.
      verified, accepted: drafts verified, tokens made, a sequence and step (means); of steps that
        make drafts.
      sizes: steps that make drafts by their rows.
      rested: steps that make none.
      verified_at, accepted_at: shares of sequences and steps that make drafts in which draft 1,
        2, ... was verified, and accepted.
    """

    tokens_per_s: tuple[float, ...]
    verified: float = 0.0
    accepted: float = 1.0
    sizes: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    rested: int = 0
    verified_at: tuple[float, ...] = ()
    accepted_at: tuple[float, ...] = ()

    @property
    def speed(self) -> float:
        """Median tokens a second."""
        return statistics.median(self.tokens_per_s)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All modes with so many sequences at once."""

    sequences: int
    tokens: int
    modes: Mapping[str, Mode]

    def gain(self, mode: str, over: str) -> float:
        """Ratio of speeds: the median over pairs of neighbouring runs."""
        pairs = zip(self.modes[mode].tokens_per_s, self.modes[over].tokens_per_s, strict=True)
        return statistics.median(a / b for a, b in pairs)


def learn(pipeline: Pipeline, sequences: int) -> None:
    """Compiles and times the steps of so many sequences, as a warm-up does for all. Mutates it."""
    runner, speculation = pipeline.runner, pipeline.loop.speculation
    assert speculation is not None, "the pipeline drafts"
    full = runner.buckets.decode(sequences, runner.engine.max_context)
    speculation.learn(profile.measure(runner, runner.buckets.variants(full)))


def compare(
    plain: Pipeline,
    drafting: Pipeline,
    prompts: Sequence[Sequence[int]],
    sequences: int,
    new_tokens: int,
    repeats: int,
) -> Comparison:
    """Answers all prompts, so many at once, in every mode, `repeats` times.

    Args:
      plain, drafting: without drafts, and with drafts of which only those that pay are verified.
      new_tokens: of an answer at most; it ends where the model ends it.

    Raises:
      DsJaxError: a request failed, or modes gave different tokens.
    """
    speculation = drafting.loop.speculation
    assert speculation is not None, "the pipeline drafts"
    planners = speculation.planners
    speeds: dict[str, list[float]] = {NONE: [], ALL: [], PAYING: []}
    counts = {mode: _Counts(speculation) for mode in (ALL, PAYING)}
    answers: list[list[int]] = []
    for number in range(-1, repeats):  # the first stores prefixes and may compile
        for mode, found in speeds.items():
            speculation.planners = planners if mode == PAYING else {}
            before = _Counts(speculation)
            pipeline = plain if mode == NONE else drafting
            told, seconds = list[list[int]](), 0.0
            for first in range(0, len(prompts), sequences):
                some, took = _run(pipeline, prompts[first : first + sequences], new_tokens)
                told, seconds = told + some, seconds + took
            answers = answers or told
            if told != answers:
                raise DsJaxError(f"{mode}: other tokens than with {NONE}; report this")
            if number >= 0:
                found.append(sum(len(a) - 1 for a in told) / seconds)
                if mode in counts:
                    counts[mode] = _Counts(speculation).minus(before)
    speculation.planners = planners
    modes = {NONE: Mode(tuple(speeds[NONE]))}
    for mode, count in counts.items():
        means = count.verified, count.accepted
        shares = count.shares(count.verified_at), count.shares(count.accepted_at)
        modes[mode] = Mode(tuple(speeds[mode]), *means, dict(count.sizes), count.rested, *shares)
    return Comparison(sequences, sum(map(len, answers)), modes)


class _Counts:
    """What `Speculation` has counted so far."""

    def __init__(self, speculation: Speculation):
        self.rows, self.tokens = speculation.rows, speculation.tokens
        self.verified_at = speculation.verified.copy()
        self.accepted_at = speculation.accepted.copy()
        self.sizes = collections.Counter(speculation.sizes)
        self.rested = speculation.rested

    def minus(self, before: _Counts) -> _Counts:
        """What came since. Mutates this."""
        self.rows -= before.rows
        self.tokens -= before.tokens
        self.verified_at -= before.verified_at
        self.accepted_at -= before.accepted_at
        self.sizes -= before.sizes
        self.rested -= before.rested
        return self

    @property
    def verified(self) -> float:
        """Drafts a sequence and step."""
        return int(self.verified_at.sum()) / max(self.rows, 1)

    @property
    def accepted(self) -> float:
        """Tokens a sequence and step; one where no step made drafts."""
        return self.tokens / self.rows if self.rows else 1.0

    def shares(self, drafts: np.ndarray) -> tuple[float, ...]:
        """Of the sequences and steps that made drafts."""
        return tuple(float(n) / max(self.rows, 1) for n in drafts)


def _run(
    pipeline: Pipeline, prompts: Sequence[Sequence[int]], new_tokens: int
) -> tuple[list[list[int]], float]:
    """Tokens of every answer, and the seconds that decoding took."""
    asked = replica.requests(prompts, [new_tokens] * len(prompts), reuse_prefix=True, to_end=True)
    told: dict[str, list[int]] = {request.request_id: [] for request in asked}
    with replica.watched(pipeline) as records:
        for event in pipeline.engine.run(asked):
            replica.refuse(event)
            if event.token_id is not None:
                told[event.request_id].append(event.token_id)
    last = max(n for n, record in enumerate(records) if record.prefill_tokens)
    return list(told.values()), records[-1].done_at - records[last].done_at


def table(found: Sequence[Comparison]) -> str:
    """Markdown."""
    lines = [
        f"| sequences | {NONE}, tokens/s | {ALL} | {PAYING} | gain of all | gain of those that pay "
        "| paying over all | verified a step | accepted length | steps that rest |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        every, paying = c.modes[ALL], c.modes[PAYING]
        lines.append(
            f"| {c.sequences} | {c.modes[NONE].speed:.0f} | {every.speed:.0f} "
            f"| {paying.speed:.0f} | {c.gain(ALL, NONE):.2f}x | {c.gain(PAYING, NONE):.2f}x "
            f"| {c.gain(PAYING, ALL):.2f}x "
            f"| {every.verified:.2f} -> {paying.verified:.2f} "
            f"| {every.accepted:.2f} -> {paying.accepted:.2f} "
            f"| {paying.rested} of {paying.rested + sum(paying.sizes.values())} |"
        )
    return "\n".join(lines)


def points(found: Sequence[Comparison]) -> dict[str, list[plot.Point]]:
    """Speed of one sequence against that of all, a line a mode."""
    return {
        mode: [
            (c.modes[mode].speed / c.sequences, c.modes[mode].speed, str(c.sequences))
            for c in found
        ]
        for mode in (NONE, ALL, PAYING)
    }


def positions(found: Sequence[Comparison]) -> str:
    """SVG: how often each draft of those that pay is verified and accepted, and accepted of all."""
    series: dict[str, list[plot.Point]] = {}
    for c in found:
        every, paying = c.modes[ALL], c.modes[PAYING]
        lines = {
            "all, accepted": every.accepted_at,
            "paying, verified": paying.verified_at,
            "paying, accepted": paying.accepted_at,
        }
        for name, shares in lines.items():
            series[f"{c.sequences}: {name}"] = [
                (float(number), share, "") for number, share in enumerate(shares, 1)
            ]
    title = "sequences at once: share of steps that make drafts"
    return plot.svg(series, title, "draft", "share")

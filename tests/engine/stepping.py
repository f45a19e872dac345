"""Drives a runner's steps by hand: teacher-forced logits of decode steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ds_jax.engine import batch as batches
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.runner import Runner
from ds_jax.records import SamplingParams

GREEDY = SamplingParams(temperature=0)


def row(
    runner: Runner, ids: Sequence[int], start: int, end: int, slot: int = 0, rank: int = 0
) -> batches.Row:
    """The part [start, end) of a sequence in a slot."""
    before = ids[max(0, start - runner.back) : start]
    pages = runner.pages_of(slot)
    return batches.Row(rank, slot, start, ids[start:end], before, pages, GREEDY, 0)


def remember(runner: Runner, ids: Sequence[int], slot: int = 0) -> None:
    """Makes `ids` the last ones of a slot, as if its steps had sampled them. Mutates the runner."""
    kept = runner.back + 1
    last = ([0] * kept + list(ids))[-kept:]
    recent = runner.state.recent.at[slot].set(jnp.asarray(last, jnp.int32))
    runner.state = dataclasses.replace(runner.state, recent=recent)


def decode_logits(
    runner: Runner, sequences: Sequence[tuple[Sequence[int], int]], key: StepKey
) -> np.ndarray:
    """Logits [B V] of one decode step: the last id of each (ids, slot) is fed."""
    rows = []
    for ids, slot in sequences:
        remember(runner, ids, slot)
        rows.append(row(runner, ids, len(ids) - 1, len(ids), slot))
    output, places = runner.launch(key, rows)
    return np.asarray(output.logits)[places]

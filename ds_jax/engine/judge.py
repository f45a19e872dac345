"""Judges drafts again under masks, behind the step that has verified them without.

Decides what becomes of the drafts of constrained sequences. Never runs the target: its logits of
anchors and drafts are those that the step has left. In: these, mask rows, words. Out: recent ids
and drafts of their slots (donated), as the step would have made them with the masks.

A draft is accepted if it is the token that plain decoding draws there under its mask (the coupled
test of `speculative.verify`), for every constrained sequence: its law is that of plain decoding
whatever is drafted, and nothing of the draft's own law has to be kept. So where the grammar forces
text, that text is drafted.

| words | meaning |
|---|---|
| 0 | slot |
| 1 | drafts that the grammar allows |
| 2- | plain words (`controls`) |
| 2K+1 | ids that must follow the anchor; -1 behind them |
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int

from ds_jax.engine import controls, step, verify_step
from ds_jax.engine.step import State
from ds_jax.engine.verify_step import Judged
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41
from ds_jax.models.context import Context
from ds_jax.records import SamplingParams
from ds_jax.sampling import mask, sample
from ds_jax.speculative import verify
from ds_jax.speculative.state import DraftState

_KNOWN = 2 + controls.WORDS  # where the forced ids start


def words(drafts: int) -> int:
    """Words of a sequence."""
    return _KNOWN + 2 * drafts + 1


def pack(
    drafts: int,
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    slots: Sequence[int],
    allowed: Sequence[int],
    forced: Sequence[Sequence[int]],
    places: Sequence[int],
    total: int,
) -> np.ndarray:
    """Words int32 [total, words] of sequences at these places; the others are padding."""
    out = np.full((total, words(drafts)), -1, np.int32)
    out[:, :_KNOWN] = 0
    out[:, 0] = controls.NOWHERE
    out[places, 0], out[places, 1] = slots, allowed
    out[places, 2:_KNOWN] = controls.pack(params, seeds)
    for place, ids in zip(places, forced, strict=True):
        known = ids[: 2 * drafts + 1]
        out[place, _KNOWN : _KNOWN + len(known)] = known
    return out


def pick(width: int, judged: Judged, places: Int[Array, " N"]) -> Judged:
    """Of N sequences of a step on one rank, with logits [N, width, V]; padding has any sequence's.

    Rows behind those of a sequence are some other's: its lengths say how many are its own.
    """
    at = jnp.minimum(places, len(judged.first) - 1)
    first = judged.first[at]
    rows = first[:, None] + jnp.arange(width, dtype=jnp.int32)[None, :]
    rows = jnp.minimum(rows, len(judged.logits) - 1)
    logits = judged.logits.at[rows].get(mode="promise_in_bounds")
    return Judged(logits, first, judged.lengths[at], judged.anchor[at], judged.line[at])


def run(
    ctx: Context,
    layout: caches.Layout,
    params: deepseek_v41.Params,
    cache: caches.Cache,
    recent: Int[Array, "slots recent"],
    drafts: DraftState,
    judged: Judged,
    words: Int[Array, "N words"],
    rows: Int[Array, "NW X"],
) -> tuple[Int[Array, "slots recent"], DraftState, Int[Array, "slots words"]]:
    """One rank: recent ids, drafts, and the words told of all slots.

    Args:
      judged: of N sequences, as `pick` gives it.
      rows: packed mask rows of anchors and drafts, those of a sequence behind each other.
    """
    n, width, vocab = judged.logits.shape
    k = width - 1
    lengths = jnp.minimum(judged.lengths, words[:, 1])
    judged = dataclasses.replace(judged, lengths=lengths)
    how = controls.unpack(words[:, 2:_KNOWN], judged.anchor)
    number = jnp.repeat(jnp.arange(n), width)
    within = jnp.tile(jnp.arange(width, dtype=jnp.int32), n)
    each = verify.rows_controls(how, number, within)
    logits = mask.refuse(judged.logits.reshape(n * width, vocab), rows)
    plain = sample.sample(logits, each).reshape(n, width)
    verified = jnp.arange(k)[None, :] < lengths[:, None]
    match = (judged.line[:, -k:] == plain[:, :k]) & verified
    accepted = jnp.sum(jnp.cumprod(match.astype(jnp.int32), axis=1), axis=1, dtype=jnp.int32)
    verdict = verify.Verdict(
        accepted=accepted,
        token=plain[jnp.arange(n), accepted],
        accept_prob=match.astype(jnp.float32),
        final=accepted,
    )
    given, known = (ctx, layout, params, cache, recent, drafts, words[:, 0]), words[:, _KNOWN:]
    recent, drafts = verify_step.settle(*given, judged, verdict, how, jnp.ones(n, bool), known)
    return recent, drafts, drafts.told


def build(
    ctx: Context, layout: caches.Layout, mesh: Mesh, param_specs: Any, state: State
) -> tuple[Any, Any]:
    """`pick` and `run`, jitted over the mesh."""
    specs = step.state_specs(state)
    given = (param_specs, specs.cache, step.SPLIT, specs.drafts, step.SPLIT, step.SPLIT, step.SPLIT)
    chosen = functools.partial(pick, layout.drafts + 1)
    judged = functools.partial(run, ctx, layout)
    split = (step.SPLIT, specs.drafts, step.SPLIT)
    return (
        step.over_ranks(chosen, mesh, (step.SPLIT, step.SPLIT), step.SPLIT, donate=()),
        step.over_ranks(judged, mesh, given, split, donate=(2, 3)),
    )

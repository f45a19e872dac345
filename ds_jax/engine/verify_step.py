"""The compiled step that verifies drafts and makes new ones: (state, packed) -> (state, tokens).

Decides what such a step does on a device. Never plans: the host gives the number of verified
drafts, and whose they are follows here from the confidences of these very drafts. In: parameters,
state, one row of words a sequence. Out: the state (donated), what became of every sequence.

Anchors and chosen drafts are packed rows; in front of cache and attention those of a sequence stand
side by side, as a chunk. All are written before any reads, and rows of rejected drafts are
overwritten before they can be read. The rings hold that many rows more than a window. So a
rejection moves nothing.

| words | meaning here |
|---|---|
| 0 | slot |
| 3 | last anchor position in front of which a draft may stand; -1: no drafts |
| 4 | 1: coupled |
| 5 | drafts verified by the rank, at most |
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ds_jax.engine import batch as batches
from ds_jax.engine import controls
from ds_jax.engine.batch import ADDRESS, HEADER
from ds_jax.engine.buckets import StepKey
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, dspark, engram, memory
from ds_jax.models.context import Context
from ds_jax.sampling import sample
from ds_jax.speculative import confidence, draft, ragged, verify
from ds_jax.speculative import state as draft_states
from ds_jax.speculative.state import DraftState

MOST, COUPLED, BUDGET = 3, 4, 5


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Judged:
    """What a step has judged, for sequences that are judged again under masks (`judge`)."""

    logits: jax.Array  # [T V] of anchors and drafts
    first: jax.Array  # [R] int32, row of the anchor
    lengths: jax.Array  # [R] int32, drafts behind it
    anchor: jax.Array  # [R] int32, its position
    line: jax.Array  # [R back+1+K] int32, ids in front of it, itself, the drafts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Served:
    """What a verify step has done, for `step`."""

    cache: caches.Cache
    recent: jax.Array  # [slots back+1]
    drafts: DraftState
    tokens: jax.Array  # [R] the new anchors
    logits: jax.Array  # [R V] that they were drawn from
    judged: Judged


def run(
    ctx: Context,
    layout: caches.Layout,
    key: StepKey,
    back: int,
    params: deepseek_v41.Params,
    tables: engram.HashTables | None,
    cache: caches.Cache,
    recent: Int[Array, "slots recent"],
    drafts: DraftState,
    packed: Int[Array, "R words"],
) -> Served:
    """One step of one rank."""
    if key.rests:
        return _rest(ctx, layout, back, params, tables, cache, recent, drafts, packed)
    slots = packed[:, 0]
    active = slots < layout.num_slots
    at = jnp.minimum(slots, layout.num_slots - 1)
    anchor = drafts.anchor[at]
    room = key.drafts_of_one(layout.drafts)
    allowed = jnp.clip(packed[:, MOST] - anchor, 0, jnp.minimum(drafts.count[at], room))
    allowed = jnp.where(active, allowed, 0)
    survival = confidence.survivals(drafts.confidence[at], allowed)
    chosen = confidence.lengths(survival, jnp.max(packed[:, BUDGET]))
    rows = ragged.pack(chosen, active, key.verify_rows)
    line = jnp.concatenate([recent[at], drafts.tokens[at]], axis=1)
    batch = _batch(rows, line, anchor, slots, packed[:, HEADER:], back)
    packing = _packing(rows, active, room + 1, anchor, slots, packed[:, HEADER:])
    cache, logits = _forward(ctx, layout, params, tables, batch, cache, packing)
    how = controls.unpack(packed[:, ADDRESS:HEADER], anchor)
    coupled = packed[:, COUPLED] > 0
    verdict = verify.verify(logits, rows, how, coupled, drafts.tokens[at], drafts.log_q[at])

    judged = Judged(logits, rows.first, rows.lengths, anchor, line)
    after = settle(ctx, layout, params, cache, recent, drafts, slots, judged, verdict, how, coupled)
    return Served(cache, *after, verdict.token, logits[verdict.final], judged)


def _rest(
    ctx: Context,
    layout: caches.Layout,
    back: int,
    params: deepseek_v41.Params,
    tables: engram.HashTables | None,
    cache: caches.Cache,
    recent: Int[Array, "slots recent"],
    drafts: DraftState,
    packed: Int[Array, "R words"],
) -> Served:
    """Plain decoding from where the device stands: nothing is verified, no drafts are made.

    The drafter's context rows are written, so that its drafts are as good as ever afterwards.
    """
    slots = packed[:, 0]
    active = slots < layout.num_slots
    at = jnp.minimum(slots, layout.num_slots - 1)
    anchor, line = drafts.anchor[at], recent[at]
    batch = caches.Batch(
        token_ids=line[:, back:],
        lookback_ids=line[:, :back],
        start=jnp.where(active, anchor, 0),
        lens=active.astype(jnp.int32),
        slots=jnp.where(active, slots, batches.NO_SLOT),
        page_table=packed[:, HEADER:],
    )
    cache, logits = _forward(ctx, layout, params, tables, batch, cache)
    tokens = sample.sample(logits, controls.unpack(packed[:, ADDRESS:HEADER], anchor + 1))
    number = jnp.arange(len(slots), dtype=jnp.int32)
    line = jnp.concatenate([line, drafts.tokens[at]], axis=1)
    judged = Judged(logits, number, jnp.zeros_like(number), anchor, line)
    newest = jnp.concatenate([line[:, 1 : back + 1], tokens[:, None]], axis=1)
    recent = recent.at[slots].set(newest, mode="drop")
    after = draft_states.started(drafts, slots, anchor + 1, tokens)
    return Served(cache, recent, after, tokens, logits, judged)


def _forward(
    ctx: Context,
    layout: caches.Layout,
    params: deepseek_v41.Params,
    tables: engram.HashTables | None,
    batch: caches.Batch,
    cache: caches.Cache,
    packing: memory.Packing | None = None,
) -> tuple[caches.Cache, Float[Array, "T V"]]:
    """The target on rows of one token each: the cache with their rows and the drafter's, logits."""
    access = memory.Access(layout, fresh=False)
    held, out, _ = deepseek_v41.forward(ctx, access, params, tables, batch, cache, packing=packing)
    assert held is not None, "a step has a cache"
    held = write_context(ctx, layout, params, held, out.taps, batch)
    return held, deepseek_v41.logits(ctx, params, out.hidden[:, 0])


def settle(
    ctx: Context,
    layout: caches.Layout,
    params: deepseek_v41.Params,
    cache: caches.Cache,
    recent: Int[Array, "slots recent"],
    drafts: DraftState,
    slots: Int[Array, " R"],
    judged: Judged,
    verdict: verify.Verdict,
    how: controls.sample.Controls,
    coupled: jax.Array,
    known: Int[Array, "R ids"] | None = None,
) -> tuple[Int[Array, "slots recent"], DraftState]:
    """Recent ids and drafts after a verdict: new anchors, and new drafts behind them.

    Args:
      slots: from their number on: padding.
      judged: the anchors and drafts that were judged; its logits are not read.
      known: ids that must follow the anchors that were judged, 2 K + 1 or fewer and then -1: they
        are drafted instead of the drafter's.
    """
    k, back, line = layout.drafts, recent.shape[1] - 1, judged.line
    active = slots < layout.num_slots
    at = jnp.minimum(slots, layout.num_slots - 1)
    count = verdict.accepted + 1
    number = jnp.arange(len(slots))
    line = jnp.concatenate([line, line[:, :1]], axis=1)  # room for the token behind all drafts
    line = line.at[number, back + count].set(verdict.token)
    kept = line[number[:, None], count[:, None] + jnp.arange(back + 1)[None, :]]
    anchor = judged.anchor + count
    how = dataclasses.replace(how, position=anchor)
    new = make_drafts(ctx, layout, params, cache, at, active, verdict.token, how, coupled)
    if known is not None:
        forced = known[number[:, None], count[:, None] + jnp.arange(k)[None, :]]
        new = dataclasses.replace(
            new,
            tokens=jnp.where(forced >= 0, forced, new.tokens),
            confidence=jnp.where(forced >= 0, 1.0, new.confidence),
        )
    told = draft_states.tell(
        count, line[:, back + 1 :], judged.lengths, new.confidence, verdict.accept_prob, new.tokens
    )
    ready = jnp.full(len(slots), k, jnp.int32)
    after = DraftState(
        tokens=drafts.tokens.at[slots].set(new.tokens, mode="drop"),
        log_q=drafts.log_q.at[slots].set(new.log_q, mode="drop"),
        confidence=drafts.confidence.at[slots].set(new.confidence, mode="drop"),
        count=drafts.count.at[slots].set(ready, mode="drop"),
        anchor=drafts.anchor.at[slots].set(anchor, mode="drop"),
        told=drafts.told.at[slots].set(told, mode="drop"),
    )
    return recent.at[slots].set(kept, mode="drop"), after


def _batch(
    rows: ragged.Rows,
    line: Int[Array, "R ids"],
    anchor: Int[Array, " R"],
    slots: Int[Array, " R"],
    pages: Int[Array, "R Z"],
    back: int,
) -> caches.Batch:
    """Rows of one token; `line`: `back` ids, the anchor, the drafts."""
    of = rows.sequence
    where = rows.within[:, None] + jnp.arange(back + 1)[None, :]
    ids = line[of[:, None], where]
    return caches.Batch(
        token_ids=ids[:, back:],
        lookback_ids=ids[:, :back],
        start=jnp.where(rows.valid, anchor[of] + rows.within, 0),
        lens=rows.valid.astype(jnp.int32),
        slots=jnp.where(rows.valid, slots[of], batches.NO_SLOT),
        page_table=pages[of],
    )


def _packing(
    rows: ragged.Rows,
    active: Bool[Array, " R"],
    width: int,
    anchor: Int[Array, " R"],
    slots: Int[Array, " R"],
    pages: Int[Array, "R Z"],
) -> memory.Packing:
    """The same rows as chunks of `width` tokens."""
    place = jnp.arange(width)[None, :]
    lens = jnp.where(active, rows.lengths + 1, 0)
    chunk = caches.Batch(
        token_ids=jnp.zeros((len(slots), width), jnp.int32),  # the packed rows tell them
        lookback_ids=jnp.zeros((len(slots), 0), jnp.int32),
        start=anchor,
        lens=lens,
        slots=jnp.where(active, slots, batches.NO_SLOT),
        page_table=pages,
    )
    row = jnp.minimum(rows.first[:, None] + place, len(rows.sequence) - 1)
    return memory.Packing(chunk, row, rows.sequence, rows.within)


def write_context(
    ctx: Context,
    layout: caches.Layout,
    params: deepseek_v41.Params,
    cache: caches.Cache,
    taps: tuple[jax.Array, ...],
    batch: caches.Batch,
) -> caches.Cache:
    """Context rows of the drafter for all rows of a batch, into the rings behind the layers'."""
    drafter = params.drafter
    assert drafter is not None, "drafts need a drafter"
    codec = caches.codec(ctx, "window", layout.packed)
    turned = dspark.angles(ctx.model, memory.positions(batch))
    mixed = dspark.context(ctx, drafter, taps)
    window = cache.window
    for n, rows in enumerate(dspark.context_rows(ctx, drafter, mixed, turned)):
        place = (ctx.model.num_hidden_layers + n,)
        window = caches.write_ring(window, place, codec.encode(rows), batch)
    return dataclasses.replace(cache, window=window)


def make_drafts(
    ctx: Context,
    layout: caches.Layout,
    params: deepseek_v41.Params,
    cache: caches.Cache,
    slots: Int[Array, " R"],
    active: jax.Array,
    tokens: Int[Array, " R"],
    how: controls.sample.Controls,
    coupled: jax.Array,
) -> draft.Drafts:
    """Drafts behind the anchors `tokens` at `how.position`."""
    drafter, model, k = params.drafter, ctx.model, layout.drafts
    assert drafter is not None, "drafts need a drafter"
    r = len(slots)
    codec = caches.codec(ctx, "window", layout.packed)
    size = cache.window.shape[2]
    positions = how.position[:, None] + jnp.arange(k)[None, :]
    anchors = jnp.broadcast_to(how.position[:, None], (r, k))
    held = caches.ring_positions(how.position - 1, size)
    contexts = [
        codec.decode(cache.window[model.num_hidden_layers + n, slots], ctx.dtype)
        for n in range(len(drafter.blocks))
    ]
    ids = jnp.full((r, k), model.dspark_noise_token_id, jnp.int32).at[:, 0].set(tokens)
    x, _ = dspark.forward(
        ctx,
        drafter,
        params.embed[ids].astype(ctx.dtype),
        dspark.angles(model, positions),
        contexts,
        dspark.window_mask(model, anchors, held),
        jnp.ones((r, k, k), bool),
        jnp.repeat(active, k),
    )
    base = dspark.base_logits(ctx, drafter, params.head, x.reshape(r * k, -1))
    temperatures = jnp.asarray(layout.confidence_temperatures or (1.0,) * k, jnp.float32)
    return draft.block(ctx, drafter, base.reshape(r, k, -1), x, tokens, how, coupled, temperatures)

"""The compiled steps: (cache, packed batch) -> (cache, tokens).

Decides what one step does on a device and how its arrays are split over the mesh. Never plans,
never looks at a clock. In: parameters, cache, recent ids, one packed array. Out: the same cache
(donated), sampled tokens and logits.

The whole step runs inside one shard_map: attention and caches are local to a rank, experts and
Engram rows are reached by collectives. Sequences, slots and pages are split over both mesh axes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from ds_jax.engine import batch as batches
from ds_jax.engine import verify_step
from ds_jax.engine.buckets import StepKey
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, engram, memory
from ds_jax.models.context import Context
from ds_jax.sampling import logprobs, sample
from ds_jax.sharding.mesh import AXES
from ds_jax.speculative import state as draft_states

SPLIT = P(AXES)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """What a step changes: donated to it and returned."""

    cache: caches.Cache
    recent: jax.Array  # [slots back+1] int32, the last ids of every slot, the newest last
    drafts: draft_states.DraftState | None = None  # where steps verify drafts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepOutput:
    """What a step tells: tokens [B] int32 and float32 logits, [B V] or [B U V] for `all_logits`.

    `scores` int32 [B U words]: `sampling.logprobs` of the token behind every row, where the key
    says so. `report` int32 [B words]: `sampling.logprobs` of `tokens`, where the step was sampled
    in full; zeros if nobody asked for them. `newest` int32 [slots]: the last token drawn in every
    slot, so that one copy tells what all launches of a plan have drawn; [slots words] of
    `speculative.state` where steps verify drafts; `judged` is theirs then.
    """

    tokens: jax.Array
    logits: jax.Array
    scores: jax.Array | None = None
    report: jax.Array | None = None
    newest: jax.Array | None = None
    judged: verify_step.Judged | None = None


def look_back(ctx: Context) -> int:
    """Ids before a token that its Engram rows depend on."""
    return ctx.model.engram_max_ngram_size - 1 if ctx.model.engram_layer_ids else 0


def init_state(ctx: Context, layout: caches.Layout) -> State:
    """The zeroed state of one rank."""
    recent = jnp.zeros((layout.num_slots, look_back(ctx) + 1), jnp.int32)
    drafts = None
    if layout.drafts:
        drafts = draft_states.init(layout.num_slots, layout.drafts, ctx.model.vocab_size)
    return State(caches.init(ctx, layout), recent, drafts)


def step(
    ctx: Context,
    layout: caches.Layout,
    key: StepKey,
    params: deepseek_v41.Params,
    tables: engram.HashTables | None,
    state: State,
    packed: Int[Array, "B words"],
) -> tuple[State, StepOutput]:
    """One step of one rank.

    Sequences whose last chunk this is continue with the sampled token: the next decode step finds
    it in `State.recent`. A chunk that is not the last one leaves a token there that nobody reads.
    """
    back = look_back(ctx)
    if key.verify_rows:
        return _verify(ctx, layout, key, params, tables, state, packed)
    batch, controls = batches.unpack(packed, key, back, state.recent)
    keeps = 0 if key.all_logits or key.scores else layout.keeps
    access = memory.Access(layout, key.fresh, key.flat, keeps)
    cache, out, _ = deepseek_v41.forward(ctx, access, params, tables, batch, state.cache)
    assert cache is not None, "a step has a cache"
    if layout.drafts:
        cache = verify_step.write_context(ctx, layout, params, cache, out.taps, out.batch)
    b, u, d = out.hidden.shape
    if key.all_logits:
        logits = deepseek_v41.logits(ctx, params, out.hidden.reshape(b * u, d)).reshape(b, u, -1)
        after = State(cache, state.recent, state.drafts)
        return after, StepOutput(jnp.zeros(b, jnp.int32), logits)
    last = jnp.maximum(batch.lens - 1, 0)
    kept = jnp.maximum(out.batch.lens - 1, 0)
    logits = deepseek_v41.logits(ctx, params, out.hidden[jnp.arange(b), kept])
    tokens = sample.sample(logits, controls)
    scores = None
    if key.scores:
        follow = batches.following(packed, key).reshape(b * u)
        head = functools.partial(deepseek_v41.logits, ctx, params)
        scores = logprobs.report_rows(head, out.hidden.reshape(b * u, d), follow)
        scores = scores.reshape(b, u, -1)
    line = jnp.concatenate([batch.lookback_ids, batch.token_ids], axis=1)
    kept = jnp.take_along_axis(line, last[:, None] + 1 + jnp.arange(back)[None, :], axis=1)
    newest = jnp.concatenate([kept, tokens[:, None]], axis=1)
    slots = batch.slots
    if key.flat:  # only the newest row of a slot may leave its token there
        slots = jnp.where(batch.newest == batch.start, slots, batches.NO_SLOT)
    recent = state.recent.at[slots].set(newest, mode="drop")
    drafts, told = state.drafts, recent[:, -1]
    if drafts is not None:
        drafts = draft_states.started(drafts, slots, batch.start + batch.lens, tokens)
        told = drafts.told
    return State(cache, recent, drafts), StepOutput(tokens, logits, scores, newest=told)


def _verify(ctx, layout, key: StepKey, params, tables, state: State, packed):
    assert state.drafts is not None, "a step that verifies drafts has some"
    given = state.cache, state.recent, state.drafts
    done = verify_step.run(ctx, layout, key, look_back(ctx), params, tables, *given, packed)
    after = State(done.cache, done.recent, done.drafts)
    told = done.drafts.told
    return after, StepOutput(done.tokens, done.logits, newest=told, judged=done.judged)


def state_specs(state: Any) -> Any:
    """Slots and pages are split over all devices."""
    split: Any = jax.tree.map(lambda _: SPLIT, state)
    return dataclasses.replace(split, cache=dataclasses.replace(split.cache, window=P(None, AXES)))


def build(
    ctx: Context,
    layout: caches.Layout,
    key: StepKey,
    mesh: Mesh | AbstractMesh,
    param_specs: Any,
) -> Callable[..., tuple[State, StepOutput]]:
    """The jitted step over the mesh: (params, tables, state, packed) -> (state, output).

    Args:
      layout: sizes of ONE rank's cache; the state given to the step holds all ranks, slots and
        pages of rank r following those of rank r - 1.
      param_specs: PartitionSpecs with the structure of the parameters.
    Sharding: packed rows of rank r are rows r * B to (r + 1) * B. The state is donated.
    """
    run = functools.partial(step, ctx, layout, key)
    states = state_specs(jax.eval_shape(functools.partial(init_state, ctx, layout)))
    return over_ranks(run, mesh, (param_specs, P(), states, SPLIT), (states, SPLIT), donate=2)


def over_ranks(
    function: Callable[..., Any],
    mesh: Mesh | AbstractMesh,
    in_specs: Any,
    out_specs: Any,
    *,
    donate: int | tuple[int, ...],
) -> Any:
    """A function of one rank, jitted for all ranks of the mesh.

    Args:
      in_specs, out_specs: PartitionSpecs of arguments and results.
      donate: numbers of donated arguments.
    """
    if mesh.size > 1:
        function = jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
    return jax.jit(function, donate_argnums=donate)


def state_maker(ctx: Context, layout: caches.Layout, mesh: Mesh) -> Callable[[], State]:
    """Makes the zeroed state of all ranks, on its devices; compiled once."""
    whole = dataclasses.replace(
        layout,
        num_slots=layout.num_slots * mesh.size,
        num_pages=layout.num_pages * mesh.size,
    )
    make = functools.partial(init_state, ctx, whole)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        state_specs(jax.eval_shape(make)),
        is_leaf=lambda x: isinstance(x, P),
    )
    return jax.jit(make, out_shardings=shardings)

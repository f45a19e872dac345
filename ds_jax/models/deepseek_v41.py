"""The whole text model: embedding, layers, final collapse and head.

Decides the order of layers and what a forward pass returns. Never samples, never schedules.
In: token ids [B U]. Out: hidden of the last layer, logits, named intermediates.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ds_jax import config
from ds_jax.models import cache as caches
from ds_jax.models import dspark, engram, hyper_connections, layer, memory, norm, rope
from ds_jax.models.context import Context
from ds_jax.sharding.params import ParamSpec, declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
    """The text model's parameters."""

    embed: jax.Array  # [V D] bf16
    layers: tuple[layer.LayerParams, ...]
    norm: jax.Array  # [D] bf16
    head: jax.Array  # [V D] bf16
    drafter: dspark.DSparkParams | None = None  # only where drafts are made


def spec(model: config.Model, *, drafter: bool = False) -> Params:
    """Declaration of every parameter of the text model, once; and of its drafter, if asked."""
    v, d = model.vocab_size, model.hidden_size
    return Params(
        embed=declare((v, d), "bf16", (None, None), ("embed.weight",), d),
        layers=tuple(layer.spec(model, i) for i in range(model.num_hidden_layers)),
        norm=declare((d,), "bf16", (None,), ("norm.weight",)),
        head=linear((v, d), "bf16", ("head.weight",)),
        drafter=dspark.spec(model) if drafter else None,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Output:
    """What a forward pass returns besides the cache.

    `batch` is what its rows are of: the given one, or where the decoder side leaves rows out, the
    last rows of every chunk.
    """

    hidden: jax.Array  # [B U D], collapsed and not yet normalised
    taps: tuple[jax.Array, ...]  # [B U D] each, entry of the DSpark target layers
    batch: caches.Batch


def forward(
    ctx: Context,
    access: memory.Access,
    params: Params,
    tables: engram.HashTables | None,
    batch: caches.Batch,
    cache: caches.Cache | None = None,
    is_image: jax.Array | None = None,
    embeds: jax.Array | None = None,
    packing: memory.Packing | None = None,
) -> tuple[caches.Cache | None, Output, dict[str, Any]]:
    """Run all layers on a batch of rows.

    Args:
      tables: hash constants (None: the model has no Engram).
      batch: rows and addresses.
      cache: donated by the step; None in training.
      is_image: bool [B back+U] or None, aligned with look-back ids then token ids.
      embeds: [B U D] instead of embedding lookup (images spliced in), or None.
      packing: the batch is packed rows (U is 1), several of one sequence; how they belong together.
    Returns:
      cache, output, and a trace: per-layer lists of named intermediates, plus `embeds`,
      `engram_hash`, `final_collapsed`. Stacked layers leave no per-layer trace.
    """
    model = ctx.model
    place = _place(ctx, tables, batch, is_image)
    if packing is not None:
        met = _addresses(ctx, packing.batch)
        place = dataclasses.replace(place, packing=packing, met=met)
    h = params.embed[batch.token_ids].astype(ctx.dtype) if embeds is None else embeds
    b, u, d = h.shape
    m = model.hc_mult
    flow = layer.Flow(
        streams=jnp.broadcast_to(h.reshape(1, b * u, d), (m, b * u, d)),
        pre=hyper_connections.first_pre(b * u, m),
        shared=layer.Shared(),
        cache=cache,
    )
    traces: list[layer.Trace] = []
    taps: dict[int, jax.Array] = {}
    number, left_out = 0, False
    for p in params.layers:
        depth = stacked_depth(p)
        where = layer.role(model, number)
        if where.decoder and not left_out and 0 < access.keeps < u:
            flow = layer.publish(ctx, access, p, where, flow, place)
            flow, place, taps = layer.keep_last(access.keeps, flow, place, taps)
            u, left_out = access.keeps, True
            # its compressed rows are there; the kept rows do not start at position 0
            where = dataclasses.replace(where, kind=config.LayerKind.REINDEX)
            access = dataclasses.replace(access, fresh=False)
        if depth == 0:
            flow, seen = layer.forward(ctx, access, p, where, number, flow, place)
            traces.append(seen)
            taps[number] = seen["tap"]
        else:
            reads = model.dspark_target_layer_ids if params.drafter is not None else ()
            flow, tapped = _scan(ctx, access, p, where, number, depth, flow, place, reads)
            taps |= tapped
        number += max(depth, 1)
    hidden = hyper_connections.collapse(ctx, flow.streams, flow.pre).reshape(b, u, d)
    trace = {
        "layers": traces,
        "embeds": h,
        "engram_hash": place.engram_rows,
        "final_collapsed": hidden,
    }
    tapped = tuple(taps[i] for i in model.dspark_target_layer_ids if i in taps)
    return flow.cache, Output(hidden, tapped, place.batch), trace


@jax.named_scope("head")
def logits(ctx: Context, params: Params, hidden: Float[Array, "T D"]) -> Float[Array, "T V"]:
    """Final norm and head: float32 logits from bf16-valued operands. Cost: 2 T D V flops."""
    return ctx.linear_f32(norm.rms_norm(ctx, hidden, params.norm), params.head)


def _place(ctx, tables, batch: caches.Batch, is_image) -> layer.Place:
    place, model = _addresses(ctx, batch), ctx.model
    if model.engram_layer_ids:
        assert tables is not None, "a model with Engram layers needs its hash tables"
        back = batch.lookback_ids.shape[1]
        ids = jnp.concatenate([batch.lookback_ids, batch.token_ids], axis=1)
        dead = batch.start[:, None] - back + jnp.arange(ids.shape[1])[None, :] < 0
        if is_image is not None:
            dead = dead | is_image
        place = dataclasses.replace(place, engram_rows=engram.hash_rows(model, tables, ids, dead))
    if is_image is not None:
        place = dataclasses.replace(place, is_image=is_image[:, batch.lookback_ids.shape[1] :])
    return place


def _addresses(ctx, batch: caches.Batch) -> layer.Place:
    """Of rows whose tokens nobody asks for: where they are read and written."""
    where = memory.positions(batch)
    return layer.Place(
        batch=batch,
        positions=where,
        valid=memory.valid(batch),
        angles_window=rope.angles(where, rope.frequencies(ctx.model, compressed=False)),
        angles_compressed=rope.angles(where, rope.frequencies(ctx.model, compressed=True)),
        engram_rows=None,
        is_image=None,
    )


def stacked_depth(p: layer.LayerParams) -> int:
    """Number of layers stacked in `p`; 0 when it is one plain layer."""
    return p.attn.q_norm.shape[0] if p.attn.q_norm.ndim == 2 else 0


def runs(model: config.Model) -> tuple[tuple[int, int], ...]:
    """(first layer, number of layers) of neighbours with equal role that a step can scan over."""
    found: list[tuple[int, int]] = []
    last = None
    for number in range(model.num_hidden_layers):
        where = layer.role(model, number)
        scannable = (
            where.kind in (config.LayerKind.WINDOW, config.LayerKind.REUSE) and where.engram < 0
        )
        if scannable and where == last:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
        last = where if scannable else None
    return tuple(found)


def stack_layers(model: config.Model, params: Params) -> Params:
    """Stack neighbouring layers of equal role, so that a step scans over them."""
    stacked = tuple(
        jax.tree.map(lambda *a: jnp.stack(a), *params.layers[first : first + depth])
        if depth > 1
        else params.layers[first]
        for first, depth in runs(model)
    )
    return dataclasses.replace(params, layers=stacked)


def stack_spec(model: config.Model, tree: Params) -> Params:
    """Declarations of stacked layers: a leading axis, the names of the first layer of each run."""

    def leading(depth: int, one: ParamSpec) -> Any:
        return dataclasses.replace(one, shape=(depth, *one.shape), axes=(None, *one.axes))

    stacked = tuple(
        jax.tree.map(functools.partial(leading, depth), tree.layers[first])
        if depth > 1
        else tree.layers[first]
        for first, depth in runs(model)
    )
    return dataclasses.replace(tree, layers=stacked)


def unstack_layers(params: Params) -> Params:
    """One entry a layer again, for an unrolled forward pass."""
    layers: list[layer.LayerParams] = []
    for p in params.layers:
        depth = stacked_depth(p)
        layers += [jax.tree.map(lambda a, i=i: a[i], p) for i in range(depth)] if depth else [p]
    return dataclasses.replace(params, layers=tuple(layers))


def _scan(
    ctx, access, p, where: layer.Role, first: int, depth: int, flow: layer.Flow, place, reads
) -> tuple[layer.Flow, dict[int, jax.Array]]:
    """Layers of equal role in one loop; also the taps of those among the layers `reads`."""
    wanted = [i for i in reads if first <= i < first + depth]

    def step(carry: layer.Flow, inputs):
        one, number = inputs
        after, seen = layer.forward(ctx, access, one, where, number, carry, place)
        # the shared selection is a constant of the run: carrying it would copy it every layer
        return dataclasses.replace(after, shared=layer.Shared()), seen["tap"] if wanted else None

    def body(carry, inputs):
        return step(dataclasses.replace(carry, shared=flow.shared), inputs)

    start = dataclasses.replace(flow, shared=layer.Shared())
    end, taps = jax.lax.scan(body, start, (p, jnp.arange(first, first + depth)))
    tapped = {} if taps is None else {i: taps[i - first] for i in wanted}
    return dataclasses.replace(end, shared=flow.shared), tapped

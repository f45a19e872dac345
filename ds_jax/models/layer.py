"""One decoder layer: Engram, then attention and experts, each wrapped in hyper-connections.

Decides the order of a layer's parts and how layers share compressed rows and selections.
Never knows how rows are stored: a `Memory` (cache or plain arrays) keeps them.
In: streams [M B*U D] and the previous site's `pre`. Out: the same, one layer later, and named
intermediates.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from ds_jax import config
from ds_jax.config import LayerKind
from ds_jax.models import (
    attention,
    compressor,
    engram,
    hyper_connections,
    indexer,
    memory,
    moe,
    norm,
    rope,
)
from ds_jax.models import cache as caches
from ds_jax.models.context import Context
from ds_jax.sharding.params import declare


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LayerParams:
    """Parameters of one layer; parts a layer's role does not have are None."""

    attn: attention.AttentionParams
    attn_norm: jax.Array  # [D] bf16
    ffn_norm: jax.Array  # [D] bf16
    hc_attn: hyper_connections.HyperConnectionParams
    hc_ffn: hyper_connections.HyperConnectionParams
    ffn: moe.MoEParams
    compressor: compressor.CompressorParams | None
    indexer: indexer.IndexerParams | None
    engram: engram.EngramParams | None


def spec(model: config.Model, layer: int) -> LayerParams:
    """Declaration of layer `layer`."""
    prefix = f"layers.{layer}"
    kind = model.kind(layer)

    def weight(name: str) -> Any:
        return declare((model.hidden_size,), "bf16", (None,), (f"{prefix}.{name}.weight",))

    return LayerParams(
        attn=attention.spec(model, f"{prefix}.attn"),
        attn_norm=weight("attn_norm"),
        ffn_norm=weight("ffn_norm"),
        hc_attn=hyper_connections.spec(model, f"{prefix}.hc_attn"),
        hc_ffn=hyper_connections.spec(model, f"{prefix}.hc_ffn"),
        ffn=moe.spec(model, f"{prefix}.ffn"),
        compressor=compressor.spec(model, layer) if kind is LayerKind.FULL else None,
        indexer=indexer.spec(model, layer) if kind in (LayerKind.FULL, LayerKind.REINDEX) else None,
        engram=engram.spec(model, layer) if layer in model.engram_layer_ids else None,
    )


@dataclasses.dataclass(frozen=True)
class Role:
    """Static facts about a layer.

    Attributes:
      kind: what attention does here.
      ratio: tokens per compressed row (0: window only).
      source: index of its key-value source among the sources (-1: none).
      makes_candidates: scores candidate blocks for later layers.
      uses_candidates: selects only inside candidate blocks.
      engram: index among the Engram layers (-1: none).
      decoder: behind the first source of ratio 1, that one included.
    """

    kind: LayerKind
    ratio: int
    source: int
    makes_candidates: bool
    uses_candidates: bool
    engram: int
    decoder: bool


def role(model: config.Model, layer: int) -> Role:
    """The role of layer `layer`."""
    kind = model.kind(layer)
    compressed = kind is not LayerKind.WINDOW
    candidate = model.candidate_source_layer_id
    return Role(
        kind=kind,
        ratio=model.ratio(layer),
        source=model.kv_source_layer_ids.index(model.kv_source(layer)) if compressed else -1,
        makes_candidates=candidate == layer,
        uses_candidates=kind is LayerKind.REINDEX and candidate is not None and layer > candidate,
        engram=model.engram_layer_ids.index(layer) if layer in model.engram_layer_ids else -1,
        decoder=layer >= first_decoder_layer(model),
    )


def first_decoder_layer(model: config.Model) -> int:
    """Layers from here on make up the decoder side; the number of layers where there is none."""
    ratios = model.compress_ratios
    return ratios.index(1) if 1 in ratios else model.num_hidden_layers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shared:
    """What a source layer publishes for the layers after it, within one forward pass."""

    index_keys: jax.Array | None = None  # [B C J]
    rows: jax.Array | None = None  # [B C H], None when rows are gathered from pages
    candidates: jax.Array | None = None  # [B U C] bool
    selected: attention.KeySet | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Flow:
    """What travels from layer to layer."""

    streams: jax.Array  # [M B*U D]
    pre: jax.Array  # [M B*U] f32
    shared: Shared
    cache: caches.Cache | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Place:
    """What every layer of a step reads: addresses, angles and hashed rows."""

    batch: caches.Batch
    positions: jax.Array  # [B U]
    valid: jax.Array  # [B U] bool
    angles_window: tuple[jax.Array, jax.Array]  # [B U R/2], layers without compressed rows
    angles_compressed: tuple[jax.Array, jax.Array]  # [B U R/2], the others
    engram_rows: jax.Array | None  # [layers B U columns]
    is_image: jax.Array | None  # [B U] bool
    packing: memory.Packing | None = None  # B packed rows (U is 1) and where they meet
    met: Place | None = None  # the place of that rectangle

    def angles(self, where: Role) -> tuple[jax.Array, jax.Array]:
        """Of a layer's queries and window rows."""
        return self.angles_compressed if where.ratio else self.angles_window


Trace = dict[str, jax.Array]


def forward(
    ctx: Context,
    access: memory.Access,
    p: LayerParams,
    where: Role,
    number: int | jax.Array,
    flow: Flow,
    place: Place,
) -> tuple[Flow, Trace]:
    """One layer. `number` addresses the window ring; everything static is in `where`.

    Returns the flow one layer later and named intermediates (removed by the compiler when unused).
    """
    b, u = place.positions.shape
    tokens, d = flow.streams.shape[1:]
    streams, pre = flow.streams, flow.pre
    flat_image = None if place.is_image is None else place.is_image.reshape(tokens)
    trace: Trace = {}
    if where.engram >= 0:
        assert p.engram is not None and place.engram_rows is not None, (
            "an Engram layer needs hashed rows"
        )
        rows = place.engram_rows[where.engram].reshape(tokens, -1)
        streams, gate = engram.forward(ctx, p.engram, streams, rows, flat_image)
        trace["engram_gate"] = _by_row(gate, b, u)
    trace["tap"] = _tap(ctx, streams).reshape(b, u, d)

    mix, x = _read_streams(ctx, p.hc_attn, p.attn_norm, streams, pre)
    x = x.reshape(b, u, d)
    projected = _project(ctx, p.attn, x, place.angles(where))
    met = place
    if place.packing is not None and place.met is not None:
        met = place.met
        x, projected = jax.tree.map(place.packing.spread, (x, projected))
    flow, window, seen = _rows(ctx, access, p, where, number, flow, met, x, projected)
    o, mass = _attend(
        ctx,
        where.ratio if access.fresh else 0,
        p.attn,
        projected.query,
        met.positions,
        window,
        flow.shared.selected if where.ratio else None,
    )
    if place.packing is not None:
        o = place.packing.gather(o)
    y = _output(ctx, p.attn, o, place.angles(where))
    streams = _write_streams(ctx, streams, y.reshape(tokens, d), mix)
    trace |= seen | {
        "attn_out": y,
        "hc_attn_post": _by_row(mix.post, b, u),
        "hc_attn_comb": _by_row(mix.comb, b, u),
    }
    if mass is not None:
        trace["attn_mass"] = mass

    mix_ffn, x = _read_streams(ctx, p.hc_ffn, p.ffn_norm, streams, mix.pre)
    y, routing = _experts(ctx, p.ffn, x, place.valid.reshape(tokens), flat_image)
    streams = _write_streams(ctx, streams, y, mix_ffn)
    flow = dataclasses.replace(flow, streams=streams, pre=mix_ffn.pre)
    trace |= {
        "ffn_out": y.reshape(b, u, d),
        "router_scores": routing.scores.reshape(b, u, -1),
        "router_indices": routing.expert_ids.reshape(b, u, -1),
        "router_weights": routing.weights.reshape(b, u, -1),
        "hidden": jnp.moveaxis(streams, 0, 1).reshape(b, u, -1, d),
        "pre_mix": _by_row(flow.pre, b, u),
    }
    return flow, trace


def publish(
    ctx: Context, access: memory.Access, p: LayerParams, where: Role, flow: Flow, place: Place
) -> Flow:
    """Compressed rows and index keys of every row of a chunk, by the first decoder layer."""
    assert where.kind is LayerKind.FULL and where.engram < 0, (
        "the decoder side starts with a source of compressed rows that has no Engram"
    )
    x = norm.rms_norm(
        ctx, hyper_connections.collapse(ctx, flow.streams, flow.pre), p.attn_norm
    ).reshape(*place.positions.shape, -1)
    return _compress(ctx, access, p, where, flow, place, x)[0]


def keep_last(
    count: int, flow: Flow, place: Place, taps: dict[int, jax.Array]
) -> tuple[Flow, Place, dict[int, jax.Array]]:
    """The last `count` rows of every sequence, or all rows of one that has fewer."""
    batch, (b, u) = place.batch, place.positions.shape
    first = jnp.maximum(batch.lens - count, 0)
    rows = first[:, None] + jnp.arange(count)[None, :]
    flat = (jnp.arange(b)[:, None] * u + rows).reshape(-1)

    def kept(a: jax.Array) -> jax.Array:
        return jnp.take_along_axis(a, rows.reshape(rows.shape + (1,) * (a.ndim - 2)), axis=1)

    fewer = dataclasses.replace(
        batch, token_ids=kept(batch.token_ids), start=batch.start + first, lens=batch.lens - first
    )
    rest = dataclasses.replace(
        place,
        batch=fewer,
        positions=memory.positions(fewer),
        valid=memory.valid(fewer),
        angles_window=tuple(map(kept, place.angles_window)),
        angles_compressed=tuple(map(kept, place.angles_compressed)),
        engram_rows=None if place.engram_rows is None else jax.vmap(kept)(place.engram_rows),
        is_image=None if place.is_image is None else kept(place.is_image),
    )
    flow = dataclasses.replace(flow, streams=flow.streams[:, flat], pre=flow.pre[:, flat])
    return flow, rest, {number: kept(tap) for number, tap in taps.items()}


def _by_row(weights: jax.Array, b: int, u: int) -> jax.Array:
    """[*s B*U] -> [B U *s]."""
    return jnp.moveaxis(weights, -1, 0).reshape(b, u, *weights.shape[:-1])


def _tap(ctx: Context, streams: jax.Array) -> jax.Array:
    """Mean over streams, rounded: what DSpark reads at a layer's entry."""
    return ctx.round(jnp.mean(ctx.f32(streams), axis=0))


# The parts that all layers share are nested jits: traced and lowered once for a program's layers
# (and for programs of equal shapes) instead of once a layer; the compiler inlines them.


@functools.partial(jax.jit, static_argnums=0)
def _read_streams(ctx, p: hyper_connections.HyperConnectionParams, weight, streams, pre):
    """Mixing weights of a site and its normalised input [T D]."""
    mix = hyper_connections.mix(ctx, p, streams)
    return mix, norm.rms_norm(ctx, hyper_connections.collapse(ctx, streams, pre), weight)


@functools.partial(jax.jit, static_argnums=0)
def _write_streams(ctx, streams, y, mix: hyper_connections.Mix):
    return hyper_connections.expand(ctx, streams, y, mix)


@functools.partial(jax.jit, static_argnums=0)
def _project(ctx, p: attention.AttentionParams, x, angles) -> attention.Projected:
    return attention.project(ctx, p, x, angles)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _attend(ctx, causal_ratio: int, p, query, positions, window, selected):
    """What the heads read [B U N H] and the probability mass of each compressed row."""
    return attention.attend_window(ctx, p.sink, query, positions, window, selected, causal_ratio)


@functools.partial(jax.jit, static_argnums=0)
def _output(ctx, p: attention.AttentionParams, o, angles):
    return attention.output(ctx, p, o, angles)


@functools.partial(jax.jit, static_argnums=0)
def _experts(ctx, p: moe.MoEParams, x, valid, is_image):
    return moe.forward(ctx, p, x, valid, is_image)


def _rows(
    ctx: Context,
    access: memory.Access,
    p: LayerParams,
    where: Role,
    number: int | jax.Array,
    flow: Flow,
    place: Place,
    x: jax.Array,
    projected: attention.Projected,
) -> tuple[Flow, memory.Window, Trace]:
    """Store the layer's rows and find those that its queries may see."""
    cache, window = memory.window(
        ctx, access, flow.cache, number, projected.row, place.batch, decoder=where.decoder
    )
    flow = dataclasses.replace(flow, cache=cache)
    trace: Trace = {"window_kv": ctx.cache_window(projected.row)}
    if where.kind is LayerKind.FULL:
        flow, seen = _compress(ctx, access, p, where, flow, place, x)
        trace |= seen
    if where.kind in (LayerKind.FULL, LayerKind.REINDEX):
        flow, seen = _select(ctx, access, p, where, flow, place, x, projected.low_rank)
        trace |= seen
    return flow, window, trace


def _compress(
    ctx, access, p: LayerParams, where: Role, flow: Flow, place: Place, x
) -> tuple[Flow, Trace]:
    """Pool closed groups into rows and index keys, store both, publish what later layers read."""
    assert p.compressor is not None and p.indexer is not None, (
        "a full layer has a compressor and an indexer"
    )
    batch, source = place.batch, where.source
    parts = compressor.project(ctx, p.compressor, x)
    cache, found = memory.groups(access, flow.cache, source, where.ratio, parts, batch)
    latent = compressor.pool(ctx, p.compressor, found.parts)
    freq = rope.frequencies(ctx.model, compressed=True)
    angles = rope.angles(found.numbers * where.ratio, freq)
    # the indexer learns from its own loss alone; inference is unaffected
    raw_key = indexer.keys(ctx, p.indexer, jax.lax.stop_gradient(latent), angles)
    raw_row = rope.rotate(ctx, latent, *angles)
    cache, keys = memory.append(ctx, access, cache, source, "key", raw_key, found, batch)
    cache, rows = memory.append(ctx, access, cache, source, "row", raw_row, found, batch)
    trace = {
        "compressed_kv": ctx.cache_row(raw_row),
        "index_k": ctx.cache_index(raw_key),
    }
    if keys is None:
        assert cache is not None, "a chunk that is not fresh has a cache"
        keys = memory.read_all(ctx, access, cache, source, "key", batch)
        if not _gathers(ctx, x.shape[1], keys.shape[1]):
            rows = memory.read_all(ctx, access, cache, source, "row", batch)
    return dataclasses.replace(flow, cache=cache, shared=Shared(index_keys=keys, rows=rows)), trace


def _gathers(ctx: Context, queries: int, rows: int) -> bool:
    """Whether chosen rows are gathered per query instead of masking all rows.

    Gathering reads queries * topk rows; masking reads every row once but multiplies with all of
    them.
    """
    k = ctx.model.index_topk
    return rows > k and (queries * k <= rows or rows > 8 * k)


def _select(ctx, access, p: LayerParams, where: Role, flow: Flow, place: Place, x, low_rank):
    """Score the source's rows and publish the selection (and candidate blocks) for the layers
    after.
    """
    assert p.indexer is not None, "an index source has an indexer"
    shared = flow.shared
    keys = shared.index_keys
    assert keys is not None, "an index source follows a key-value source"
    if keys.shape[1] == 0:
        return dataclasses.replace(flow, shared=dataclasses.replace(shared, selected=None)), {}
    visible_lens = (place.positions + 1) // where.ratio
    causal = jnp.arange(keys.shape[1])[None, None, :] < visible_lens[:, :, None]
    cos, sin = place.angles(where)
    low_rank, x = jax.lax.stop_gradient((low_rank, x))
    values = indexer.scores(ctx, p.indexer, low_rank, x, (cos[:, :, None], sin[:, :, None]), keys)
    values = jnp.where(causal, values, -jnp.inf)
    trace = {}
    if where.makes_candidates:
        shared = dataclasses.replace(
            shared, candidates=indexer.candidate_mask(ctx, values, visible_lens)
        )
        trace["candidates"] = shared.candidates
    candidates = shared.candidates if where.uses_candidates else None
    if candidates is not None:
        values = jnp.where(candidates, values, -jnp.inf)
    trace["index_scores"] = values
    k, c = ctx.model.index_topk, keys.shape[1]
    blocks = -(-c // max(ctx.model.candidate_block_size, 1))
    if c <= k and (candidates is None or blocks <= ctx.model.candidate_topk_blocks):
        mask = causal  # everything visible fits: scores do not matter
    else:
        mask = indexer.top_mask(values, k)
    trace["index_mask"] = mask
    if shared.rows is not None:
        selected = attention.KeySet(shared.rows, mask)
    else:
        assert flow.cache is not None, "rows that are not held are in a cache"
        best, ids = jax.lax.top_k(values, k)
        ids = jnp.where(best > -jnp.inf, ids, c)
        ids = jnp.sort(ids, axis=-1)
        rows = memory.read_chosen(
            ctx, access, flow.cache, where.source, jnp.where(ids < c, ids, -1), place.batch
        )
        selected = attention.KeySet(rows, ids < c)
    return dataclasses.replace(flow, shared=dataclasses.replace(shared, selected=selected)), trace

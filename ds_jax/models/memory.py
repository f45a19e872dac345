"""The rows a chunk can see: its own, and through the cache those of earlier steps.

Decides whether keys come from the chunk or from the cache and keeps write-before-read order.
Never selects rows, never computes one. In: new rows of a chunk. Out: the cache with them, key rows
with positions.

`fresh` chunks start at position 0, so they read nothing: the cache is only written. Without a cache
(training) the same path runs and nothing is written.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax.models import cache as caches
from ds_jax.models.context import Context


@dataclasses.dataclass(frozen=True)
class Access:
    """Static description of how a step reaches its rows.

    Attributes:
      layout: sizes of the cache; None without a cache.
      fresh: every sequence of the step starts at position 0.
      shares_slots: rows of one position each, several of which may be of one slot.
      keeps: of a longer chunk, the decoder side computes the last so many rows of each sequence;
        0: all. Nobody may need the others: they are of prompts whose kept rows are no more.
    """

    layout: caches.Layout | None
    fresh: bool
    shares_slots: bool = False
    keeps: int = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Window:
    """Window rows of one layer: rows [B S H], positions [B S] (negative: nothing there).

    ordered: rows follow each other by position and the last U are the chunk's own (static).
    """

    rows: jax.Array
    positions: jax.Array
    ordered: bool = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Groups:
    """Compressor groups a chunk touches."""

    parts: jax.Array  # [B G ratio parts H] f32
    numbers: jax.Array  # [B G] int32, row number of each group
    closed: jax.Array  # [B G] bool, the group's last token is in this chunk or before it


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Packing:
    """T rows of R sequences of different lengths, and the same rows side by side.

    What a row alone decides (projections, experts) is computed for the T packed rows. Where rows
    of a sequence meet (cache, index, attention) they stand in a rectangle, so that what they read
    together is read once.
    """

    batch: caches.Batch  # the rectangle
    row: jax.Array  # [R U] int32, the packed row of a place; any where there is none
    sequence: jax.Array  # [T] int32
    within: jax.Array  # [T] int32, below U

    def spread(self, packed: jax.Array) -> jax.Array:
        """[T 1 ..] -> [R U ..]."""
        return packed[self.row, 0]

    def gather(self, places: jax.Array) -> jax.Array:
        """[R U ..] -> [T 1 ..]."""
        return places[self.sequence, self.within][:, None]


def positions(batch: caches.Batch) -> Int[Array, "B U"]:
    """Absolute position of every row of the batch."""
    return batch.start[:, None] + jnp.arange(batch.token_ids.shape[1])[None, :]


def valid(batch: caches.Batch) -> Bool[Array, "B U"]:
    """Rows that hold a token."""
    return jnp.arange(batch.token_ids.shape[1])[None, :] < batch.lens[:, None]


def window(
    ctx: Context,
    access: Access,
    cache: caches.Cache | None,
    layer: int | jax.Array,
    raw: Float[Array, "B U H"],
    batch: caches.Batch,
    *,
    decoder: bool = False,
) -> tuple[caches.Cache | None, Window]:
    """Store a chunk's window rows and return the rows its queries may look at.

    Few rows: write, then read the ring. A longer chunk would overwrite rows its first queries need,
    so the history is read first.

    Args:
      decoder: the layer is of the decoder side, which has a floor of its own.
    """
    rows = ctx.cache_window(raw)
    floor = batch.decoder_floor if decoder else batch.floor

    def above(at: jax.Array) -> jax.Array:
        return at if floor is None else jnp.where(at >= floor[:, None], at, -1)

    where = above(positions(batch))
    if access.layout is None or cache is None:
        return cache, Window(rows, where, ordered=True)
    codec = caches.codec(ctx, "window", access.layout.packed)
    words = codec.encode(raw)
    w = ctx.model.sliding_window
    if access.fresh:
        ring = caches.write_ring(cache.window, (layer,), words, batch)
        return dataclasses.replace(cache, window=ring), Window(rows, where, ordered=True)
    size = cache.window.shape[2]
    if raw.shape[1] <= size - w + 1:
        ring = caches.write_ring(cache.window, (layer,), words, batch)
        held = codec.decode(_slots(ring, layer, batch), ctx.dtype)
        at = above(caches.ring_positions(batch.last, size))
        return dataclasses.replace(cache, window=ring), Window(held, at, ordered=False)
    ring, line = caches.extend_ring(cache.window, (layer,), words, batch, w)
    held = jnp.concatenate([codec.decode(line[:, :w], ctx.dtype), rows], axis=1)
    at = above(batch.start[:, None] - w + jnp.arange(held.shape[1])[None, :])
    return dataclasses.replace(cache, window=ring), Window(held, at, ordered=True)


def _slots(ring: jax.Array, layer: int | jax.Array, batch: caches.Batch) -> jax.Array:
    """Whole rings of the batch's slots: [B R words]; padding sequences read the last slot."""
    return ring[layer, jnp.minimum(batch.slots, ring.shape[1] - 1)]


def groups(
    access: Access,
    cache: caches.Cache | None,
    source: int,
    ratio: int,
    parts: Float[Array, "B U parts H"],
    batch: caches.Batch,
) -> tuple[caches.Cache | None, Groups]:
    """Cut a chunk into compressor groups, completing the one an earlier step left open."""
    b, u = parts.shape[:2]
    end = (batch.start + batch.lens)[:, None]
    if access.layout is None or cache is None or access.fresh:
        count = u // ratio
        whole = parts[:, : count * ratio].reshape(b, count, ratio, *parts.shape[2:])
        numbers = jnp.broadcast_to(jnp.arange(count)[None, :], (b, count))
        result = Groups(whole, numbers, (numbers + 1) * ratio <= end)
        tail = None if cache is None else cache.tails[source]
        if cache is None or tail is None:
            return cache, result
        words = lax.bitcast_convert_type(parts, jnp.uint32)
        tail = caches.write_ring(tail, (), words, batch)
        return _with_tail(cache, source, tail), result
    first = batch.start[:, None] // ratio
    count = -(-(u + ratio - 1) // ratio)
    numbers = first + jnp.arange(count)[None, :]
    closed = (numbers + 1) * ratio <= end
    if ratio == 1:
        return cache, Groups(parts[:, :, None], numbers, closed)
    tail = cache.tails[source]
    assert tail is not None, f"source {source} with ratio {ratio} has no compressor tail"
    words = lax.bitcast_convert_type(parts, jnp.uint32)
    if access.shares_slots:
        tail = caches.write_ring(tail, (), words, batch)
        line = caches.read_ring(tail, batch, ratio - 1)
    else:
        tail, line = caches.extend_ring(tail, (), words, batch, ratio - 1)
    cache = _with_tail(cache, source, tail)
    line = lax.bitcast_convert_type(line, jnp.float32)
    index = (numbers * ratio - batch.start[:, None] + ratio - 1)[:, :, None] + jnp.arange(ratio)[
        None, None, :
    ]
    index = jnp.clip(index, 0, line.shape[1] - 1)
    taken = line[jnp.arange(b)[:, None, None], index]
    return cache, Groups(taken, numbers, closed)


def _with_tail(cache: caches.Cache, source: int, tail: jax.Array) -> caches.Cache:
    tails = list(cache.tails)
    tails[source] = tail
    return dataclasses.replace(cache, tails=tuple(tails))


def append(
    ctx: Context,
    access: Access,
    cache: caches.Cache | None,
    source: int,
    kind: str,
    raw: Float[Array, "B G width"],
    found: Groups,
    batch: caches.Batch,
) -> tuple[caches.Cache | None, jax.Array | None]:
    """Store closed rows of one source; return the chunk's own quantised rows if it is fresh.

    kind is "row" (compressed rows) or "key" (index keys).
    """
    own = None
    if access.fresh or cache is None:
        own = ctx.cache_row(raw) if kind == "row" else ctx.cache_index(raw)
    if access.layout is None or cache is None:
        return cache, own
    codec = caches.codec(ctx, kind, access.layout.packed)
    name = "rows" if kind == "row" else "keys"
    stores = list(getattr(cache, name))
    keep = found.closed & (batch.slots < access.layout.num_slots)[:, None]
    if batch.write_from is not None:
        ratio = ctx.model.ratio(ctx.model.kv_source_layer_ids[source])
        keep &= found.numbers * ratio >= batch.write_from[:, None]
    stores[source] = caches.write_pages(
        stores[source], codec.encode(raw), found.numbers, keep, batch
    )
    return dataclasses.replace(cache, **{name: tuple(stores)}), own


def read_all(
    ctx: Context, access: Access, cache: caches.Cache, source: int, kind: str, batch: caches.Batch
) -> Float[Array, "B C width"]:
    """Every row of the batch's pages, in order of position."""
    assert access.layout is not None, "reading rows needs a cache"
    pages = (cache.rows if kind == "row" else cache.keys)[source]
    return caches.codec(ctx, kind, access.layout.packed).decode(
        caches.read_pages(pages, batch), ctx.dtype
    )


def read_chosen(
    ctx: Context,
    access: Access,
    cache: caches.Cache,
    source: int,
    ids: Int[Array, "B U K"],
    batch: caches.Batch,
) -> Float[Array, "B U K H"]:
    """The compressed rows each query chose."""
    assert access.layout is not None, "reading rows needs a cache"
    words = caches.read_rows(cache.rows[source], ids, batch)
    return caches.codec(ctx, "row", access.layout.packed).decode(words, ctx.dtype)

"""The device cache of a replica and the rows a step reads from and writes to it.

Decides layouts, codecs and addresses. Never decides who owns a slot or a page (the scheduler does),
never computes a row. In: the cache pytree, the batch's addresses, new rows. Out: the cache, key
rows.

| part | one per | size | address |
|---|---|---|---|
| window | layer | R = W + backtrack rows a slot | position mod R |
| rows, keys | key-value source | pages of P tokens, P / ratio rows | page table |
| tails | source with ratio > 1 | ratio + backtrack - 1 rows a slot | position mod that |

A rejected or padded row is never copied back: positions are overwritten before they can be read.
Arrays are unsigned integers: some versions of jax copy float caches whole on CPU when a row is
written. Two formats hold the same values bit for bit: `packed` (FP8 / FP4 bytes) and `dequantized`
(bf16 words; float32 words where the numerics leave rows unrounded).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax import config
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import quantize


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """All sequences of one data-parallel rank."""

    window: jax.Array  # [L slots R words]
    rows: tuple[jax.Array, ...]  # per source [pages P/ratio words]
    keys: tuple[jax.Array, ...]  # per source [pages P/ratio words]
    tails: tuple[jax.Array | None, ...]  # per source [slots ring 2 H] uint32, None for ratio 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """One step's rows: U tokens of B sequences, padded; all int32.

    Row u of sequence b is at position start[b] + u and real while u < lens[b]. Where U is 1,
    several rows may be of one slot, at following positions; `newest` names the last of them.
    """

    token_ids: jax.Array  # [B U]
    lookback_ids: (
        jax.Array
    )  # [B back], the ids before start (any value before the sequence's start)
    start: jax.Array  # [B]
    lens: jax.Array  # [B]
    slots: jax.Array  # [B], >= number of slots: a padding sequence, writes nothing
    page_table: jax.Array  # [B Z], page numbers in order of position
    # None: no such limit
    write_from: jax.Array | None = (
        None  # [B], compressed rows of positions below it are not written
    )
    floor: jax.Array | None = (
        None  # [B], no window row below it exists, in front of the decoder side
    )
    decoder_floor: jax.Array | None = None  # [B], the same in the layers of the decoder side
    newest: jax.Array | None = None  # [B], last position that the step writes for the row's slot

    @property
    def last(self) -> jax.Array:
        """The newest position of each sequence [B]."""
        return self.start + self.lens - 1 if self.newest is None else self.newest


@dataclasses.dataclass(frozen=True)
class Layout:
    """Static sizes of a cache.

    Attributes:
      num_slots: sequences a rank can hold.
      num_pages: pages a rank can hold.
      page_tokens: tokens of a page (P).
      backtrack: rows that may be overwritten after a step (drafts + 1, at least 1).
      packed: FP8 / FP4 bytes instead of bf16 words, where a quantiser applies.
      drafts: drafts of a sequence and step; with any, the drafter's rings follow the layers'.
      confidence_temperatures: of the drafter's confidence at each draft; empty: 1.
      keeps: decoder rows of a prompt, where its other rows are left out; 0: all are computed.
    """

    num_slots: int
    num_pages: int
    page_tokens: int = 128
    backtrack: int = 1
    packed: bool = False
    drafts: int = 0
    confidence_temperatures: tuple[float, ...] = ()
    keeps: int = 0

    def rings(self, model: config.Model) -> int:
        """Window rings of a slot: one a layer, and one a block of the drafter."""
        return model.num_hidden_layers + (model.num_nextn_predict_layers if self.drafts else 0)

    def window_rows(self, model: config.Model) -> int:
        """Ring rows of one layer and slot."""
        return model.sliding_window + self.backtrack

    def tail_rows(self, ratio: int) -> int:
        """Ring rows of a compressor tail."""
        return ratio + self.backtrack - 1


@dataclasses.dataclass(frozen=True)
class RowCodec:
    """How one kind of row is stored.

    Attributes:
      kind: "window" | "row" | "key".
      width: values a row.
      store: "packed" | "bf16" | "f32".
      quantized: the kind's quantiser applies.
    """

    kind: str
    width: int
    store: str
    quantized: bool

    @property
    def words(self) -> int:
        """Stored words a row: bytes when packed."""
        if self.store != "packed":
            return self.width
        h = self.width
        return {"window": h + h // 32, "row": h // 2 + h // 16, "key": h // 2 + h // 32}[self.kind]

    @property
    def dtype(self) -> jnp.dtype:
        """Unsigned dtype of a word."""
        return jnp.dtype({"packed": "uint8", "bf16": "uint16", "f32": "uint32"}[self.store])

    def encode(self, x: Float[Array, "*s width"]) -> jax.Array:
        """Unquantised rows -> words [*s words]; applies the kind's quantiser.

        Quantising starts from the unquantised row because re-deriving a scale from quantised values
        is not exact for tiny FP4 rows.
        """
        x = x.astype(jnp.float32)
        if self.store == "f32":
            return lax.bitcast_convert_type(x, jnp.uint32)
        if self.store == "bf16":
            if self.quantized:
                x = self._fake()(x)
            return (lax.bitcast_convert_type(x, jnp.uint32) >> 16).astype(jnp.uint16)
        parts = {
            "window": quantize.fp8_parts,
            "row": quantize.fp4_row_parts,
            "key": quantize.fp4_index_parts,
        }[self.kind]
        values, scale = parts(x)
        values, scale = values.reshape(x.shape), scale[..., 0]
        data = quantize.encode_fp8(values) if self.kind == "window" else quantize.encode_fp4(values)
        code = quantize.encode_fp8(scale) if self.kind == "row" else quantize.encode_ue8m0(scale)
        return jnp.concatenate([data, code], axis=-1)

    def _fake(self) -> Callable[[jax.Array], jax.Array]:
        """The kind's quantiser as values on the grid, exact in bfloat16."""
        return {
            "window": quantize.fake_fp8,
            "row": quantize.fake_fp4_row,
            "key": quantize.fake_fp4_index,
        }[self.kind]

    def decode(self, words: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """Words [*s words] -> values [*s width]; exact."""
        if self.store == "f32":
            return lax.bitcast_convert_type(words, jnp.float32).astype(dtype)
        if self.store == "bf16":
            bits = words.astype(jnp.uint32) << 16
            return lax.bitcast_convert_type(bits, jnp.float32).astype(dtype)
        cut = self.width if self.kind == "window" else self.width // 2
        data, code = words[..., :cut], words[..., cut:]
        values = quantize.decode_fp8(data) if self.kind == "window" else quantize.decode_fp4(data)
        scale = quantize.decode_fp8(code) if self.kind == "row" else quantize.decode_ue8m0(code)
        group = self.width // scale.shape[-1]
        grouped = values.reshape(*values.shape[:-1], scale.shape[-1], group) * scale[..., None]
        return grouped.reshape(values.shape).astype(dtype)


def codec(ctx: Context, kind: str, packed: bool) -> RowCodec:
    """The codec of a kind of row under the numerics in force."""
    width = ctx.model.index_head_dim if kind == "key" else ctx.model.head_dim
    group = 16 if kind == "row" else 32
    quantized = ctx.numerics.quantize_cache and width % group == 0
    if packed and quantized:
        return RowCodec(kind, width, "packed", True)
    return RowCodec(kind, width, "bf16" if quantized or ctx.rounds else "f32", quantized)


def init(ctx: Context, layout: Layout) -> Cache:
    """A zeroed cache of one rank."""
    model = ctx.model

    def zeros(kind: str, *lead: int) -> jax.Array:
        c = codec(ctx, kind, layout.packed)
        return jnp.zeros((*lead, c.words), c.dtype)

    ratios = [model.ratio(s) for s in model.kv_source_layer_ids]
    pages = [(layout.num_pages, layout.page_tokens // r) for r in ratios]
    return Cache(
        window=zeros("window", layout.rings(model), layout.num_slots, layout.window_rows(model)),
        rows=tuple(zeros("row", *p) for p in pages),
        keys=tuple(zeros("key", *p) for p in pages),
        tails=tuple(
            jnp.zeros((layout.num_slots, layout.tail_rows(r), 2, model.head_dim), jnp.uint32)
            if r > 1
            else None
            for r in ratios
        ),
    )


def ring_positions(last: Int[Array, " B"], ring: int) -> Int[Array, "B ring"]:
    """Position held by each ring row when `last` is the newest (negative: never written)."""
    return last[:, None] - (last[:, None] - jnp.arange(ring)[None, :]) % ring


def write_ring(ring: jax.Array, lead: tuple, words: jax.Array, batch: Batch) -> jax.Array:
    """Write a chunk's newest rows into ring[*lead, slot, position mod R]; drop older and padded."""
    size = ring.shape[len(lead) + 1]
    offset = jnp.arange(words.shape[1])[None, :]
    keep = (offset < batch.lens[:, None]) & (offset >= batch.lens[:, None] - size)
    place = (batch.start[:, None] + offset) % size
    slots = jnp.where(keep, batch.slots[:, None], ring.shape[len(lead)])
    return ring.at[(*lead, slots, place)].set(words, mode="drop")


def extend_ring(
    ring: jax.Array, lead: tuple, words: Array, batch: Batch, count: int
) -> tuple[jax.Array, jax.Array]:
    """Read the `count` rows in front of a chunk, then write the chunk over them.

    The written line starts with the rows that were read. So the write needs them, and the ring
    changes in place; where only a barrier asked for this order, the whole ring would be copied.

    Returns: the ring, and the line of words [B count+U ...].
    """
    size, num_slots = ring.shape[len(lead) + 1], ring.shape[len(lead)]
    before = batch.start[:, None] - count + jnp.arange(count)[None, :]
    history = ring[(*lead, jnp.minimum(batch.slots, num_slots - 1)[:, None], before % size)]
    line = lax.optimization_barrier(jnp.concatenate([history, words], axis=1))
    earlier = dataclasses.replace(batch, start=batch.start - count, lens=batch.lens + count)
    return write_ring(ring, lead, line, earlier), line


def read_ring(ring: jax.Array, batch: Batch, count: int) -> jax.Array:
    """The `count` rows in front of each row and the row itself: [B count+1 ...], for U = 1.

    Everything of the step is written before: a row finds its neighbours of the same step.
    """
    at = batch.start[:, None] - count + jnp.arange(count + 1)[None, :]
    return ring[jnp.minimum(batch.slots, ring.shape[0] - 1)[:, None], at % ring.shape[1]]


def row_addresses(batch: Batch, row: Int[Array, "B n"], rows_per_page: int) -> Int[Array, "B n"]:
    """Flat address (page * rows_per_page + row in page) of compressed row numbers."""
    width = batch.page_table.shape[1]
    page = jnp.take_along_axis(
        batch.page_table, jnp.clip(row // rows_per_page, 0, width - 1), axis=1
    )
    return page * rows_per_page + row % rows_per_page


def write_pages(
    pages: jax.Array, words: Array, row: Int[Array, "B n"], keep: Array, batch: Batch
) -> jax.Array:
    """Write rows at their page addresses; rows not kept and padding sequences are dropped."""
    z, per_page, width = pages.shape
    address = row_addresses(batch, row, per_page)
    address = jnp.where(keep, address, z * per_page)
    if address.size == 1:  # the write of a single row is one that XLA:CPU copies the pages for
        address = jnp.concatenate([address, jnp.full_like(address, z * per_page)])
        words = jnp.concatenate([words, words])
    flat = pages.reshape(z * per_page, width)
    return flat.at[address].set(words, mode="drop").reshape(pages.shape)


def read_pages(pages: jax.Array, batch: Batch) -> jax.Array:
    """All rows of the batch's page tables, in order: [B Z*rows_per_page words]."""
    b, z = batch.page_table.shape
    return pages[batch.page_table].reshape(b, z * pages.shape[1], pages.shape[2])


def read_rows(pages: jax.Array, row: Int[Array, "B U K"], batch: Batch) -> jax.Array:
    """Chosen rows of each query: [B U K words]; negative numbers read row 0 (mask them)."""
    b, u, k = row.shape
    z, per_page, width = pages.shape
    address = row_addresses(batch, jnp.maximum(row, 0).reshape(b, u * k), per_page)
    return pages.reshape(z * per_page, width)[address].reshape(b, u, k, width)

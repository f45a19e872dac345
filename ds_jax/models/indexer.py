"""Lightning indexer: scores compressed rows for every query and keeps the best.

Decides scores, candidate blocks and the selection. Never reads rows or attends.
In: low-rank queries [B U Q], hidden [B U D], index keys [B C J]. Out: scores, a mask or a list of
rows.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax import config
from ds_jax.models import norm, rope
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import leading
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class IndexerParams:
    """wk and norm_k exist on key-value sources only."""

    wq_b: jax.Array  # [I*J Q] fp8
    weights_proj: jax.Array  # [I D] bf16
    wk: jax.Array | None  # [J H] bf16
    norm_k: jax.Array | None  # [J] bf16


def spec(model: config.Model, layer: int) -> IndexerParams:
    """Declaration of the indexer of an index source layer."""
    i, j = model.index_n_heads, model.index_head_dim
    prefix = f"layers.{layer}.attn.indexer"
    source = layer in model.kv_source_layer_ids
    return IndexerParams(
        wq_b=linear((i * j, model.q_lora_rank), "fp8", (f"{prefix}.wq_b",)),
        weights_proj=linear((i, model.hidden_size), "bf16", (f"{prefix}.weights_proj.weight",)),
        wk=linear((j, model.head_dim), "bf16", (f"{prefix}.wk.weight",)) if source else None,
        norm_k=declare((j,), "bf16", (None,), (f"{prefix}.k_norm.weight",)) if source else None,
    )


@jax.named_scope("indexer.keys")
def keys(
    ctx: Context,
    p: IndexerParams,
    latent: Float[Array, "B G H"],
    angles: tuple[jax.Array, jax.Array],
) -> Float[Array, "B G J"]:
    """Index key of each un-rotated latent: project, normalise, rotate at the group's first
    position, FP4.
    """
    assert p.wk is not None and p.norm_k is not None, "index keys come from key-value sources"
    k = norm.rms_norm(ctx, ctx.linear(latent, p.wk), p.norm_k)
    return ctx.cache_index(rope.rotate(ctx, k, *angles))


@jax.named_scope("indexer.scores")
def scores(
    ctx: Context,
    p: IndexerParams,
    low_rank: Float[Array, "B U Q"],
    x: Float[Array, "B U D"],
    angles: tuple[jax.Array, jax.Array],
    index_keys: Float[Array, "B C J"],
) -> Float[Array, "B U C"]:
    """I_c = sum_i w_i relu(q_i . k_c) in float32; w = (x . weights_proj) / sqrt(I J).

    angles are [B U 1 R/2], for queries split in heads. Cost: 2 B U C I J flops.
    """
    i, j = ctx.model.index_n_heads, ctx.model.index_head_dim
    b, u = x.shape[:2]
    q = ctx.linear_quantized(low_rank, p.wq_b).reshape(b, u, i, j)
    q = ctx.cache_index(rope.rotate(ctx, q, *angles))
    w = ctx.f32(ctx.linear(x, p.weights_proj)) * (i * j) ** -0.5
    one = u == 1  # XLA:CPU multiplies faster with the many rows on the left of the few queries
    dots = jnp.einsum(
        "bcj,buij->bcui" if one else "buij,bcj->buic",
        *((index_keys, q) if one else (q, index_keys)),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    if one:
        dots = jnp.moveaxis(dots, 1, -1)
    total = w[:, :, 0, None] * jax.nn.relu(dots[:, :, 0])
    for head in range(1, i):  # written out: XLA:CPU reduces an inner axis 3 to 5 times slower
        total = total + w[:, :, head, None] * jax.nn.relu(dots[:, :, head])
    return total


def top_mask(values: Float[Array, "*s C"], k: int) -> Bool[Array, "*s C"]:
    """Mask of the k largest values above -inf; ties go to the lower index."""
    real = values > -jnp.inf
    if values.shape[-1] <= k:
        return real
    rows = values.reshape(-1, values.shape[-1])
    return leading.top(rows, k).reshape(values.shape) & real


def candidate_mask(
    ctx: Context, values: Float[Array, "B U C"], visible_lens: Int[Array, "B U"]
) -> Bool[Array, "B U C"]:
    """Rows of the best candidate blocks of each query, whole blocks: later rows of a block are in
    it too.

    A block's score is its maximum; the block holding the last visible row is always kept; blocks
    without a visible row never are.
    """
    size, count = ctx.model.candidate_block_size, ctx.model.candidate_topk_blocks
    c = values.shape[-1]
    blocks = -(-c // size)
    padded = jnp.pad(values, ((0, 0), (0, 0), (0, blocks * size - c)), constant_values=-jnp.inf)
    best = jnp.max(padded.reshape(*values.shape[:2], blocks, size), axis=-1)
    last = (visible_lens - 1) // size
    pinned = (jnp.arange(blocks)[None, None, :] == last[..., None]) & (visible_lens > 0)[..., None]
    kept = top_mask(jnp.where(pinned, jnp.inf, best), count)
    return jnp.repeat(kept, size, axis=-1)[..., :c]

"""Attention with one shared key-value latent: sliding window and selected compressed rows in one
softmax.

Decides projections, masks' use and the softmax. Never reads or writes the cache, never selects
rows.
In: normalised hidden [B U D] and key rows with their visibility. Out: [B U D].
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax import config
from ds_jax.models import norm, rope
from ds_jax.models.context import Context
from ds_jax.models.memory import Window
from ds_jax.pallas_kernels import matmul
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionParams:
    """Projections of one layer; the latent of width H is key and value of all heads."""

    wq_a: jax.Array  # [Q D] fp8
    q_norm: jax.Array  # [Q] bf16
    wq_b: jax.Array  # [N*H Q] fp8
    wkv: jax.Array  # [H D] fp8
    kv_norm: jax.Array  # [H] bf16
    sink: jax.Array  # [N] f32
    wo_a: jax.Array  # [G*O N*H/G] fp8, used as bf16
    wo_b: jax.Array  # [D G*O] fp8


def spec(model: config.Model, prefix: str) -> AttentionParams:
    """Declaration; `prefix` is like `layers.0.attn`."""
    d, n, h, q = model.hidden_size, model.num_attention_heads, model.head_dim, model.q_lora_rank
    g, o = model.o_groups, model.o_lora_rank

    def fp8(name: str, rows: int, width: int) -> Any:
        return linear((rows, width), "fp8", (f"{prefix}.{name}",))

    def weight(name: str, width: int) -> Any:
        return declare((width,), "bf16", (None,), (f"{prefix}.{name}.weight",))

    return AttentionParams(
        wq_a=fp8("wq_a", q, d),
        q_norm=weight("q_norm", q),
        wq_b=fp8("wq_b", n * h, q),
        wkv=fp8("wkv", h, d),
        kv_norm=weight("kv_norm", h),
        sink=declare((n,), "f32", (None,), (f"{prefix}.attn_sink",), fill=0.0, keep_f32=True),
        # cut into groups of heads before it is multiplied, so it stays as it is stored
        wo_a=declare((g * o, n * h // g), "fp8", (None, None), (f"{prefix}.wo_a",), n * h // g),
        wo_b=fp8("wo_b", d, g * o),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Projected:
    """What one layer projects from its input."""

    low_rank: jax.Array  # [B U Q], feeds the query heads and the indexer
    query: jax.Array  # [B U N H], rotated
    row: jax.Array  # [B U H], rotated and quantised: the window row, key and value


@jax.named_scope("attention.project")
def project(
    ctx: Context, p: AttentionParams, x: Float[Array, "B U D"], angles: tuple[jax.Array, jax.Array]
) -> Projected:
    """Queries and window rows of a chunk; angles are [B U R/2]."""
    n, h = ctx.model.num_attention_heads, ctx.model.head_dim
    b, u = x.shape[:2]
    low_rank = norm.rms_norm(ctx, ctx.linear_quantized(x, p.wq_a), p.q_norm)
    query = ctx.linear_quantized(low_rank, p.wq_b).reshape(b, u, n, h)
    cos, sin = angles
    query = rope.rotate(ctx, query, cos[:, :, None], sin[:, :, None])
    return Projected(low_rank, query, window_row(ctx, p, x, angles))


def window_row(
    ctx: Context, p: AttentionParams, x: Float[Array, "B U D"], angles: tuple[jax.Array, jax.Array]
) -> Float[Array, "B U H"]:
    """The latents that stand in a window, rotated and quantised; angles are [B U R/2]."""
    row = norm.rms_norm(ctx, ctx.linear_quantized(x, p.wkv), p.kv_norm)
    return ctx.cache_window(rope.rotate(ctx, row, *angles))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KeySet:
    """Rows to attend to and which query may see which.

    rows: [B S H], shared by the queries of a sequence, or [B U S H], gathered for each query.
    visible: bool [B U S].
    """

    rows: jax.Array
    visible: jax.Array


def attend(
    ctx: Context, sink: Float[Array, " N"], query: Float[Array, "B U N H"], sets: list[KeySet]
) -> tuple[Float[Array, "B U N H"], Float[Array, "B U S"]]:
    """One softmax over all sets: o = sum b(p) k / (sum p + exp(sink - max)).

    The sink only enters the denominator; a group that covers window tokens is not de-duplicated.
    Numerics: scores and sums in float32, p rounded for the value product, the denominator is not;
    the result is rounded once. Cost: 4 B U N S H flops.
    Returns: the output, and the probability of each row of the last set summed over heads.
    """
    scale = ctx.model.head_dim**-0.5
    scored = []
    for keys in sets:
        per_query = keys.rows.ndim == 4
        s = jnp.einsum(
            "bunh,bush->buns" if per_query else "bunh,bsh->buns",
            query,
            keys.rows,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        scored.append(jnp.where(keys.visible[:, :, None, :], s * scale, -jnp.inf))
    top = scored[0].max(axis=-1, keepdims=True)
    for s in scored[1:]:
        top = jnp.maximum(top, s.max(axis=-1, keepdims=True))
    top = lax.stop_gradient(jnp.maximum(top, -1e30))  # a query that sees nothing: padding rows
    total = jnp.exp(sink[None, None, :, None] - top)
    out = 0.0
    p = top
    for keys, s in zip(sets, scored, strict=True):
        p = jnp.exp(s - top)
        total = total + p.sum(axis=-1, keepdims=True)
        out = out + jnp.einsum(
            "buns,bush->bunh" if keys.rows.ndim == 4 else "buns,bsh->bunh",
            ctx.round(p),
            keys.rows,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
    return ctx.round(out / total), jnp.sum(p / total, axis=2)


@jax.named_scope("attention.output")
def output(
    ctx: Context,
    p: AttentionParams,
    o: Float[Array, "B U N H"],
    angles: tuple[jax.Array, jax.Array],
) -> Float[Array, "B U D"]:
    """Undo the query's rotation, project each group of heads, then mix groups.

    wo_a takes unquantised input (the reference uses it in bf16); wo_b is a quantised linear.
    """
    g, rank = ctx.model.o_groups, ctx.model.o_lora_rank
    b, u = o.shape[:2]
    cos, sin = angles
    o = rope.rotate(ctx, o, cos[:, :, None], sin[:, :, None], inverse=True)
    grouped = o.reshape(b * u, g, -1)
    weight = matmul.dequantize(p.wo_a, ctx.dtype).reshape(g, rank, -1)
    mixed = jnp.einsum(
        "tgi,goi->tgo",
        grouped,
        weight,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return ctx.linear_quantized(ctx.round(mixed).reshape(b, u, g * rank), p.wo_b)


@jax.named_scope("attention.attend_window")
def attend_window(
    ctx: Context,
    sink: Float[Array, " N"],
    query: Float[Array, "B U N H"],
    query_positions: Int[Array, "B U"],
    window: Window,
    compressed: KeySet | None,
    causal_ratio: int = 0,
) -> tuple[Float[Array, "B U N H"], Float[Array, "B U C"] | None]:
    """`attend` over a layer's window rows and the selected compressed rows.

    Ordered rows are cut into blocks of queries, so that a query meets W + block keys instead of
    all.

    Args:
      causal_ratio: ratio of compressed rows that belong to this very chunk, starting at position 0
      (then a
        block of queries only meets rows closed before its end); 0 when they come from the cache.
    Returns: the output, and the probability mass of each compressed row (None without any).
    """
    w = ctx.model.sliding_window
    u, held = query.shape[1], window.rows.shape[1]

    def visible(at: jax.Array, keys: jax.Array) -> jax.Array:
        i, j = at[:, :, None], keys[:, None, :]
        return (j >= 0) & (j <= i) & (j > i - w)

    block = max(64, w // 2)
    if not window.ordered or u <= block:
        own = KeySet(window.rows, visible(query_positions, window.positions))
        if compressed is None:
            return attend(ctx, sink, query, [own])[0], None
        return attend(ctx, sink, query, [own, compressed])
    pieces, masses = [], []
    for first in range(0, u, block):
        last = min(first + block, u)
        low = max(held - u + first - (w - 1), 0)
        high = held - u + last
        at = query_positions[:, first:last]
        sets = [KeySet(window.rows[:, low:high], visible(at, window.positions[:, low:high]))]
        if compressed is not None:
            mask, rows = compressed.visible[:, first:last], compressed.rows
            if rows.ndim == 4:
                rows = rows[:, first:last]
            elif causal_ratio:
                rows, mask = rows[:, : last // causal_ratio], mask[:, :, : last // causal_ratio]
            sets.append(KeySet(rows, mask))
        o, mass = attend(ctx, sink, query[:, first:last], sets)
        pieces.append(o)
        if compressed is not None:
            missing = compressed.rows.shape[-2] - mass.shape[-1]
            masses.append(jnp.pad(mass, ((0, 0), (0, 0), (0, missing))))
    return jnp.concatenate(pieces, axis=1), jnp.concatenate(masses, axis=1) if masses else None

"""Compressor: pools `ratio` neighbouring tokens into one latent row.

Decides the pooling and its carried state. Never writes the cache.
In: hidden [B U D]. Out: per-token (key, gate) projections, latents of closed groups.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ds_jax import config
from ds_jax.models import norm
from ds_jax.models.context import Context
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CompressorParams:
    """wgate is None where the ratio is 1."""

    wkv: jax.Array  # [H D] bf16
    wgate: jax.Array | None  # [H D] bf16
    norm: jax.Array  # [H] bf16


def spec(model: config.Model, layer: int) -> CompressorParams:
    """Declaration of the compressor of a key-value source layer."""
    h, d = model.head_dim, model.hidden_size
    prefix = f"layers.{layer}.attn.compressor"
    gated = model.ratio(layer) > 1
    return CompressorParams(
        wkv=linear((h, d), "bf16", (f"{prefix}.wkv.weight",)),
        wgate=linear((h, d), "bf16", (f"{prefix}.wgate.weight",)) if gated else None,
        norm=declare((h,), "bf16", (None,), (f"{prefix}.norm.weight",)),
    )


@jax.named_scope("compressor.project")
def project(
    ctx: Context, p: CompressorParams, x: Float[Array, "B U D"]
) -> Float[Array, "B U parts H"]:
    """Per-token (gate, key) float32 pair for ratio > 1, or the rounded key alone for ratio 1."""
    if p.wgate is None:
        return ctx.linear(x, p.wkv)[:, :, None, :]
    return jnp.stack([ctx.linear_f32(x, p.wgate), ctx.linear_f32(x, p.wkv)], axis=2)


@jax.named_scope("compressor.pool")
def pool(
    ctx: Context, p: CompressorParams, group: Float[Array, "B G ratio parts H"]
) -> Float[Array, "B G H"]:
    """Latent of each group: per-channel softmax of the gates over the group, rounded, then
    normalised.
    """
    if p.wgate is None:
        return norm.rms_norm(ctx, group[:, :, 0, 0], p.norm)
    weight = jax.nn.softmax(group[:, :, :, 0], axis=2)
    pooled = ctx.round(jnp.sum(weight * group[:, :, :, 1], axis=2))
    return norm.rms_norm(ctx, pooled, p.norm)

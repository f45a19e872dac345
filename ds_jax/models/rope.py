"""Rotary position embedding: interleaved pairs over the last channels of a vector, YaRN where rows
are compressed.

Decides frequencies and the rotation. Never decides which vectors are rotated.
In: positions [*s] int32. Out: cos and sin [*s R/2] float32; rotated vectors.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax import config
from ds_jax.models.context import Context


def frequencies(model: config.Model, *, compressed: bool) -> np.ndarray:
    """float32 [R/2]: theta**(-2i/R), for compressed layers blended with /factor by YaRN's ramp.

    r_i = clamp((i - low) / (high - low), 0, 1); f_i = g_i * (1 - r_i) + g_i / factor * r_i with
    low, high = floor, ceil of R * ln(original / (2 pi beta)) / (2 ln theta). No attention
    temperature.
    """
    dim = model.qk_rope_head_dim
    base = model.compress_rope_theta if compressed else model.rope_theta
    index = np.arange(dim // 2, dtype=np.float32)
    freq = (1.0 / np.power(np.float32(base), (2 * index / np.float32(dim)))).astype(np.float32)
    scaling = model.rope_scaling
    if not compressed or scaling is None:
        return freq

    def correction(beta: float) -> float:
        original = scaling.original_max_position_embeddings
        return dim * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction(scaling.beta_fast)), 0)
    high = min(math.ceil(correction(scaling.beta_slow)), dim - 1)
    width = max(high - low, 0.001)
    ramp = np.clip((index - np.float32(low)) / np.float32(width), 0, 1).astype(np.float32)
    return (freq / np.float32(scaling.factor) * ramp + freq * (1 - ramp)).astype(np.float32)


def angles(positions: Int[Array, "*s"], freq: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """(cos, sin) float32 [*s R/2] of float32(position) * f_i; the product is one float32
    rounding.
    """
    theta = positions.astype(jnp.float32)[..., None] * freq.reshape(
        (1,) * positions.ndim + freq.shape
    )
    return jnp.cos(theta), jnp.sin(theta)


@jax.named_scope("rope")
def rotate(
    ctx: Context,
    x: Float[Array, "*s d"],
    cos: Float[Array, "*s r"],
    sin: Float[Array, "*s r"],
    *,
    inverse: bool = False,
) -> Float[Array, "*s d"]:
    """Rotate the last 2r channels as pairs (2i, 2i+1): (a, b) -> (a cos - b sin, a sin + b cos).

    `inverse` negates sin. Computed in float32, rounded once; the other channels pass unchanged.
    cos and sin broadcast against x's leading axes (same rank).
    """
    width = 2 * cos.shape[-1]
    head, tail = lax.split(x, [x.shape[-1] - width, width], axis=x.ndim - 1)
    tail = ctx.f32(tail)
    pairs = tail.reshape(*tail.shape[:-1], width // 2, 2)
    swapped = jnp.flip(pairs, axis=-1)
    sign = jnp.array([1.0, -1.0] if inverse else [-1.0, 1.0]).reshape((1,) * x.ndim + (2,))
    turned = (pairs * cos[..., None] + swapped * (sin[..., None] * sign)).reshape(tail.shape)
    return jnp.concatenate([head, ctx.round(turned).astype(x.dtype)], axis=-1)

"""Root-mean-square normalisation with one rounding.

In: values in the activation dtype and a weight. Out: the activation dtype.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ds_jax.models.context import Context


@jax.named_scope("rms_norm")
@functools.partial(jax.checkpoint, static_argnums=0)
def rms_norm(
    ctx: Context, x: Float[Array, "*s d"], weight: Float[Array, " d"]
) -> Float[Array, "*s d"]:
    """x * rsqrt(mean(x^2) + eps) * weight in float32, then one rounding.

    Numerics: the weight multiply happens in float32 before the only rounding; eps is 1e-20, so a
    zero vector stays zero. Source: the checkpoint's reference.
    """
    v = ctx.f32(x)
    inverse = lax.rsqrt(jnp.mean(v * v, axis=-1, keepdims=True) + ctx.model.rms_norm_eps)
    w = weight.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + weight.shape)
    return ctx.round(v * inverse * w)

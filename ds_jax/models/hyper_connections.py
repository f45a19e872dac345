"""Single-pass manifold-constrained hyper-connections: M residual streams mixed by a doubly stochastic matrix.

Decides how a sub-layer reads its input from the streams and writes its output back.
Never runs the sub-layer. In: streams [T M D]. Out: mixing weights, collapsed input, updated streams.

Each site collapses with the `pre` computed by the previous site: the first layer's is one-hot on stream 0.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ds_jax import config
from ds_jax.models import norm
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import matmul
from ds_jax.sharding.params import ParamSpec


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HyperConnectionParams:
    """One site (attention or feed-forward)."""

    fn: jax.Array  # [(2+M)M M*D] f32
    base: jax.Array  # [(2+M)M] f32
    scale: jax.Array  # [3] f32: pre, post, combination


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mix:
    """Mixing weights of one site."""

    pre: jax.Array  # [T M] f32, collapses at the NEXT site
    post: jax.Array  # [T M] f32, weight of the sub-layer's output per stream
    comb: jax.Array  # [T M M] f32, comb[t, j, k]: source stream j, destination stream k


def spec(model: config.Model, prefix: str) -> HyperConnectionParams:
    """Declaration; `prefix` is like `layers.0.hc_attn`."""
    m = model.hc_mult
    width = m * model.hidden_size
    return HyperConnectionParams(
        fn=ParamSpec(
            ((2 + m) * m, width), "f32", (None, None), (f"{prefix}_fn",), width, keep_f32=True
        ),
        base=ParamSpec(
            ((2 + m) * m,), "f32", (None,), (f"{prefix}_base",), fill=0.0, keep_f32=True
        ),
        scale=ParamSpec((3,), "f32", (None,), (f"{prefix}_scale",), fill=0.1, keep_f32=True),
    )


def sinkhorn(logits: Float[Array, "M M T"], iterations: int, eps: float) -> Float[Array, "M M T"]:
    """Softmax over destinations, then alternate column and row normalisation (columns last).

    Axis 0 is the source stream j, axis 1 the destination k. Tokens come last so that every step is
    element-wise over long vectors; the sums are written out because M is tiny.
    """
    m = logits.shape[0]

    def over(c, axis):
        parts = [jax.lax.index_in_dim(c, i, axis, keepdims=True) for i in range(m)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    c = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    c = c / over(c, 1) + eps
    c = c / (over(c, 0) + eps)
    for _ in range(iterations - 1):
        c = c / (over(c, 1) + eps)
        c = c / (over(c, 0) + eps)
    return c


def mix(ctx: Context, p: HyperConnectionParams, streams: Float[Array, "T M D"]) -> Mix:
    """Mixing weights from all streams at once.

    u = (fn . v) * rsqrt(mean(v^2) + 1e-20) with v the flattened streams;
    pre = sigmoid(u0 s0 + b) + eps, post = 2 sigmoid(u1 s1 + b), comb = sinkhorn(u2 s2 + b).

    Numerics: float32 throughout, whatever the policy. Cost: 2 T (2+M)M M D flops.
    """
    m, eps = ctx.model.hc_mult, ctx.model.hc_eps
    tokens = streams.shape[0]
    v = ctx.f32(streams).reshape(tokens, m * streams.shape[2])
    u = matmul.matmul(v, p.fn) * norm.mean_square_rsqrt(v, ctx.model.rms_norm_eps)
    u = u.T  # [(2+M)M T]: tokens last
    scale = jnp.repeat(p.scale, jnp.array([m, m, m * m]), total_repeat_length=(2 + m) * m)
    u = u * scale[:, None] + p.base[:, None]
    pre = jax.nn.sigmoid(u[:m]) + eps
    post = 2.0 * jax.nn.sigmoid(u[m : 2 * m])
    comb = sinkhorn(u[2 * m :].reshape(m, m, tokens), ctx.model.hc_sinkhorn_iters, eps)
    return Mix(pre=pre.T, post=post.T, comb=jnp.transpose(comb, (2, 0, 1)))


def collapse(
    ctx: Context, streams: Float[Array, "T M D"], pre: Float[Array, "T M"]
) -> Float[Array, "T D"]:
    """sum_j pre_j X_j, float32 sum, one rounding."""
    x = ctx.f32(streams)
    total = pre[:, 0, None] * x[:, 0]
    for j in range(1, x.shape[1]):
        total = total + pre[:, j, None] * x[:, j]
    return ctx.round(total)


def expand(
    ctx: Context, streams: Float[Array, "T M D"], y: Float[Array, "T D"], weights: Mix
) -> Float[Array, "T M D"]:
    """X'_k = post_k y + sum_j comb[j, k] X_j, float32 sum, one rounding."""
    x = ctx.f32(streams)
    total = weights.post[:, :, None] * ctx.f32(y)[:, None, :]
    for j in range(x.shape[1]):
        total = total + weights.comb[:, j, :, None] * x[:, j, None, :]
    return ctx.round(total)


def first_pre(tokens: int, m: int) -> Float[Array, "T M"]:
    """The first layer's collapse: one-hot on stream 0."""
    return jnp.broadcast_to(jnp.arange(m) == 0, (tokens, m)).astype(jnp.float32)

"""Single-pass manifold-constrained hyper-connections: M residual streams mixed by a doubly
stochastic matrix.

Decides how a sub-layer reads its input from the streams and writes its output back.
Never runs the sub-layer. In: streams [M T D]. Out: mixing weights, collapsed input, updated
streams.

The stream axis comes first and mixing weights keep tokens last, so every operation is a plain
element-wise pass over [T D], which XLA:CPU vectorises. `expand` is a loop over destination streams
because a loop is the one boundary that the compiler respects there: it otherwise repeats a stream's
arithmetic in each of its readers, M times more at every site, forward and backward.

Differentiated, each function keeps its inputs only and recomputes: its products over M streams are
larger than what they are made of.

Each site collapses with the `pre` computed by the previous site: the first layer's is one-hot on
stream 0.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ds_jax import config
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import matmul
from ds_jax.sharding.params import declare


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

    pre: jax.Array  # [M T] f32, collapses at the NEXT site
    post: jax.Array  # [M T] f32, weight of the sub-layer's output per stream
    comb: jax.Array  # [M M T] f32, comb[j, k, t]: source stream j, destination stream k


def spec(model: config.Model, prefix: str) -> HyperConnectionParams:
    """Declaration; `prefix` is like `layers.0.hc_attn`."""
    m = model.hc_mult
    width = m * model.hidden_size
    return HyperConnectionParams(
        fn=declare(
            ((2 + m) * m, width), "f32", (None, None), (f"{prefix}_fn",), width, keep_f32=True
        ),
        base=declare(((2 + m) * m,), "f32", (None,), (f"{prefix}_base",), fill=0.0, keep_f32=True),
        scale=declare((3,), "f32", (None,), (f"{prefix}_scale",), fill=0.1, keep_f32=True),
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

    def step(
        _, c
    ):  # a loop, not unrolled: XLA:CPU compiles and runs the small body many times faster
        c = c / (over(c, 1) + eps)
        return c / (over(c, 0) + eps)

    return jax.lax.fori_loop(0, iterations - 1, step, c)


@jax.named_scope("hyper_connections.mix")
@functools.partial(jax.checkpoint, static_argnums=0)
def mix(ctx: Context, p: HyperConnectionParams, streams: Float[Array, "M T D"]) -> Mix:
    """Mixing weights from all streams at once.

    u = (fn . v) * rsqrt(mean(v^2) + 1e-20) with v the concatenated streams;
    pre = sigmoid(u0 s0 + b) + eps, post = 2 sigmoid(u1 s1 + b), comb = sinkhorn(u2 s2 + b).

    Numerics: float32 throughout, whatever the policy. Cost: 2 T (2+M)M M D flops.
    """
    m, tokens, d = streams.shape
    eps = ctx.model.hc_eps
    # side by side: a product for each stream would copy its columns of fn in every step
    joined = jnp.swapaxes(ctx.f32(streams), 0, 1).reshape(tokens, m * d)
    square = jnp.sum(joined * joined, axis=-1)
    inverse = jax.lax.rsqrt(square / (m * d) + ctx.model.rms_norm_eps)
    u = matmul.matmul(joined, p.fn).T * inverse[None, :]  # [(2+M)M T]: tokens last
    scale = jnp.repeat(p.scale, jnp.array([m, m, m * m]), total_repeat_length=(2 + m) * m)
    u = u * scale[:, None] + p.base[:, None]
    pre = jax.nn.sigmoid(u[:m]) + eps
    post = 2.0 * jax.nn.sigmoid(u[m : 2 * m])
    comb = sinkhorn(u[2 * m :].reshape(m, m, tokens), ctx.model.hc_sinkhorn_iters, eps)
    return Mix(pre, post, comb)


@jax.named_scope("hyper_connections.collapse")
@functools.partial(jax.checkpoint, static_argnums=0)
def collapse(
    ctx: Context, streams: Float[Array, "M T D"], pre: Float[Array, "M T"]
) -> Float[Array, "T D"]:
    """sum_j pre_j X_j, float32 sum, one rounding."""
    total = pre[0][:, None] * ctx.f32(streams[0])
    for j in range(1, streams.shape[0]):
        total = total + pre[j][:, None] * ctx.f32(streams[j])
    return ctx.round(total)


@jax.named_scope("hyper_connections.expand")
def expand(
    ctx: Context, streams: Float[Array, "M T D"], y: Float[Array, "T D"], weights: Mix
) -> Float[Array, "M T D"]:
    """X'_k = post_k y + sum_j comb[j, k] X_j, float32 sum, one rounding."""
    sources = jnp.concatenate([ctx.f32(y)[None], ctx.f32(streams)])
    matrix = jnp.concatenate([weights.post[None], weights.comb])
    return ctx.round(combine(sources, matrix))


@jax.custom_vjp
def combine(sources: Float[Array, "J T D"], matrix: Float[Array, "J K T"]) -> Float[Array, "K T D"]:
    """out[k, t] = sum_j matrix[j, k, t] sources[j, t]; its gradient is the same loop,
    transposed.
    """

    def one(_, column):
        total = column[0][:, None] * sources[0]
        for j in range(1, sources.shape[0]):
            total = total + column[j][:, None] * sources[j]
        return None, total

    return jax.lax.scan(one, None, jnp.swapaxes(matrix, 0, 1))[1]


def _combine_backward(saved, gradient):
    sources, matrix = saved

    def one(_, source):
        return None, jnp.stack([jnp.sum(source * g, axis=-1) for g in gradient])

    d_matrix = jax.lax.scan(one, None, sources)[1]
    return combine(gradient, jnp.swapaxes(matrix, 0, 1)), d_matrix


def _combine_forward(sources, matrix):
    return combine(sources, matrix), (sources, matrix)


combine.defvjp(_combine_forward, _combine_backward)


def first_pre(tokens: int, m: int) -> Float[Array, "M T"]:
    """The first layer's collapse: one-hot on stream 0."""
    return jnp.broadcast_to((jnp.arange(m) == 0)[:, None], (m, tokens)).astype(jnp.float32)

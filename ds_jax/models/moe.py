"""Mixture of experts: router with a selection-only bias, clamped SwiGLU experts, one shared expert.

Decides routing and the expert mathematics. Dispatch between devices is in sharding.collectives,
the grouped products are in pallas_kernels.grouped_matmul.
In: normalised hidden [T D]. Out: [T D] and the router's choices.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ds_jax import config
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import grouped_matmul, matmul
from ds_jax.sharding import collectives
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MoEParams:
    """Router, routed experts (gate and up rows stacked: w13) and the shared expert."""

    gate: jax.Array  # [E D] bf16
    bias: jax.Array  # [E] f32, selection only
    bias_vl: jax.Array  # [E] f32, selection of image tokens
    w13: jax.Array  # [E 2F D] fp4
    w2: jax.Array  # [E D F] fp4
    shared_w13: jax.Array  # [2F D] fp8
    shared_w2: jax.Array  # [D F] fp8


def spec(model: config.Model, prefix: str, experts: int | None = None) -> MoEParams:
    """Declaration; `prefix` is like `layers.0.ffn`."""
    e, d, f = experts or model.n_routed_experts, model.hidden_size, model.moe_intermediate_size
    routed = f"{prefix}.experts.{{e}}"
    shared = f"{prefix}.shared_experts"
    fs = f * model.n_shared_experts
    split = ("experts", None, None)
    return MoEParams(
        gate=linear((e, d), "bf16", (f"{prefix}.gate.weight",)),
        bias=declare((e,), "f32", (None,), (f"{prefix}.gate.bias",), fill=0.0, keep_f32=True),
        bias_vl=declare((e,), "f32", (None,), (f"{prefix}.gate.bias_vl",), fill=0.0, keep_f32=True),
        w13=linear((e, 2 * f, d), "fp4", (f"{routed}.w1", f"{routed}.w3"), split),
        w2=linear((e, d, f), "fp4", (f"{routed}.w2",), split),
        shared_w13=linear((2 * fs, d), "fp8", (f"{shared}.w1", f"{shared}.w3")),
        shared_w2=linear((d, fs), "fp8", (f"{shared}.w2",)),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Routing:
    """Which experts each token visits and with what weight."""

    scores: jax.Array  # [T E] f32, unbiased
    expert_ids: jax.Array  # [T A] int32, ascending
    weights: jax.Array  # [T A] f32, includes the routed scaling factor


@jax.named_scope("moe.route")
def route(
    ctx: Context, p: MoEParams, x: Float[Array, "T D"], is_image: Bool[Array, " T"] | None, top: int
) -> Routing:
    """scores = sqrt(softplus(x . gate / temp)); choose `top` by score + bias; weights from the
    unbiased scores.

    Ties go to the lower expert. Numerics: float32; source: the checkpoint's reference router.
    """
    a = ctx.linear_f32(x, p.gate) / ctx.model.gate_temp
    scores = jnp.sqrt(jnp.where(a > 20.0, a, jnp.log1p(jnp.exp(jnp.minimum(a, 20.0)))))
    bias = p.bias[None, :]
    if is_image is not None:
        bias = jnp.where(is_image[:, None], p.bias_vl[None, :], bias)
    _, chosen = lax.top_k(scores + lax.stop_gradient(bias), top)
    ids = jnp.sort(chosen, axis=-1).astype(jnp.int32)
    picked = jnp.take_along_axis(scores, ids, axis=-1)
    total = jnp.sum(picked, axis=-1, keepdims=True) + 1e-20
    return Routing(scores, ids, picked / total * ctx.model.routed_scaling_factor)


@functools.partial(jax.checkpoint, static_argnums=0)
def activate(ctx: Context, gate_up: Float[Array, "... 2F"]) -> Float[Array, "... F"]:
    """silu(min(G, limit)) * clip(U, -limit, limit) in float32 from rounded G and U."""
    limit = ctx.model.swiglu_limit
    g, u = jnp.split(ctx.f32(ctx.round(gate_up)), 2, axis=-1)
    return jax.nn.silu(jnp.minimum(g, limit)) * jnp.clip(u, -limit, limit)


def expert(
    ctx: Context, x: Float[Array, "T D"], w13: matmul.Weight, w2: matmul.Weight, weight=None
) -> Float[Array, "T D"]:
    """One expert on quantised input; the routing weight multiplies before w2's quantiser."""
    h = activate(ctx, matmul.matmul(x, w13))
    if weight is not None:
        h = h * weight
    return ctx.linear_quantized(ctx.round(h), w2)


@jax.named_scope("moe")
def forward(
    ctx: Context,
    p: MoEParams,
    x: Float[Array, "T D"],
    valid: Bool[Array, " T"] | None = None,
    is_image: Bool[Array, " T"] | None = None,
    top: int | None = None,
) -> tuple[Float[Array, "T D"], Routing]:
    """sum over chosen experts (ascending, float32) + shared expert, one rounding.

    Sharding: experts over `ctx.expert_axis`; tokens are local to a device and travel by
    collectives.exchange. Cost: 6 T A D F + 6 T D F flops.
    """
    routing = route(ctx, p, x, is_image, top or ctx.model.num_experts_per_tok)
    quantized = ctx.quantize_input(x)

    def local(tokens, expert_ids, weights, first):
        return grouped_matmul.expert_mlp(
            tokens,
            expert_ids - first,
            weights,
            p.w13,
            p.w2,
            lambda rows, w13, w2, w: expert(ctx, rows, w13, w2, w),
            path=ctx.moe_path,
            capacity=ctx.moe_capacity,
        )

    # rows that only pad the batch visit no expert
    ids = routing.expert_ids if valid is None else jnp.where(valid[:, None], routing.expert_ids, -1)
    routed = collectives.exchange(
        local, quantized, ids, routing.weights, grouped_matmul.num_experts(p.w13), ctx.expert_axis
    )
    shared = expert(ctx, quantized, p.shared_w13, p.shared_w2)
    return ctx.round(routed + ctx.f32(shared)), routing

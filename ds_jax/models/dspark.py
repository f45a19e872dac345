"""The DSpark drafter: blocks that turn hidden states of the target into a block of draft tokens.

Decides the drafter's mathematics: context rows made from the target's streams, one pass over the
block, the sequential head and the confidence. Never samples, never decides how many drafts are
verified, never reads or writes the cache.
In: entry streams of some target layers (taps), the anchor's embedding and copies of a placeholder.
Out: hidden vectors, base logits, and per position the bias of the token in front and a confidence.

| step | |
|---|---|
| context | m = norm(main_proj [tap_1 .. tap_n]); row_n = rotate(kv_norm(wkv_n m)) of block n |
| block | anchor and placeholders through all blocks; each sees the whole block and the context |
| head | logits_k = head(norm(x_k)) + markov_head markov_embed[token k-1] |
| confidence | sigmoid(w [x_k; markov_embed[token k-1]]): is draft k accepted if all before are? |

The blocks are window layers of the target's own form with rope base `rope_theta` and no YaRN, their
own experts, no Engram and no compressed rows. Embedding and head are the target's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ds_jax import config
from ds_jax.models import attention, hyper_connections, moe, norm, rope
from ds_jax.models.context import Context
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BlockParams:
    """One drafter block."""

    attn: attention.AttentionParams
    attn_norm: jax.Array  # [D] bf16
    ffn_norm: jax.Array  # [D] bf16
    hc_attn: hyper_connections.HyperConnectionParams
    hc_ffn: hyper_connections.HyperConnectionParams
    ffn: moe.MoEParams


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DSparkParams:
    """The whole drafter; r is the rank of the Markov head."""

    blocks: tuple[BlockParams, ...]
    main_proj: jax.Array  # [D taps*D] fp8
    main_norm: jax.Array  # [D] bf16
    norm: jax.Array  # [D] bf16
    markov_embed: jax.Array  # [V r] bf16
    markov_head: jax.Array  # [V r] bf16
    confidence: jax.Array  # [1 D+r] bf16


def spec(model: config.Model) -> DSparkParams:
    """Declaration of `mtp.*`: main_proj stands in the first block, head and norm in the last."""
    d, v, r = model.hidden_size, model.vocab_size, model.dspark_markov_rank
    taps, last = len(model.dspark_target_layer_ids), model.num_nextn_predict_layers - 1

    def weight(name: str, *shape: int, fan_in: int = 0) -> Any:
        return declare(shape, "bf16", (None,) * len(shape), (f"mtp.{name}.weight",), fan_in)

    def block(n: int) -> BlockParams:
        return BlockParams(
            attn=attention.spec(model, f"mtp.{n}.attn"),
            attn_norm=weight(f"{n}.attn_norm", d),
            ffn_norm=weight(f"{n}.ffn_norm", d),
            hc_attn=hyper_connections.spec(model, f"mtp.{n}.hc_attn"),
            hc_ffn=hyper_connections.spec(model, f"mtp.{n}.hc_ffn"),
            ffn=moe.spec(model, f"mtp.{n}.ffn", model.dspark_n_routed_experts),
        )

    return DSparkParams(
        blocks=tuple(block(n) for n in range(last + 1)),
        main_proj=linear((d, taps * d), "fp8", ("mtp.0.main_proj",)),
        main_norm=weight("0.main_norm", d),
        norm=weight(f"{last}.norm", d),
        markov_embed=weight(f"{last}.markov_head.embed", v, r, fan_in=r),
        markov_head=linear((v, r), "bf16", (f"mtp.{last}.markov_head.head.weight",)),
        confidence=weight(f"{last}.confidence_head.proj", 1, d + r, fan_in=d + r),
    )


def angles(model: config.Model, positions: Int[Array, "B U"]) -> tuple[jax.Array, jax.Array]:
    """cos and sin of rows at these positions; never YaRN."""
    return rope.angles(positions, rope.frequencies(model, compressed=False))


@jax.named_scope("dspark.context")
def context(
    ctx: Context, p: DSparkParams, taps: Sequence[Float[Array, "B U D"]]
) -> Float[Array, "B U D"]:
    """norm(main_proj [taps]): what all blocks make their context rows from."""
    joined = jnp.concatenate(list(taps), axis=-1)
    return norm.rms_norm(ctx, ctx.linear_quantized(joined, p.main_proj), p.main_norm)


@jax.named_scope("dspark.context_rows")
def context_rows(
    ctx: Context,
    p: DSparkParams,
    mixed: Float[Array, "B U D"],
    turned: tuple[jax.Array, jax.Array],
) -> list[jax.Array]:
    """Window rows [B U H] of each block, rotated and quantised; `turned`: `angles` of the rows."""
    return [attention.window_row(ctx, block.attn, mixed, turned) for block in p.blocks]


@jax.named_scope("dspark.block")
def forward(
    ctx: Context,
    p: DSparkParams,
    embeds: Float[Array, "B U D"],
    turned: tuple[jax.Array, jax.Array],
    contexts: Sequence[Float[Array, "B S H"]],
    sees_context: Bool[Array, "B U S"],
    sees_block: Bool[Array, "B U U"],
    valid: Bool[Array, " T"] | None = None,
) -> tuple[Float[Array, "B U D"], dict[str, list[jax.Array]]]:
    """All blocks on rows that are drafts of one or several blocks.

    Args:
      embeds: embeddings of anchors and placeholders.
      turned: `angles` of their positions.
      contexts: context rows for each block.
      sees_context: which context rows a row reads: those in front of its anchor, at most W.
      sees_block: which rows of this very batch it reads: all of its own block, itself included.
      valid: bool [B*U]: rows that are none visit no expert.
    Returns: x of every row before the last norm; each block's rows (`block_kv`) and the share of
      the rows that each of its experts got, mean 1 (`loads`).
    """
    b, u, d = embeds.shape
    m, top = ctx.model.hc_mult, ctx.model.dspark_num_experts_per_tok
    streams = jnp.broadcast_to(embeds.reshape(1, b * u, d), (m, b * u, d))
    pre = hyper_connections.first_pre(b * u, m)
    seen: dict[str, list[jax.Array]] = {"block_kv": [], "loads": []}
    for block, rows in zip(p.blocks, contexts, strict=True):
        mix = hyper_connections.mix(ctx, block.hc_attn, streams)
        x = norm.rms_norm(ctx, hyper_connections.collapse(ctx, streams, pre), block.attn_norm)
        projected = attention.project(ctx, block.attn, x.reshape(b, u, d), turned)
        sets = [
            attention.KeySet(rows, sees_context),
            attention.KeySet(projected.row, sees_block),
        ]
        o, _ = attention.attend(ctx, block.attn.sink, projected.query, sets)
        y = attention.output(ctx, block.attn, o, turned)
        streams = hyper_connections.expand(ctx, streams, y.reshape(b * u, d), mix)
        after = hyper_connections.mix(ctx, block.hc_ffn, streams)
        x = norm.rms_norm(ctx, hyper_connections.collapse(ctx, streams, mix.pre), block.ffn_norm)
        y, routing = moe.forward(ctx, block.ffn, x, valid, None, top)
        streams = hyper_connections.expand(ctx, streams, y, after)
        pre = after.pre
        seen["block_kv"].append(projected.row)
        seen["loads"].append(_loads(routing))
    return hyper_connections.collapse(ctx, streams, pre).reshape(b, u, d), seen


def _loads(routing: moe.Routing) -> Float[Array, " E"]:
    experts = routing.scores.shape[-1]
    chosen = routing.expert_ids.reshape(-1)
    count = jnp.sum(chosen[:, None] == jnp.arange(experts)[None, :], axis=0)
    return count.astype(jnp.float32) * (experts / chosen.shape[0])


@jax.named_scope("dspark.base_logits")
def base_logits(
    ctx: Context, p: DSparkParams, head: Float[Array, "V D"], x: Float[Array, "T D"]
) -> Float[Array, "T V"]:
    """float32 logits before the Markov bias; `head` is the target's."""
    return ctx.linear_f32(norm.rms_norm(ctx, x, p.norm), head)


@jax.named_scope("dspark.follow")
def follow(
    ctx: Context,
    p: DSparkParams,
    base: Float[Array, "T V"],
    x: Float[Array, "T D"],
    previous: Int[Array, " T"],
) -> tuple[Float[Array, "T V"], Float[Array, " T"]]:
    """Logits of drafts behind the tokens `previous`, and the logit of their confidence.

    The confidence reads the token in front and never the draft itself: only so may it decide
    whether the draft is verified. Numerics: float32.
    """
    e = p.markov_embed[previous].astype(ctx.dtype)
    logits = base + ctx.linear_f32(e, p.markov_head)
    d = x.shape[-1]
    w = p.confidence[0].astype(jnp.float32)
    confidence = jnp.sum(ctx.f32(x) * w[None, :d], -1) + jnp.sum(ctx.f32(e) * w[None, d:], -1)
    return logits, confidence


def window_mask(
    model: config.Model, anchors: Int[Array, "B U"], positions: Int[Array, "B S"]
) -> Bool[Array, "B U S"]:
    """Context rows that the block of an anchor reads: the W in front of it; negative: no row."""
    at, key = anchors[:, :, None], positions[:, None, :]
    return (key >= 0) & (key < at) & (key >= at - model.sliding_window)

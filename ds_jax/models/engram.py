"""Engram: hashed n-gram memory added to the residual streams through a gate.

Decides the n-gram hash, the table lookup and the gate. Rows depend on token ids alone, so they can
be computed ahead. In: token ids with look-back, streams [T M D]. Out: row numbers, updated streams.

The hash is 64-bit integer arithmetic; on the device it runs on two uint32 limbs: the products
id * multiplier are tabulated per token, their exclusive-or is reduced modulo a prime below 2**24
byte by byte (Horner), which never leaves 32 bits.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax import config, primes
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import engram_lookup
from ds_jax.sharding.params import declare, linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EngramParams:
    """Table and projection of one Engram layer."""

    table: jax.Array  # [rows Dg] fp8 rows
    wkv: jax.Array  # [(M+1)D columns*Dg] fp8: one key per stream, then the value
    q_weight: jax.Array  # [M D] bf16
    k_weight: jax.Array  # [M D] bf16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HashTables:
    """Constants of the hash, derived from the tokenizer and the config (not in the checkpoint)."""

    products: (
        jax.Array
    )  # [layers orders+1 V 2] uint32: (high, low) limb of compressed_id * multiplier


def columns(model: config.Model) -> int:
    """Table columns per token: heads for each n-gram order 2..max."""
    return (model.engram_max_ngram_size - 1) * model.engram_n_heads


def spec(model: config.Model, layer: int) -> EngramParams:
    """Declaration of the Engram of `layer`."""
    d, m, g = model.hidden_size, model.hc_mult, model.engram_head_dim
    rows = model.engram_num_embeddings[model.engram_layer_ids.index(layer)]
    prefix = f"layers.{layer}.engram"
    width = columns(model) * g
    return EngramParams(
        table=declare((rows, g), "rows", ("rows", None), (f"{prefix}.embed",), g),
        wkv=linear(((m + 1) * d, width), "fp8", (f"{prefix}.wkv",)),
        q_weight=declare((m, d), "bf16", (None, None), (f"{prefix}.q_weight",)),
        k_weight=declare((m, d), "bf16", (None, None), (f"{prefix}.k_weight",)),
    )


def multipliers(model: config.Model, layer: int) -> np.ndarray:
    """int64 [max_ngram]: odd, from PCG64 seeded by 10007 * layer, below 2**63 / compressed
    vocabulary.
    """
    bound = (2**63 - 1) // model.engram_compressed_vocab_size // 2
    draws = np.random.default_rng(10007 * layer).integers(
        0, bound, size=model.engram_max_ngram_size, dtype=np.int64
    )
    return 2 * draws + 1


def hash_tables(model: config.Model, token_map: np.ndarray) -> HashTables:
    """Tabulate token -> compressed id * multiplier.

    Args:
      token_map: int [V], compressed id of every token id (token_map.compressed_ids).
    """
    ids = np.zeros(model.vocab_size, np.uint64)
    ids[: len(token_map)] = np.asarray(token_map, np.uint64)
    table = np.zeros(
        (len(model.engram_layer_ids), model.engram_max_ngram_size, len(ids), 2), np.uint32
    )
    for i, layer in enumerate(model.engram_layer_ids):
        product = ids[None, :] * multipliers(model, layer).astype(np.uint64)[:, None]
        table[i, :, :, 0] = product >> np.uint64(32)
        table[i, :, :, 1] = product & np.uint64(0xFFFFFFFF)
    return HashTables(jnp.asarray(table))


@jax.named_scope("engram.hash_rows")
def hash_rows(
    model: config.Model,
    tables: HashTables,
    token_ids: Int[Array, "B S"],
    dead: Bool[Array, "B S"],
) -> Int[Array, "L B U columns"]:
    """Table rows of every Engram layer for the last U = S - (max_ngram - 1) tokens.

    token(k) is the id at distance k back; from the first k that is dead (before the start of the
    sequence, or inside an image) on, the pad token stands instead. R_1 = t0 m0 ^ t1 m1,
    R_n = R_{n-1} ^ t_n m_n; row = R mod prime + offset.
    """
    back = model.engram_max_ngram_size - 1
    width = token_ids.shape[1] - back
    alive = jnp.ones((token_ids.shape[0], width), bool)
    limbs = None
    remainders = []
    heads = primes.engram_primes(model)  # [layers][orders][heads]
    for k in range(back + 1):
        window = slice(back - k, back - k + width)
        alive = alive & ~dead[:, window]
        ids = jnp.where(alive, token_ids[:, window], model.engram_pad_token_id)
        product = tables.products[:, k][:, ids]  # [L B U 2]
        limbs = product if limbs is None else limbs ^ product
        if k:
            modulus = np.array([p[k - 1] for p in heads], np.uint32)  # [L heads]
            remainders.append(_remainder(limbs, jnp.asarray(modulus)))
    rows = jnp.concatenate(remainders, axis=-1).astype(jnp.int32)
    sizes = np.array([[q for order in p for q in order] for p in heads], np.int64)
    offsets = np.cumsum(sizes, axis=1) - sizes
    return rows + jnp.asarray(offsets.astype(np.int32))[:, None, None, :]


def _remainder(limbs: jax.Array, modulus: jax.Array) -> jax.Array:
    """(high * 2**32 + low) mod prime, [L B U 2] and [L heads] -> [L B U heads]; primes < 2**24."""
    p = modulus[:, None, None, :]
    r = jnp.zeros((*limbs.shape[:-1], modulus.shape[-1]), jnp.uint32)
    for limb in (0, 1):
        word = limbs[..., limb, None]
        for shift in (24, 16, 8, 0):
            r = ((r << 8) | ((word >> shift) & 0xFF)) % p
    return r


@jax.named_scope("engram.forward")
def forward(
    ctx: Context,
    p: EngramParams,
    streams: Float[Array, "M T D"],
    rows: Int[Array, "T columns"],
    is_image: Bool[Array, " T"] | None = None,
) -> tuple[Float[Array, "M T D"], Float[Array, "M T"]]:
    """X_j + gate_j * value; gate_j = sigmoid(signed sqrt of the normalised dot of stream j and key
    j).

    Returns: streams and gates (0 for image tokens). Numerics: gate in float32, one rounding a
    stream.
    """
    d = ctx.model.hidden_size
    memory = engram_lookup.lookup(p.table, rows, ctx.dtype, ctx.row_axes).reshape(rows.shape[0], -1)
    kv = ctx.linear_quantized(memory, p.wkv)
    weight = p.q_weight.astype(jnp.float32) * p.k_weight.astype(jnp.float32)
    *keys, value = lax.split(kv, [d] * (ctx.model.hc_mult + 1), axis=1)
    after, gates = [], []
    for stream, key, w in zip(streams, keys, weight, strict=True):
        gate = _gate(ctx, stream, key, w)
        if is_image is not None:
            gate = jnp.where(is_image, 0.0, gate)
        after.append(_add(ctx, stream, gate, value))
        gates.append(gate)
    return jnp.stack(after), jnp.stack(gates)


@functools.partial(jax.checkpoint, static_argnums=0)
def _gate(
    ctx: Context, stream: Float[Array, "T D"], key: Float[Array, "T D"], weight: Float[Array, " D"]
) -> Float[Array, " T"]:
    h, k, eps = ctx.f32(stream), ctx.f32(key), ctx.model.rms_norm_eps
    inverse = lax.rsqrt(jnp.mean(h * h, axis=-1) + eps) * lax.rsqrt(jnp.mean(k * k, axis=-1) + eps)
    dot = jnp.sum(h * weight[None] * k, axis=-1) * inverse * h.shape[-1] ** -0.5
    magnitude = jnp.sqrt(jnp.maximum(jnp.abs(dot), 1e-6))
    return jax.nn.sigmoid(jnp.where(jnp.signbit(dot), -magnitude, magnitude))


@functools.partial(jax.checkpoint, static_argnums=0)
def _add(ctx: Context, stream: jax.Array, gate: jax.Array, value: jax.Array) -> jax.Array:
    return ctx.round(ctx.f32(stream) + gate[:, None] * ctx.f32(value))

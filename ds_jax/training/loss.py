"""Losses of the text model.

Decides what is minimised. Never updates parameters. In: parameters, rows of tokens and weights.
Out: a scalar and a dict of float32 measures.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ds_jax import config
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, engram, memory
from ds_jax.models.context import Context

INDEXER_WEIGHT = 0.1
BALANCE_WEIGHT = 1e-3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Measures:
    """What a training step reports."""

    loss: jax.Array  # [] nats per weighted token
    indexer: jax.Array  # [] KL of the indexer to the attention it predicts
    loads: jax.Array  # [L E] share of tokens an expert received, mean 1


def whole_rows(model: config.Model, token_ids: Int[Array, "B U"]) -> caches.Batch:
    """A batch of whole sequences that start at position 0 and need no cache."""
    b, u = token_ids.shape
    back = max(model.engram_max_ngram_size - 1, 0)
    zeros = jnp.zeros(b, jnp.int32)
    return caches.Batch(
        token_ids=token_ids,
        lookback_ids=jnp.full((b, back), model.engram_pad_token_id, jnp.int32),
        start=zeros,
        lens=jnp.full(b, u, jnp.int32),
        slots=zeros,
        page_table=jnp.zeros((b, 1), jnp.int32),
    )


def text_loss(
    ctx: Context,
    params: deepseek_v41.Params,
    tables: engram.HashTables | None,
    tokens: Int[Array, "B S"],
    weights: Float[Array, "B S"],
) -> tuple[jax.Array, Measures]:
    """Weighted cross-entropy of tokens[:, 1:] + indexer and load-balance terms.

    weights[b, s] belongs to predicting tokens[b, s].
    """
    batch = whole_rows(ctx.model, tokens[:, :-1])
    _, out, trace = deepseek_v41.forward(ctx, memory.Access(None, True), params, tables, batch)
    b, u, d = out.hidden.shape
    logits = deepseek_v41.logits(ctx, params, out.hidden.reshape(b * u, d))
    targets = tokens[:, 1:].reshape(b * u)
    logprobs = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0] - jax.nn.logsumexp(
        logits, axis=-1
    )
    w = weights[:, 1:].reshape(b * u)
    cross_entropy = -jnp.sum(w * logprobs) / jnp.maximum(jnp.sum(w), 1.0)
    layers = trace["layers"]
    indexer = sum((_indexer_divergence(t) for t in layers if "index_scores" in t), jnp.zeros(()))
    loads, balance = _loads(ctx.model, layers)
    total = cross_entropy + INDEXER_WEIGHT * indexer + BALANCE_WEIGHT * balance
    return total, Measures(cross_entropy, indexer, loads)


def _indexer_divergence(t: dict[str, jax.Array]) -> jax.Array:
    """Mean KL(attention over the rows the layer saw || softmax of the index scores)."""
    mass, scores, seen = t["attn_mass"], t["index_scores"], t["index_mask"]
    target = jax.lax.stop_gradient(jnp.where(seen, mass, 0.0))
    target = target / (jnp.sum(target, axis=-1, keepdims=True) + 1e-9)
    logits = jnp.where(seen, scores, -1e9)
    logq = jax.nn.log_softmax(logits, axis=-1)
    divergence = jnp.where(target > 0, target * (jnp.log(jnp.maximum(target, 1e-9)) - logq), 0.0)
    return jnp.mean(jnp.sum(divergence, axis=-1))


def _loads(model: config.Model, layers: list[dict[str, jax.Array]]) -> tuple[jax.Array, jax.Array]:
    """(relative load [L E], the usual product of load and mean score, for balance)."""
    loads, balance = [], jnp.zeros(())
    for t in layers:
        chosen = t["router_indices"].reshape(-1)
        count = jnp.sum(chosen[:, None] == jnp.arange(model.n_routed_experts)[None, :], axis=0)
        load = count.astype(jnp.float32) * (model.n_routed_experts / chosen.shape[0])
        scores = t["router_scores"].reshape(-1, model.n_routed_experts)
        share = jnp.mean(scores / jnp.sum(scores, axis=-1, keepdims=True), axis=0)
        balance = balance + jnp.sum(jax.lax.stop_gradient(load) * share)
        loads.append(load)
    return jnp.stack(loads), balance

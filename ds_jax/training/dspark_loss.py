"""What the drafter and its confidence are trained to.

Decides the three terms and their weights. Never runs a model. In: logits of drafter and target at
the same positions, logits of the confidence. Out: a scalar and measures.

| term | per label, weight e^(-k / decay) | factor |
|---|---|---|
| cross-entropy | -log q(label) | 0.1 |
| L1 | sum of abs(q - p): twice the probability of a rejection | 0.9 |
| confidence | binary cross-entropy to a = 1 - L1 / 2, which has no gradient | 1.0 |
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

CROSS_ENTROPY, L1, CONFIDENCE = 0.1, 0.9, 1.0
DECAY = 4.0
TINY = 1e-6


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Measures:
    """What a batch of blocks gives; sums and counts, so that batches can be joined."""

    cross_entropy: jax.Array  # [] weighted mean
    l1: jax.Array  # []
    confidence: jax.Array  # []
    accept: jax.Array  # [B A K] probability that a draft is accepted, 0 where there is no label
    accepted_length: jax.Array  # [] sum over blocks of 1 + sum of the products of `accept`
    blocks: jax.Array  # [] blocks counted


def weights(size: int, decay: float) -> Float[Array, " K"]:
    """Weight of each label; a decay that is not positive: all alike."""
    k = jnp.arange(size, dtype=jnp.float32)
    return jnp.exp(-k / decay) if decay > 0 else jnp.ones(size)


def loss(
    draft: Float[Array, "B A K V"],
    target: Float[Array, "B A K V"],
    confidence: Float[Array, "B A K"],
    labels: Int[Array, "B A K"],
    counted: Bool[Array, "B A K"],
    decay: float = DECAY,
) -> tuple[jax.Array, Measures]:
    """The three terms, each a weighted mean over labels that count. Numerics: float32."""
    w = weights(draft.shape[2], decay)[None, None, :] * counted.astype(jnp.float32)
    total = jnp.sum(w) + TINY
    log_q = jax.nn.log_softmax(draft, axis=-1)
    p = jax.nn.softmax(target, axis=-1)
    chosen = jnp.take_along_axis(log_q, labels[..., None], axis=-1)[..., 0]
    distance = jnp.sum(jnp.abs(jnp.exp(log_q) - p), axis=-1)
    accept = jax.lax.stop_gradient(jnp.clip(1.0 - 0.5 * distance, 0.0, 1.0))
    sure = jnp.maximum(confidence, 0.0) - confidence * accept
    sure = sure + jnp.log1p(jnp.exp(-jnp.abs(confidence)))
    terms = [jnp.sum(w * term) / total for term in (-chosen, distance, sure)]
    value = CROSS_ENTROPY * terms[0] + L1 * terms[1] + CONFIDENCE * terms[2]
    accept = jnp.where(counted, accept, 0.0)
    lengths = 1.0 + jnp.sum(jnp.cumprod(accept, axis=-1), axis=-1)
    live = counted[..., 0]
    measures = Measures(
        terms[0],
        terms[1],
        terms[2],
        accept,
        jnp.sum(jnp.where(live, lengths, 0.0)),
        jnp.sum(live.astype(jnp.float32)),
    )
    return value, measures

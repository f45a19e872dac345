"""Random numbers of drafts and their verification, and the law that a row is drawn from.

Decides which stream a draw belongs to and in which order temperature and filters act: as in plain
decoding (`sampling.sample`), alike for target and draft. Never decides what is accepted.
In: logits and controls of rows. Out: log probabilities, noise, uniforms.

| stream | keyed by position of | used for |
|---|---|---|
| 0 | the token drawn | plain decoding, rows behind the last draft, coupled drafts |
| 1 | the token judged | the uniform of an acceptance |
| 2 | the token drawn | a token instead of a rejected draft |
| 16 + k | the anchor | draft k |

Drafts are keyed by their anchor: a position is drafted again by later steps, and the budget of
those has seen confidences that depend on the earlier drafts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from ds_jax.sampling import filters, sample

ACCEPT, RESIDUAL, DRAFT = 1, 2, 16


def log_law(logits: Float[Array, "B V"], controls: sample.Controls) -> Float[Array, "B V"]:
    """Log probabilities after temperature and filters; -inf for tokens that are filtered out.

    Rows of temperature 0 are taken as of temperature 1: their law is not asked for.
    """
    scaled = sample.scale(logits, controls)
    filtered = (controls.temperature > 0) & ((controls.top_p < 1) | (controls.top_k > 0))
    kept = lax.cond(
        filtered.any(),
        lambda: filters.kept_tokens(scaled, controls.top_p, controls.top_k),
        lambda: jnp.ones(scaled.shape, bool),
    )
    return jax.nn.log_softmax(jnp.where(kept, scaled, -jnp.inf), axis=-1)


def noise(
    seed: UInt32[Array, "B words"], position: Int[Array, " B"], stream: Int[Array, " B"], vocab: int
) -> Float[Array, "B V"]:
    """Gumbel noise of rows, a function of (seed, position, stream); as `sample.noise`."""

    def row(seed: jax.Array, position: jax.Array, stream: jax.Array) -> jax.Array:
        return jax.random.gumbel(_key(seed, position, stream), (vocab,), jnp.float32)

    return jax.vmap(row)(seed, position, stream)


def uniforms(seed: UInt32[Array, "B words"], position: Int[Array, " B"]) -> Float[Array, " B"]:
    """One number a row in [0, 1) of the acceptance stream."""

    def row(seed: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(_key(seed, position, jnp.int32(ACCEPT)), (), jnp.float32)

    return jax.vmap(row)(seed, position)


def _key(seed: jax.Array, position: jax.Array, stream: jax.Array) -> jax.Array:
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, position), stream)

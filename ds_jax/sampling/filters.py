"""Which tokens stay: top-p, then top-k, then min-p.

Decides the sets and their ties. Never draws. In: logits over temperature, settings of each row.
Out: masks.

Each filter keeps tokens from the most likely one on, the lower id first among equals, so all see
the probabilities of all tokens and their order does not matter but for that. Nothing is sorted
(`pallas_kernels.leading`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax.pallas_kernels import leading


def kept_tokens(
    scaled: Float[Array, "B V"], top_p: Float[Array, " B"], top_k: Int[Array, " B"]
) -> Bool[Array, "B V"]:
    """Tokens that stay: the smallest most likely set reaching top_p, of it at most top_k.

    Cost: 32 sums over B V for each of the two filters that any row asks for; 0 for none.
    """
    keys = leading.ordered(scaled)
    everything = jnp.ones(scaled.shape, bool)

    def by_mass() -> jax.Array:
        weights = jnp.exp(scaled - scaled.max(axis=-1, keepdims=True))
        return leading.leading(
            keys, weights, jnp.where(top_p < 1, top_p * weights.sum(axis=-1), jnp.inf)
        )

    def by_count() -> jax.Array:
        wanted = jnp.where(top_k > 0, top_k.astype(jnp.float32), jnp.inf)
        return leading.leading(keys, jnp.ones_like(scaled), wanted)

    kept = lax.cond((top_p < 1).any(), by_mass, lambda: everything)
    return kept & lax.cond((top_k > 0).any(), by_count, lambda: everything)


def likely_enough(scaled: Float[Array, "B V"], min_p: Float[Array, " B"]) -> Bool[Array, "B V"]:
    """Tokens at least min_p times as probable as the most likely one."""
    return scaled >= scaled.max(axis=-1, keepdims=True) + jnp.log(min_p)[:, None]

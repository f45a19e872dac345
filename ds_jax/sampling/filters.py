"""Which tokens stay: top-p, then top-k, then min-p.

Decides the sets and their ties. Never draws. In: logits over temperature, settings of each row.
Out: masks.

Each filter keeps tokens from the most likely one on, the lower id first among equals, so all see
the probabilities of all tokens and their order does not matter but for that. Nothing is sorted:
where the kept tokens end is found by bisection over the bits of a float32.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

TINY = 1e-37  # about the smallest float32 that devices do not take for 0


def kept_tokens(
    scaled: Float[Array, "B V"], top_p: Float[Array, " B"], top_k: Int[Array, " B"]
) -> Bool[Array, "B V"]:
    """Tokens that stay: the smallest most likely set reaching top_p, of it at most top_k.

    Cost: 32 sums over B V for each of the two filters that any row asks for; 0 for none.
    """
    keys = ordered(scaled)
    everything = jnp.ones(scaled.shape, bool)

    def by_mass() -> jax.Array:
        weights = jnp.exp(scaled - scaled.max(axis=-1, keepdims=True))
        return leading(keys, weights, jnp.where(top_p < 1, top_p * weights.sum(axis=-1), jnp.inf))

    def by_count() -> jax.Array:
        wanted = jnp.where(top_k > 0, top_k.astype(jnp.float32), jnp.inf)
        return leading(keys, jnp.ones_like(scaled), wanted)

    kept = lax.cond((top_p < 1).any(), by_mass, lambda: everything)
    return kept & lax.cond((top_k > 0).any(), by_count, lambda: everything)


def likely_enough(scaled: Float[Array, "B V"], min_p: Float[Array, " B"]) -> Bool[Array, "B V"]:
    """Tokens at least min_p times as probable as the most likely one."""
    return scaled >= scaled.max(axis=-1, keepdims=True) + jnp.log(min_p)[:, None]


def leading(
    keys: UInt32[Array, "B V"], weights: Float[Array, "B V"], target: Float[Array, " B"]
) -> Bool[Array, "B V"]:
    """The first tokens in descending order of keys, until their weights reach the target.

    A token stays if the weights in front of it sum to less than the target; the first one always
    does. Equal keys have equal weights and stand in order of id.
    """

    target = jnp.maximum(target, TINY)  # nothing would reach it with no token at all

    def reaches(least: jax.Array) -> jax.Array:
        return jnp.where(keys >= least[:, None], weights, 0.0).sum(axis=-1) >= target

    last = _largest(reaches, 32, len(target))  # key of the last token that stays
    ends = keys == last[:, None]
    above = jnp.where(keys > last[:, None], weights, 0.0).sum(axis=-1)
    each = jnp.where(ends, weights, 0.0).max(axis=-1)
    room = jnp.ceil((target - above) / jnp.maximum(each, TINY))
    # of the equal ones at the end, `room` stay, at least one
    room = jnp.minimum(jnp.maximum(room, 1.0), keys.shape[1]).astype(jnp.int32)
    ids = jnp.arange(keys.shape[1], dtype=jnp.uint32)[None, :]

    def fits(first: jax.Array) -> jax.Array:
        return (ends & (ids < first[:, None])).sum(axis=-1, dtype=jnp.int32) <= room

    bits = keys.shape[1].bit_length()
    behind = lax.cond(
        (ends.sum(axis=-1, dtype=jnp.int32) > room).any(),
        lambda: _largest(fits, bits, len(target)),
        lambda: jnp.full(len(target), keys.shape[1], jnp.uint32),
    )
    return (keys > last[:, None]) | (ends & (ids < behind[:, None]))


def ordered(values: Float[Array, "B V"]) -> UInt32[Array, "B V"]:
    """Unsigned integers in the order of float32 values; both zeros are equal."""
    bits = lax.bitcast_convert_type(jnp.where(values == 0, 0.0, values), jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _largest(holds: Callable[[jax.Array], jax.Array], bits: int, rows: int) -> jax.Array:
    """For each row the largest number for which `holds`, which is so from 0 up to it; or 0."""

    def refine(step: jax.Array, found: jax.Array) -> jax.Array:
        tried = found | (jnp.uint32(1) << (bits - 1 - step).astype(jnp.uint32))
        return jnp.where(holds(tried), tried, found)

    return lax.fori_loop(0, bits, refine, jnp.zeros(rows, jnp.uint32))

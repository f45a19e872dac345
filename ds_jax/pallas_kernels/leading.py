"""The largest entries of every row, found by bisection over the bits of their float32 values.

Decides ties: the lower number comes first. Never sorts: 32 sums over the rows cost a tenth of a
sort on a CPU. In: values as ordered integers, weights, targets. Out: masks.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, UInt32

TINY = 1e-37  # about the smallest float32 that devices do not take for 0


def top(values: Float[Array, "B V"], k: int) -> Bool[Array, "B V"]:
    """The k largest values of every row; of equal ones those that come first."""
    ones = jnp.ones(values.shape, jnp.float32)
    return leading(ordered(values), ones, jnp.full(len(values), k, jnp.float32))


def leading(
    keys: UInt32[Array, "B V"], weights: Float[Array, "B V"], target: Float[Array, " B"]
) -> Bool[Array, "B V"]:
    """The first entries in descending order of keys, until their weights reach the target.

    An entry stays if the weights in front of it sum to less than the target; the first one always
    does. Equal keys have equal weights and stand in order of number.
    """

    target = jnp.maximum(target, TINY)  # nothing would reach it with no entry at all

    def reaches(least: jax.Array) -> jax.Array:
        return jnp.where(keys >= least[:, None], weights, 0.0).sum(axis=-1) >= target

    last = _largest(reaches, 32, len(target))  # key of the last entry that stays
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

"""Exchange of tokens between the devices that own them and the devices that hold their experts.

Decides which collective moves tokens. Never computes an expert.
In: local tokens [T D] with expert numbers and weights. Out: float32 [T D], summed over all experts.
All functions run inside shard_map; with `axis` None they are the identity around the local experts.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

# (tokens [R D], expert_ids [R A], weights [R A], first local expert) -> float32 [R D]
Local = Callable[[jax.Array, jax.Array, jax.Array, jax.Array | int], jax.Array]

# Up to this many tokens over all devices one gather costs less than two exchanges.
GATHER_TOKENS = 64


def exchange(
    local: Local,
    x: Float[Array, "T D"],
    expert_ids: Int[Array, "T A"],
    weights: Float[Array, "T A"],
    num_local: int,
    axis: str | None,
) -> Float[Array, "T D"]:
    """Every token through its experts, wherever they are; never drops a token."""
    if axis is None:
        return local(x, expert_ids, weights, 0)
    if x.shape[0] * lax.axis_size(axis) <= GATHER_TOKENS:
        return gather_exchange(local, x, expert_ids, weights, num_local, axis)
    return all_to_all_exchange(local, x, expert_ids, weights, num_local, axis)


def gather_exchange(local: Local, x, expert_ids, weights, num_local: int, axis: str) -> jax.Array:
    """all_gather every token, run local experts, psum_scatter the sums: the reference of the
    exchange.

    Cost: n T D values in and n T D float32 values out a device.
    """
    x, expert_ids, weights = (
        lax.all_gather(a, axis, axis=0, tiled=True) for a in (x, expert_ids, weights)
    )
    y = local(x, expert_ids, weights, lax.axis_index(axis) * num_local)
    return lax.psum_scatter(y, axis, scatter_dimension=0, tiled=True)


def all_to_all_exchange(
    local: Local, x, expert_ids, weights, num_local: int, axis: str
) -> jax.Array:
    """Send each token once to every device that holds one of its experts, in rounds of fixed
    capacity.

    The capacity is twice the mean load; a round more is run while any device has tokens left, so no
    token is dropped and the usual cost is one round.
    """
    n, (t, a) = lax.axis_size(axis), expert_ids.shape
    room = min(t, -(-2 * t * a // n))
    home = jnp.where((expert_ids >= 0) & (expert_ids < n * num_local), expert_ids // num_local, n)
    needs = (home[:, :, None] == jnp.arange(n)[None, None, :]).any(axis=1)  # [T n]
    place = jnp.cumsum(needs, axis=0) - 1
    rounds = lax.pmax(-(-jnp.max(jnp.sum(needs, axis=0)) // room), axis)
    first = lax.axis_index(axis) * num_local
    tokens = jnp.arange(t)[:, None]
    peers = jnp.arange(n)[None, :]

    def step(r, total):
        now = needs & (place >= r * room) & (place < (r + 1) * room)
        slot = jnp.where(now, peers * room + place - r * room, n * room)
        source = (
            jnp.full(n * room, t).at[slot].set(jnp.broadcast_to(tokens, slot.shape), mode="drop")
        )
        filled = source < t
        index = jnp.minimum(source, t - 1)
        send = (x[index], jnp.where(filled[:, None], expert_ids[index], -1), weights[index])
        rows, ids, scales = (lax.all_to_all(part, axis, 0, 0, tiled=True) for part in send)
        back = lax.all_to_all(local(rows, ids, scales, first), axis, 0, 0, tiled=True)
        return total.at[source].add(back, mode="drop")

    return lax.fori_loop(0, rounds, step, jnp.zeros(x.shape, jnp.float32))

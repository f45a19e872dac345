"""Expert products grouped by expert: each token through the experts it chose, nothing else
computed.

Decides how (token, expert) pairs are grouped for the hardware. Never routes, never communicates.
In: tokens [T D], local expert numbers [T A] (out of range: not here), weights [T A], stacked
weights. Out: float32 [T D], the sum over chosen local experts in ascending order.

Paths, all of the same mathematics:
- `dense`: every expert on every token with weight 0 where not chosen. The reference;
differentiable.
- `tiles`: pairs sorted by expert, cut into fixed tiles, a loop over the tiles really used. For
inference:
  work is proportional to the pairs, and a row's result does not depend on its neighbours.
- `capacity`: pairs scattered into [E, capacity] buffers, batched products. Differentiable; pairs
above the
  capacity are dropped, so it is only for training.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax.pallas_kernels import matmul

Apply = Callable[[jax.Array, matmul.Weight, matmul.Weight, jax.Array], jax.Array]


def expert_mlp(
    tokens: Float[Array, "T D"],
    expert_ids: Int[Array, "T A"],
    weights: Float[Array, "T A"],
    w13: matmul.Weight,
    w2: matmul.Weight,
    apply: Apply,
    *,
    path: str,
    capacity: float = 2.0,
) -> Float[Array, "T D"]:
    """sum_a apply(token, expert a, weight a) over local experts.

    Args:
      apply: (rows [R D], w13 of one expert, w2 of one expert, weight [R 1]) -> [R D].
    Cost: 6 T A D F flops for `tiles`, E / A times more for `dense`.
    """
    if path == "dense":
        return expert_mlp_reference(tokens, expert_ids, weights, w13, w2, apply)
    if path == "capacity":
        return _capacity(tokens, expert_ids, weights, w13, w2, apply, capacity)
    if path == "tiles":
        return _tiles(tokens, expert_ids, weights, w13, w2, apply)
    raise ValueError(f"expert path {path!r} is unknown; use 'dense', 'tiles' or 'capacity'")


def num_experts(w: matmul.Weight) -> int:
    """Experts in a stacked weight."""
    return (w if isinstance(w, jax.Array) else w.data).shape[0]


def take_expert(w: matmul.Weight, e: Int[Array, ""]) -> matmul.Weight:
    """The weight of one expert."""
    return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, e, keepdims=False), w)


def expert_mlp_reference(tokens, expert_ids, weights, w13, w2, apply: Apply) -> jax.Array:
    """Every local expert on every token, in ascending order."""

    def step(total, inputs):
        e, one13, one2 = inputs
        weight = jnp.sum(jnp.where(expert_ids == e, weights, 0.0), axis=-1, keepdims=True)
        return total + apply(tokens, one13, one2, weight).astype(jnp.float32), None

    start = jnp.zeros(tokens.shape, jnp.float32)
    return lax.scan(step, start, (jnp.arange(num_experts(w13)), w13, w2))[0]


def tile_rows(pairs: int, experts: int) -> int:
    """Rows of a tile: about half an expert's mean load, a power of two from 4 to 64.

    One where pairs are few: then hardly two of them meet. Smaller tiles would only make more turns
    of the loop, and a turn costs more than the rows in it.
    """
    if pairs <= 16:
        return 1
    mean = pairs // (2 * experts)
    size = 4
    while size < mean and size < 64:
        size *= 2
    return size


def _tiles(tokens, expert_ids, weights, w13, w2, apply: Apply) -> jax.Array:
    """Pairs laid out by expert in whole tiles; one gather in, one gather out, none inside the
    loop.
    """
    t, a = expert_ids.shape
    pairs, experts = t * a, num_experts(w13)
    tile = tile_rows(pairs, experts)
    flat = expert_ids.reshape(pairs)
    chosen = flat[:, None] == jnp.arange(experts)[None, :]
    counts = jnp.sum(chosen, axis=0, dtype=jnp.int32)
    tiles = (counts + tile - 1) // tile
    tile_ends = jnp.cumsum(tiles)
    rank = jnp.sum(jnp.where(chosen, jnp.cumsum(chosen, axis=0) - 1, 0), axis=1)
    begin = jnp.sum(jnp.where(chosen, (tile_ends - tiles)[None, :] * tile, 0), axis=1)
    # every expert may leave one tile partly used
    room = (pairs // tile + experts if tile > 1 else pairs) * tile
    slot = jnp.where(chosen.any(axis=1), begin + rank, room)
    pair_numbers = jnp.arange(pairs, dtype=jnp.int32)
    source = jnp.zeros(room, jnp.int32).at[slot].set(pair_numbers, mode="drop")
    rows = tokens[source // a]
    row_weights = weights.reshape(pairs)[source][:, None]

    def step(i, out):
        e = jnp.sum(tile_ends <= i, dtype=jnp.int32)
        here = lax.dynamic_slice_in_dim(rows, i * tile, tile)
        weight = lax.dynamic_slice_in_dim(row_weights, i * tile, tile)
        y = apply(here, take_expert(w13, e), take_expert(w2, e), weight).astype(jnp.float32)
        return lax.dynamic_update_slice_in_dim(out, y, i * tile, 0)

    out = lax.fori_loop(0, tile_ends[-1], step, jnp.zeros((room, tokens.shape[1]), jnp.float32))
    pair_rows = jnp.where((slot < room)[:, None], out[jnp.minimum(slot, room - 1)], 0.0)
    return _sum_pairs(pair_rows.reshape(t, a, -1))


def _sum_pairs(out: Float[Array, "T A D"]) -> Float[Array, "T D"]:
    """Sum over the pairs of a token in ascending expert order."""
    total = out[:, 0]
    for k in range(1, out.shape[1]):
        total = total + out[:, k]
    return total


def _capacity(tokens, expert_ids, weights, w13, w2, apply: Apply, factor: float) -> jax.Array:
    t, a = expert_ids.shape
    pairs, experts = t * a, num_experts(w13)
    room = min(t, int(factor * pairs / experts) + 1)
    flat = expert_ids.reshape(pairs)
    chosen = flat[:, None] == jnp.arange(experts)[None, :]
    place = jnp.sum(jnp.where(chosen, jnp.cumsum(chosen, axis=0) - 1, 0), axis=1)
    slot = jnp.where((place < room) & chosen.any(axis=1), flat * room + place, experts * room)
    token_of = (
        jnp.zeros(experts * room, jnp.int32).at[slot].set(jnp.arange(pairs) // a, mode="drop")
    )
    weight_of = (
        jnp.zeros(experts * room, jnp.float32).at[slot].set(weights.reshape(pairs), mode="drop")
    )
    rows = tokens[token_of].reshape(experts, room, -1)
    y = jax.vmap(apply)(rows, w13, w2, weight_of.reshape(experts, room, 1))
    y = jnp.concatenate([y.reshape(experts * room, -1), jnp.zeros((1, y.shape[-1]), y.dtype)])
    return _sum_pairs(y[jnp.minimum(slot, experts * room)].astype(jnp.float32).reshape(t, a, -1))

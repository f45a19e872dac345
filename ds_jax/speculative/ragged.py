"""Rows of a verify step: anchors and chosen drafts of all sequences, one behind the other.

Decides where a row stands. Never computes one. In: lengths [R]. Out: for each of T rows whose it
is, and how far behind the anchor.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """T packed rows; those that are not valid come last."""

    sequence: jax.Array  # [T] int32, 0 .. R-1
    within: jax.Array  # [T] int32, 0: the anchor, k: draft k
    valid: jax.Array  # [T] bool
    first: jax.Array  # [R] int32, row of the anchor
    lengths: jax.Array  # [R] int32, drafts; those that found no row are cut off


def pack(lengths: Int[Array, " R"], active: Bool[Array, " R"], rows: int) -> Rows:
    """Anchor and `lengths` drafts of every active sequence; the others have no row."""
    count = jnp.where(active, lengths + 1, 0)
    end = jnp.cumsum(count)
    number = jnp.arange(rows, dtype=jnp.int32)
    sequence = jnp.sum(end[None, :] <= number[:, None], axis=1, dtype=jnp.int32)
    sequence = jnp.minimum(sequence, len(lengths) - 1)
    first = end - count
    valid = number < end[-1]
    within = jnp.where(valid, number - first[sequence], 0)
    kept = jnp.clip(rows - 1 - first, 0, jnp.where(active, lengths, 0))
    return Rows(sequence, within, valid, jnp.minimum(first, rows - 1), kept)


def take(packed: jax.Array, rows: Rows, drafts: int) -> jax.Array:
    """Values of drafts' rows by sequence: [T ..] -> [R K ..]; row k - 1 judges draft k."""
    at = rows.first[:, None] + jnp.arange(drafts)[None, :]
    return packed[jnp.minimum(at, len(packed) - 1)]

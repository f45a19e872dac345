"""Gather of Engram rows, from a whole table or from a table split over devices.

Decides how rows reach the token that asks. Never computes row numbers.
In: table [rows Dg] (quantised or plain; local part under shard_map), rows [T columns] int32.
Out: [T columns Dg].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax.pallas_kernels import matmul
from ds_jax.sharding.params import QuantArray


def lookup_reference(
    table: jax.Array | QuantArray, rows: Int[Array, "T c"], dtype: jnp.dtype
) -> Float[Array, "T c g"]:
    """Rows of a whole table, dequantised (exact in bfloat16)."""
    if isinstance(table, QuantArray):
        part = QuantArray(table.data[rows], table.scale[rows], table.storage)
        return matmul.dequantize(part, dtype)
    return table[rows].astype(dtype)


def lookup(
    table: jax.Array | QuantArray, rows: Int[Array, "T c"], dtype: jnp.dtype, axes: tuple[str, ...]
) -> Float[Array, "T c g"]:
    """Rows of a table split by rows over `axes` (none: whole table).

    Every device gathers the row numbers of all, answers for the rows it holds (zeros elsewhere)
    and the answers are summed and scattered back: exact, because exactly one term is not zero.
    Cost: T columns Dg values received a device.
    """
    if not axes:
        return lookup_reference(table, rows, dtype)
    local = (table.data if isinstance(table, QuantArray) else table).shape[0]
    everyone = lax.all_gather(rows, axes, axis=0, tiled=True)
    index = everyone - lax.axis_index(axes) * local
    mine = (index >= 0) & (index < local)
    found = lookup_reference(table, jnp.clip(index, 0, local - 1), dtype)
    answer = jnp.where(mine[..., None], found, jnp.zeros((), dtype))
    return lax.psum_scatter(answer, axes, scatter_dimension=0, tiled=True)

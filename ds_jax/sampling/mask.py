"""Refuses tokens: packed mask rows on logits.

Decides nothing: rows say which tokens stay. Never knows grammars. In: logits, rows, where they
belong. Out: logits.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

BITS = 32  # tokens of one word


def apply(
    logits: Float[Array, "T V"], rows: Int[Array, "N X"], targets: Int[Array, " N"]
) -> Float[Array, "T V"]:
    """Logits with refused tokens at minus infinity; other rows keep their bits.

    Args:
      logits: of all rows of the step.
      rows: int32, bit i of word w, lowest first, is token 32 w + i; 1 keeps it. Tokens behind the
        last word are refused.
      targets: int32, the logits row of each mask row, each at most once; T or more: padding.

    Cost: N V selects; a step with N = 0 rows costs nothing. N is a bucket size: one compilation
    for each.
    """
    t = len(logits)
    if not rows.shape[0]:
        return logits
    chosen = logits.at[jnp.minimum(targets, t - 1)].get(mode="promise_in_bounds")
    return logits.at[targets].set(refuse(chosen, rows), mode="drop")


def refuse(logits: Float[Array, "B V"], rows: Int[Array, "B X"]) -> Float[Array, "B V"]:
    """The same where every row of the logits has its mask row, in order."""
    return jnp.where(unpack(rows, logits.shape[1]), logits, -jnp.inf)


def unpack(rows: Int[Array, "N X"], size: int) -> Bool[Array, "N V"]:
    """One flag a token, `size` of them; missing ones are false."""
    n, words = rows.shape
    bits = (rows[:, :, None] >> jnp.arange(BITS, dtype=rows.dtype)[None, None, :]) & 1
    flags = bits.reshape(n, words * BITS)[:, :size] == 1
    return jnp.pad(flags, ((0, 0), (0, max(0, size - words * BITS))))

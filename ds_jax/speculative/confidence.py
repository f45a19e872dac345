"""Who gets the places of a step's budget, by confidences of the very drafts that are verified.

Decides how many drafts of each sequence are verified. Never decides the budget (`plan`), never sees
the value of a draft. In: confidences [R K], a budget. Out: lengths [R].

Whether draft k is verified may depend on anything but drafts k, k+1, .. of its own sequence. Here
it depends on how many survivals are larger than its own: later ones of the same sequence never are,
those of others know nothing of it. So the law of the output stays the target's.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def survivals(confidence: Float[Array, "R K"], allowed: Int[Array, " R"]) -> Float[Array, "R K"]:
    """Estimated probability that drafts 1..k are all accepted; -1 for drafts beyond `allowed`."""
    sure = jnp.clip(jnp.nan_to_num(confidence, nan=0.0), 0.0, 1.0)
    alive = jnp.arange(confidence.shape[1])[None, :] < allowed[:, None]
    return jnp.where(alive, jnp.cumprod(sure, axis=1), -1.0)


def lengths(survival: Float[Array, "R K"], budget: Int[Array, ""]) -> Int[Array, " R"]:
    """Drafts to verify: the `budget` largest survivals, of equal ones the first (`plan.places`).

    Cost: (R K)^2 comparisons.
    """
    r, k = survival.shape
    flat = survival.reshape(r * k)
    mine, other = flat[:, None], flat[None, :]
    earlier = jnp.arange(r * k)[None, :] < jnp.arange(r * k)[:, None]
    rank = jnp.sum((other > mine) | ((other == mine) & earlier), axis=1, dtype=jnp.int32)
    win = (rank < budget) & (flat >= 0)
    return jnp.sum(win.reshape(r, k), axis=1, dtype=jnp.int32)

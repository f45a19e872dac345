"""Changes of logits before sampling: logit bias, then what a sequence has said so far.

Decides formulas, and how the tokens of a sequence are counted. Never draws. In: logits, counts.
Out: logits, counts.

A slot's counts are one uint16 a token id: the top bit says that the prompt holds the token, the
rest how often the output does (`MOST` at most, a count above it stays there).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt16

IN_PROMPT = 0x8000
MOST = 0x7FFF


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Penalties:
    """How much a sequence avoids its own tokens; 1, 0, 0 change no bit."""

    repetition: jax.Array  # [B] f32, above 0
    presence: jax.Array  # [B] f32
    frequency: jax.Array  # [B] f32


def bias(
    logits: Float[Array, "B V"], ids: Int[Array, "B N"], values: Float[Array, "B N"]
) -> Float[Array, "B V"]:
    """Adds values to the logits of few ids, each id once a row; an id from V on is left out.

    Cost: a copy of the logits and B N single additions.
    """
    rows = jnp.arange(logits.shape[0])[:, None]
    return logits.at[rows, ids].add(values, mode="drop")


def penalize(
    logits: Float[Array, "B V"], counts: UInt16[Array, "B V"], penalties: Penalties
) -> Float[Array, "B V"]:
    """Logits x of tokens that were there before, made smaller (or larger, if so asked).

    x / r where x > 0 and x * r elsewhere, for tokens of prompt or output (repetition r);
    then x - f n - p [n > 0] with n the count in the output (frequency f, presence p).
    """
    said = (counts & jnp.uint16(MOST)).astype(jnp.float32)
    repetition = penalties.repetition[:, None]
    divided = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits = jnp.where(counts > 0, divided, logits)
    once = jnp.where(said > 0, penalties.presence[:, None], 0.0)
    return logits - penalties.frequency[:, None] * said - once


def count(
    counts: UInt16[Array, "slots V"],
    slots: Int[Array, " B"],
    tokens: Int[Array, " B"],
    wanted: Bool[Array, " B"],
) -> UInt16[Array, "slots V"]:
    """Counts one more output token of each slot that wants it; slots differ from each other."""
    old = counts[jnp.minimum(slots, counts.shape[0] - 1), tokens]
    new = jnp.where(old & jnp.uint16(MOST) == MOST, old, old + jnp.uint16(1))
    return counts.at[jnp.where(wanted, slots, counts.shape[0]), tokens].set(new, mode="drop")

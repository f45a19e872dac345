"""Sampling with everything a request can ask for.

Decides the order: logit bias, penalties, refused tokens, temperature, top-p, top-k, min-p; and that
the draws of a row that asks for nothing are those of `sample`. Never decides who asks. In: logits,
counts, controls. Out: tokens, counts, a report on each token.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt16

from ds_jax.sampling import logprobs, mask, penalties, sample


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shaping:
    """What each row of a step asks for beside `sample.Controls`."""

    slots: jax.Array  # [B] int32, rows of the counts; from their number on: a row of padding
    min_p: jax.Array  # [B] f32, 0 keeps all
    penalties: penalties.Penalties
    counted: jax.Array  # [B] bool, the penalties need the counts
    reported: jax.Array  # [B] bool, log probabilities are asked for
    bias_ids: jax.Array  # [B N] int32, from V on: none
    bias_values: jax.Array  # [B N] f32


def sample_full(
    logits: Float[Array, "B V"],
    counts: UInt16[Array, "slots V"],
    controls: sample.Controls,
    shaping: Shaping,
    rows: Int[Array, "B X"] | None = None,
) -> tuple[UInt16[Array, "slots V"], Int[Array, " B"], Int[Array, "B words"]]:
    """Counts with the drawn tokens, the tokens, and their `logprobs.report`.

    The report is zeros in a step where nobody asks for one.

    Args:
      rows: packed mask rows (`mask`); None: no token is refused.
    Cost: beside `sample`, reads B V logits twice and B V counts; a report adds a top-k of B V.
      Rows that have masks and nothing else cost what `sample` does.
    """

    def shaped() -> jax.Array:
        said = counts[jnp.minimum(shaping.slots, counts.shape[0] - 1)]
        biased = penalties.bias(logits, shaping.bias_ids, shaping.bias_values)
        # rows that are not counted have neutral penalties: what is left in their slot changes none
        found = penalties.penalize(biased, said, shaping.penalties)
        found = found if rows is None else mask.refuse(found, rows)
        return sample.sample(found, controls, shaping.min_p)

    if rows is None:
        tokens = shaped()
    else:
        biased = (shaping.bias_ids < logits.shape[1]).any()
        asked = shaping.counted.any() | (shaping.min_p > 0).any() | biased
        only = functools.partial(sample.sample, mask.refuse(logits, rows), controls)
        tokens = lax.cond(asked, shaped, only)
    counts = penalties.count(counts, shaping.slots, tokens, shaping.counted)
    report = lax.cond(
        shaping.reported.any(),
        lambda: logprobs.report(logits, tokens),
        lambda: jnp.zeros((len(tokens), logprobs.WORDS), jnp.int32),
    )
    return counts, tokens, report

"""What the model itself thought of a token: log probabilities before anything changed the logits.

Decides formula, ties and format. Never samples. In: logits. Out: int32 words of each row, for one
copy to the host.

| words | meaning |
|---|---|
| 0 | log probability of the row's token (float32 bits) |
| 1-20 | ids of the most likely tokens, the most likely first; -1 where there are fewer |
| 21-40 | their log probabilities (float32 bits) |
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax.records import MAX_TOP_LOGPROBS as TOP

WORDS = 1 + 2 * TOP
BLOCK = 32  # rows whose logits exist at the same time, where logits of many rows are asked for


def report(logits: Float[Array, "B V"], tokens: Int[Array, " B"]) -> Int[Array, "B words"]:
    """log softmax of the logits at the tokens and at the TOP largest; ties go to the lower id."""
    total = jax.nn.logsumexp(logits, axis=-1)[:, None]
    mine = jnp.take_along_axis(logits, tokens[:, None], axis=1)
    top, ids = lax.top_k(logits, min(TOP, logits.shape[1]))
    missing = ((0, 0), (0, TOP - top.shape[1]))
    ids = jnp.pad(ids.astype(jnp.int32), missing, constant_values=-1)
    top = jnp.pad(top, missing, constant_values=-jnp.inf)
    floats = lax.bitcast_convert_type(jnp.concatenate([mine, top], axis=1) - total, jnp.int32)
    return jnp.concatenate([floats[:, :1], ids, floats[:, 1:]], axis=1)


def report_rows(
    logits_of: Callable[[jax.Array], jax.Array],
    hidden: Float[Array, "T D"],
    tokens: Int[Array, " T"],
) -> Int[Array, "T words"]:
    """`report` of many rows, BLOCK rows at a time, so that their logits never exist together.

    Args:
      logits_of: hidden rows [BLOCK D] to logits [BLOCK V].
      tokens: the token that follows each row.
    """
    t, d = hidden.shape
    blocks = -(-t // BLOCK)
    short = blocks * BLOCK - t
    rows = jnp.pad(hidden, ((0, short), (0, 0))).reshape(blocks, BLOCK, d)
    follow = jnp.pad(tokens, (0, short)).reshape(blocks, BLOCK)
    words = lax.map(lambda block: report(logits_of(block[0]), block[1]), (rows, follow))
    return words.reshape(blocks * BLOCK, WORDS)[:t]

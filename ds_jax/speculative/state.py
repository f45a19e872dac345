"""What the device keeps of every slot between steps that verify drafts.

Decides which arrays those are and how a step's outcome is told in one row of words. Never decides
an outcome. In: sizes. Out: arrays; on the host, `Told` from words.

| words of a slot | |
|---|---|
| 0 | tokens of the last step that served it |
| K + 1 | those tokens |
| 1 | drafts verified |
| K | confidences of the drafts for the next step (float32 bits) |
| K | probability that a verified draft is accepted (float32 bits) |
| K | drafts for the next step; -1: there are none |
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DraftState:
    """Of all slots; K drafts each."""

    tokens: jax.Array  # [slots K] int32
    log_q: jax.Array  # [slots K V] f32, the law each was drawn from
    confidence: jax.Array  # [slots K] f32
    count: jax.Array  # [slots] int32, drafts there are: K or none
    anchor: jax.Array  # [slots] int32, position of the newest token, which no step has fed yet
    told: jax.Array  # [slots words] int32


def words(drafts: int) -> int:
    """Words told of a slot."""
    return 4 * drafts + 3


def init(slots: int, drafts: int, vocab: int) -> DraftState:
    """No slot has drafts."""
    return DraftState(
        tokens=jnp.zeros((slots, drafts), jnp.int32),
        log_q=jnp.zeros((slots, drafts, vocab), jnp.float32),
        confidence=jnp.zeros((slots, drafts), jnp.float32),
        count=jnp.zeros(slots, jnp.int32),
        anchor=jnp.zeros(slots, jnp.int32),
        told=jnp.zeros((slots, words(drafts)), jnp.int32),
    )


def started(
    state: DraftState, slots: Int[Array, " B"], anchor: Int[Array, " B"], token: Int[Array, " B"]
) -> DraftState:
    """After rows of prompts: one token each, and no drafts yet."""
    row = jnp.zeros((len(slots), state.told.shape[1]), jnp.int32)
    row = row.at[:, 0].set(1).at[:, 1].set(token).at[:, -state.tokens.shape[1] :].set(-1)
    return dataclasses.replace(
        state,
        count=state.count.at[slots].set(0, mode="drop"),
        anchor=state.anchor.at[slots].set(anchor, mode="drop"),
        told=state.told.at[slots].set(row, mode="drop"),
    )


def tell(
    count: Int[Array, " R"],
    tokens: Int[Array, "R emitted"],
    verified: Int[Array, " R"],
    confidence: Float[Array, "R K"],
    accept_prob: Float[Array, "R K"],
    drafts: Int[Array, "R K"],
) -> Int[Array, "R words"]:
    """The words of R slots."""
    bits = [lax.bitcast_convert_type(x, jnp.int32) for x in (confidence, accept_prob)]
    return jnp.concatenate([count[:, None], tokens, verified[:, None], *bits, drafts], axis=1)


@dataclasses.dataclass(frozen=True)
class Told:
    """Rows of words on the host; R readers."""

    tokens: list[list[int]]
    verified: np.ndarray  # [R]
    confidence: np.ndarray  # [R K]
    accept_prob: np.ndarray  # [R K]
    drafts: list[list[int]]  # K or none

    @classmethod
    def read(cls, rows: np.ndarray) -> Told:
        """From int32 [R words]."""
        k = (rows.shape[1] - 3) // 4
        rows = np.ascontiguousarray(rows)
        floats = rows.view(np.float32)
        tokens = [row[1 : 1 + row[0]] for row in rows[:, : k + 2].tolist()]
        drafts = [row if row[0] >= 0 else [] for row in rows[:, -k:].tolist()]
        sure, likely = floats[:, k + 3 : 2 * k + 3], floats[:, 2 * k + 3 : 3 * k + 3]
        return cls(tokens, rows[:, k + 2], sure, likely, drafts)

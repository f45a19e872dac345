"""Draft tokens one after the other, from one pass of the drafter.

Decides how a draft is drawn and what is kept of its law. Never runs the blocks (models.dspark).
In: hidden vectors and base logits of R blocks. Out: drafts, their log laws, confidences.

| sequence | draft |
|---|---|
| greedy | the most likely token |
| coupled | what the target's own noise makes of the draft's law: mostly the target's token |
| else | a draw of its own stream, whose law is kept for the acceptance test |
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax.models import dspark
from ds_jax.models.context import Context
from ds_jax.sampling import sample
from ds_jax.speculative import draws


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Drafts:
    """Drafts of R sequences."""

    tokens: jax.Array  # [R K] int32
    log_q: jax.Array  # [R K V] f32, law of each draft; anything where greedy or coupled
    confidence: jax.Array  # [R K] f32, of each if those before it are accepted


def choose(
    logits: Float[Array, "R V"],
    controls: sample.Controls,
    coupled: Bool[Array, " R"],
    k: int | jax.Array,
) -> tuple[Int[Array, " R"], Float[Array, "R V"]]:
    """Draft k (1 is the first) and its log law; `controls.position` is that of the anchors."""
    vocab = logits.shape[1]
    drawn = controls.temperature > 0

    def draw() -> tuple[jax.Array, jax.Array]:
        law = draws.log_law(logits, controls)
        position = controls.position + jnp.where(coupled, k, 0)
        stream = jnp.where(coupled, sample.STREAM_TARGET, draws.DRAFT + k)
        noisy = law + draws.noise(controls.seed, position, stream, vocab)
        return jnp.where(drawn, sample.largest(noisy), sample.largest(logits)), law

    def greedy() -> tuple[jax.Array, jax.Array]:
        return sample.largest(logits), jnp.zeros(logits.shape, jnp.float32)

    return lax.cond(drawn.any(), draw, greedy)


@jax.named_scope("draft")
def block(
    ctx: Context,
    p: dspark.DSparkParams,
    base: Float[Array, "R K V"],
    x: Float[Array, "R K D"],
    anchors: Int[Array, " R"],
    controls: sample.Controls,
    coupled: Bool[Array, " R"],
    temperatures: Float[Array, " K"],
) -> Drafts:
    """Drafts from left to right.

    Args:
      anchors: the tokens in front; controls.position: their positions.
      temperatures: of the confidence at each position (calibration).
    """

    def step(previous: jax.Array, given: tuple[jax.Array, ...]):  # a loop: it compiles K times less
        base, x, temperature, k = given
        logits, confidence = dspark.follow(ctx, p, base, x, previous)
        token, law = choose(logits, controls, coupled, k)
        return token, (token, law, jax.nn.sigmoid(confidence / temperature))

    number = jnp.arange(1, base.shape[1] + 1, dtype=jnp.int32)
    given = jnp.moveaxis(base, 1, 0), jnp.moveaxis(x, 1, 0), temperatures, number
    found = lax.scan(step, anchors, given)[1]
    return Drafts(*(jnp.moveaxis(a, 0, 1) for a in found))

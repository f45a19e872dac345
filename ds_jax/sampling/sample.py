"""Draws the next token of every sequence from its logits.

Decides that temperature comes before the filters, and what a draw depends on: the sequence's seed,
the absolute position of the token and the stream, never the place in the batch. Never changes
logits for other reasons. In: logits and controls of each sequence. Out: token ids.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ds_jax.sampling import filters

STREAM_TARGET = 0  # draws of the target model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Controls:
    """How each sequence of a step is sampled."""

    temperature: jax.Array  # [B] f32, 0 is greedy
    top_p: jax.Array  # [B] f32, 1 keeps all
    top_k: jax.Array  # [B] int32, below 1 keeps all
    seed: jax.Array  # [B 2] uint32, (high, low) word of the sequence's seed
    position: jax.Array  # [B] int32, absolute position of the token to draw


def sample(
    logits: Float[Array, "B V"], controls: Controls, min_p: Float[Array, " B"] | None = None
) -> Int[Array, " B"]:
    """Token ids: the most likely one where the temperature is 0, else a draw.

    A draw is argmax(logits / temperature + g) over the kept tokens with Gumbel noise g, which is
    the categorical distribution renormalised over them. The noise belongs to the token id, so a
    filter never changes the noise of the tokens it keeps; ties go to the lower id.

    Args:
      min_p: share of the highest probability that a token must have to be kept; None: no such
        filter is compiled.
    Cost: greedy B V; a draw B V hashes; see `filters` for theirs. A step without draws or without
    filters does not pay for them.
    """
    greedy = largest(logits)
    drawn = controls.temperature > 0
    filtered = drawn & ((controls.top_p < 1) | (controls.top_k > 0))

    def draw() -> jax.Array:
        scaled = scale(logits, controls)
        kept = lax.cond(
            filtered.any(),
            lambda: filters.kept_tokens(scaled, controls.top_p, controls.top_k),
            lambda: jnp.ones(scaled.shape, bool),
        )
        if min_p is not None:
            kept &= filters.likely_enough(scaled, min_p)
        noisy = jnp.where(kept, scaled + noise(controls, scaled.shape[-1]), -jnp.inf)
        return jnp.where(drawn, largest(noisy), greedy)

    return lax.cond(drawn.any(), draw, lambda: greedy)


def largest(values: Float[Array, "B V"]) -> Int[Array, " B"]:
    """Where each row is largest; of equal places the first, of a row with NaN the last.

    Two plain reductions: XLA:CPU fuses what makes the values into the loop of an argmax, which it
    does not vectorise, and a draw then takes seven times as long.
    """
    ids = jnp.arange(values.shape[1], dtype=jnp.int32)[None, :]
    found = jnp.where(values == values.max(axis=-1, keepdims=True), ids, values.shape[1] - 1)
    return found.min(axis=-1)


def scale(logits: Float[Array, "B V"], controls: Controls) -> Float[Array, "B V"]:
    """Logits over temperature; greedy rows are left as they are."""
    divisor = jnp.where(controls.temperature > 0, controls.temperature, 1.0)
    return logits / divisor[:, None]


def noise(controls: Controls, vocab: int, stream: int = STREAM_TARGET) -> Float[Array, "B V"]:
    """Gumbel noise of each sequence, a function of (seed, position, stream) alone."""

    def row(seed: jax.Array, position: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, position), stream)
        return jax.random.gumbel(key, (vocab,), jnp.float32)

    return jax.vmap(row)(controls.seed, controls.position)

"""Sampling: filters, the distribution of draws, and what a draw depends on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.sampling import filters, sample

V = 50


def controls(
    rows: int = 1,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = -1,
    seed: int = 7,
    position: int = 3,
) -> sample.Controls:
    return sample.Controls(
        temperature=jnp.full(rows, temperature, jnp.float32),
        top_p=jnp.full(rows, top_p, jnp.float32),
        top_k=jnp.full(rows, top_k, jnp.int32),
        seed=jnp.full((rows, 2), seed, jnp.uint32),
        position=jnp.full(rows, position, jnp.int32),
    )


def join(*parts: sample.Controls) -> sample.Controls:
    return jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


@pytest.fixture(scope="module")
def logits() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(0, 2, (4, V)), jnp.float32)


run = jax.jit(sample.sample)


def kept_oracle(scaled: np.ndarray, top_p: float, top_k: int) -> np.ndarray:
    """Walks tokens from the most likely on; stops when top_p is reached or top_k are kept."""
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    kept, total = np.zeros(len(scaled), bool), 0.0
    for count, token in enumerate(np.argsort(-scaled, kind="stable")):
        if (total >= top_p and top_p < 1) or (top_k > 0 and count >= top_k):
            break
        kept[token] = True
        total += probs[token]
    return kept


def test_temperature_zero_takes_the_most_likely_token(logits: jax.Array) -> None:
    got = run(logits, controls(4, temperature=0.0))
    np.testing.assert_array_equal(got, jnp.argmax(logits, axis=-1))


def test_ties_go_to_the_lower_id() -> None:
    flat = jnp.zeros((1, V)).at[0, jnp.array([5, 9])].set(1.0)
    assert int(run(flat, controls(temperature=0.0))[0]) == 5
    assert int(run(flat, controls(top_k=1))[0]) == 5


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, -1), (1.0, 5), (0.9, 3), (0.3, 40), (1e-6, -1)])
def test_kept_tokens_equal_the_walk(logits: jax.Array, top_p: float, top_k: int) -> None:
    got = filters.kept_tokens(logits, jnp.full(4, top_p), jnp.full(4, top_k))
    for row, values in zip(np.asarray(got), np.asarray(logits), strict=True):
        np.testing.assert_array_equal(row, kept_oracle(values, top_p, top_k))


def test_draws_follow_the_filtered_distribution(logits: jax.Array) -> None:
    rows = 4000
    one = controls(rows, temperature=0.8, top_p=0.9, top_k=6)
    drawn = run(
        jnp.broadcast_to(logits[:1], (rows, V)),
        sample.Controls(one.temperature, one.top_p, one.top_k, one.seed, jnp.arange(rows)),
    )
    scaled = np.asarray(logits[0]) / 0.8
    probs = np.exp(scaled - scaled.max()) * kept_oracle(scaled, 0.9, 6)
    probs /= probs.sum()
    counts = np.bincount(np.asarray(drawn), minlength=V)
    assert not counts[probs == 0].any()
    kept = probs > 0
    error = counts[kept] / rows - probs[kept]
    assert np.abs(error).max() < 4 * np.sqrt(0.25 / rows)


def test_a_draw_does_not_depend_on_its_neighbours(logits: jax.Array) -> None:
    mine = controls(seed=11, position=5, temperature=0.7, top_k=9)
    others = join(controls(temperature=0.0), controls(top_p=0.5, seed=3), controls(position=9))
    alone = run(logits[:1], mine)
    first = run(logits, join(mine, others))
    last = run(jnp.roll(logits, -1, axis=0), join(others, mine))
    assert int(alone[0]) == int(first[0]) == int(last[3])


def test_unfiltered_draws_are_the_same_beside_filtered_ones(logits: jax.Array) -> None:
    plain = run(logits[:2], controls(2))
    mixed = run(logits[:2], join(controls(), controls(top_k=2)))
    assert int(plain[0]) == int(mixed[0])


def test_seed_and_position_each_change_the_noise() -> None:
    parts = join(controls(), controls(seed=8), controls(position=4), controls())
    noise = np.asarray(sample.noise(parts, V))
    assert (noise[0] == noise[3]).all()
    assert (noise[0] != noise[1]).any() and (noise[0] != noise[2]).any()
    assert (noise[0] != np.asarray(sample.noise(controls(), V, stream=1))[0]).any()


def test_largest_is_the_first_of_equal_places_and_always_a_token() -> None:
    rows = np.zeros((4, V), np.float32)
    rows[0, [9, 30]] = 3.0
    rows[1] = -np.inf
    rows[2, 17] = np.inf
    rows[3, 4] = np.nan
    assert sample.largest(jnp.asarray(rows)).tolist() == [9, 0, 17, V - 1]

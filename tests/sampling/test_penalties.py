"""Bias and penalties against their formulas, and how tokens are counted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.sampling import penalties
from tests.oracles import sampling as oracle

V = 23
NOBODY = 2**30

penalize = jax.jit(penalties.penalize)
tokens = st.lists(st.integers(0, V - 1), max_size=40)


def counts_of(prompt: list[int], output: list[int]) -> jax.Array:
    row = np.zeros(V, np.uint16)
    for token in output:
        row[token] += 1
    row[prompt] |= penalties.IN_PROMPT
    return jnp.asarray(row)[None]


def settings_of(*values: float) -> penalties.Penalties:
    return penalties.Penalties(*(jnp.array([v], jnp.float32) for v in values))


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 4, V).astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(
    tokens,
    tokens,
    st.floats(0.125, 4, width=32),
    st.floats(-2, 2, width=32),
    st.floats(-2, 2, width=32),
)
def test_penalties_equal_the_formula(
    prompt: list[int], output: list[int], r: float, p: float, f: float
) -> None:
    logits = np.random.default_rng(3).normal(0, 4, V).astype(np.float32)
    got = penalize(jnp.asarray(logits)[None], counts_of(prompt, output), settings_of(r, p, f))[0]
    wanted = oracle.shaped(logits, prompt, output, r, p, f)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_an_empty_history_changes_no_bit(logits: np.ndarray) -> None:
    got = penalize(jnp.asarray(logits)[None], counts_of([], []), settings_of(1.7, 1.5, -2))[0]
    np.testing.assert_array_equal(got, logits)


def test_neutral_penalties_change_no_bit(logits: np.ndarray) -> None:
    used = counts_of([1, 2], [2, 3, 3])
    np.testing.assert_array_equal(
        penalize(jnp.asarray(logits)[None], used, settings_of(1, 0, 0))[0], logits
    )


def test_the_prompt_counts_for_repetition_alone(logits: np.ndarray) -> None:
    used = counts_of([4], [])
    one = jnp.asarray(logits)[None]
    np.testing.assert_array_equal(penalize(one, used, settings_of(1, 2, 2))[0], logits)
    changed = np.flatnonzero(np.asarray(penalize(one, used, settings_of(2, 0, 0))[0]) != logits)
    assert changed.tolist() == [4]


def test_refused_tokens_stay_refused() -> None:
    refused = jnp.full((1, V), -jnp.inf)
    got = penalize(refused, counts_of([1], [1, 1]), settings_of(1.5, -2, -2))
    assert (np.asarray(got) == -np.inf).all()


def test_bias_adds_to_its_tokens_and_leaves_out_what_is_none(logits: np.ndarray) -> None:
    ids = jnp.array([[5, NOBODY, 0, V]], jnp.int32)
    got = penalties.bias(jnp.asarray(logits)[None], ids, jnp.array([[2.5, 9.0, -100.0, 9.0]]))[0]
    wanted = oracle.shaped(logits, bias=((5, 2.5), (0, -100.0)))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_count_adds_one_where_it_is_wanted() -> None:
    counts = jnp.zeros((4, V), jnp.uint16).at[2, 7].set(penalties.IN_PROMPT | 3)
    got = np.asarray(
        penalties.count(
            counts,
            jnp.array([2, 0, 3, NOBODY]),
            jnp.array([7, 1, 2, 4]),
            jnp.array([True, True, False, True]),
        )
    )
    assert got[2, 7] == penalties.IN_PROMPT | 4
    assert got[0, 1] == 1
    assert np.count_nonzero(got) == 2


def test_a_count_stops_at_the_most_it_can_hold() -> None:
    full = penalties.IN_PROMPT | penalties.MOST
    counts = jnp.zeros((1, V), jnp.uint16).at[0, 7].set(full)
    got = penalties.count(counts, jnp.array([0]), jnp.array([7]), jnp.array([True]))
    assert int(got[0, 7]) == full

"""Filters keep what a walk over the sorted tokens keeps, ties included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.pallas_kernels import leading
from ds_jax.sampling import filters
from tests.oracles import sampling as oracle

V = 37
kept_tokens = jax.jit(filters.kept_tokens)
likely_enough = jax.jit(filters.likely_enough)

# few different values: many ties; steps wide enough that float32 sums decide like float64 ones
rows = st.lists(st.integers(-6, 6).map(lambda n: n / 2), min_size=V, max_size=V)
shares = st.sampled_from([1e-6, 0.1037, 0.3331, 0.5003, 0.7009, 0.9001, 0.9901, 1.0])


def kept(values: np.ndarray, top_p: float, top_k: int) -> np.ndarray:
    one = jnp.asarray(values, jnp.float32)[None]
    return np.asarray(kept_tokens(one, jnp.array([top_p], jnp.float32), jnp.array([top_k])))[0]


@settings(max_examples=300, deadline=None)
@given(rows, shares, st.integers(-1, V + 3))
def test_kept_tokens_equal_the_walk(values: list[float], top_p: float, top_k: int) -> None:
    row = np.array(values)
    np.testing.assert_array_equal(kept(row, top_p, top_k), oracle.kept(row, top_p, top_k))


@settings(max_examples=100, deadline=None)
@given(rows, st.sampled_from([0.0, 0.011, 0.101, 0.5, 0.999, 1.0]))
def test_likely_enough_equals_the_walk(values: list[float], min_p: float) -> None:
    row = jnp.asarray(values, jnp.float32)[None]
    got = likely_enough(row, jnp.array([min_p], jnp.float32))[0]
    np.testing.assert_array_equal(got, oracle.kept(np.array(values), min_p=min_p))


def test_refused_tokens_stay_refused_and_cost_no_mass() -> None:
    row = np.full(V, -np.inf)
    row[[3, 8, 20]] = [1.0, 0.5, 0.0]
    assert np.flatnonzero(kept(row, 0.5, -1)).tolist() == [3]
    assert np.flatnonzero(kept(row, 0.9, 2)).tolist() == [3, 8]


def test_both_zeros_are_equal() -> None:
    row = np.zeros(V)
    row[::2] = -0.0
    assert np.flatnonzero(kept(row, 1.0, 3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("top_p", [1e-45, 1e-30])
def test_the_most_likely_token_always_stays(top_p: float) -> None:
    row = np.linspace(0, 1, V)
    assert np.flatnonzero(kept(row, top_p, -1)).tolist() == [V - 1]


def test_a_row_is_filtered_alike_at_every_batch_size() -> None:
    values = np.random.default_rng(0).normal(0, 3, (16, V)).astype(np.float32)
    top_p, top_k = np.linspace(0.05, 0.99, 16, dtype=np.float32), np.arange(16) - 1
    together = kept_tokens(values, top_p, top_k)
    for size in (1, 4):
        for start in range(0, 16, size):
            part = slice(start, start + size)
            alone = kept_tokens(values[part], top_p[part], top_k[part])
            np.testing.assert_array_equal(alone, together[part])


def test_ordered_keeps_the_order_of_floats() -> None:
    values = np.array([-np.inf, -3e38, -1.0, -1e-30, 0.0, 1e-30, 1.0, 3e38, np.inf], np.float32)
    keys = np.asarray(leading.ordered(jnp.asarray(values)[None]))[0]
    assert (np.diff(keys.astype(np.int64)) > 0).all()

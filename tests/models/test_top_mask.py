"""The k largest scores of every query, without sorting: those that a sort finds."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ds_jax.models import indexer


def _sorted(values: np.ndarray, k: int) -> np.ndarray:
    """The definition: by value downwards, then by index; nothing at -inf."""
    order = np.argsort(-values, axis=-1, kind="stable")
    found = np.zeros(values.shape, bool)
    np.put_along_axis(found, order[..., :k], True, axis=-1)
    return found & (values > -np.inf)


@pytest.mark.parametrize("k", [1, 7, 63])
def test_top_mask_is_what_a_sort_finds(k: int) -> None:
    draw = np.random.default_rng(k)
    values = draw.normal(size=(2, 9, 64)).astype(np.float32)
    values[0] = np.round(values[0])  # many are equal, zeros of both signs among them
    values[1, 0] = 0.5
    lens = draw.integers(0, 65, (2, 9, 1))
    values = np.where(np.arange(64) < lens, values, -np.inf).astype(np.float32)
    values[1, 1, 3] = np.inf
    found = jax.jit(lambda v: indexer.top_mask(v, k))(values)
    np.testing.assert_array_equal(np.asarray(found), _sorted(values, k))

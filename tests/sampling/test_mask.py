"""Packed rows on logits: the NumPy twin gives the same bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.sampling import mask


def oracle(logits: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    out = logits.copy()
    for row, target in zip(rows, targets, strict=True):
        if target >= len(out):
            continue
        for token in range(out.shape[1]):
            word, bit = divmod(token, 32)
            if word >= len(row) or not int(row[word]) >> bit & 1:
                out[target, token] = -np.inf
    return out


@pytest.mark.parametrize(("v", "words"), [(96, 3), (70, 3), (1, 1), (33, 2), (100, 3), (31, 1)])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_apply_equals_the_oracle(v, words, dtype):
    rng = np.random.default_rng(v)
    t, n = 9, 6
    logits = rng.normal(size=(t, v)).astype(dtype)
    rows = rng.integers(-(2**31), 2**31, (n, words)).astype(np.int32)
    rows[0] = -1
    rows[1] = 0
    targets = np.array([8, 0, 3, 9, 9, 2**30], np.int32)
    found = jax.jit(mask.apply)(logits, rows, targets)
    assert found.dtype == dtype
    expected = oracle(np.asarray(logits, np.float32), rows, targets)
    np.testing.assert_array_equal(np.asarray(found, np.float32), expected)


def test_rows_without_a_mask_keep_their_bits():
    logits = jnp.array([[1.0, jnp.nan, -jnp.inf], [0.5, -0.0, 2.0]])
    rows = jnp.zeros((1, 1), jnp.int32)
    found = mask.apply(logits, rows, jnp.array([1], jnp.int32))
    assert np.asarray(found[0]).tobytes() == np.asarray(logits[0]).tobytes()
    assert (np.asarray(found[1]) == -np.inf).all()


def test_padding_alone_and_no_rows_change_nothing():
    logits = jnp.arange(6.0).reshape(2, 3)
    for n in (0, 4):
        rows, targets = jnp.zeros((n, 1), jnp.int32), jnp.full((n,), 2, jnp.int32)
        found = jax.jit(mask.apply)(logits, rows, targets)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(logits))


def test_unpacked_flags_are_numpys():
    rows = np.array([[-(2**31), 5], [1, -1]], np.int32)
    expected = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little").astype(bool)
    np.testing.assert_array_equal(np.asarray(mask.unpack(jnp.asarray(rows), 64)), expected)
    np.testing.assert_array_equal(np.asarray(mask.unpack(jnp.asarray(rows), 40)), expected[:, :40])
    longer = np.asarray(mask.unpack(jnp.asarray(rows), 70))
    np.testing.assert_array_equal(longer[:, :64], expected)
    assert not longer[:, 64:].any()

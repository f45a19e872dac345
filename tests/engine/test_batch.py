"""Packing and unpacking of a step's metadata."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ds_jax.engine import batch as batches
from ds_jax.engine.buckets import StepKey
from ds_jax.records import SamplingParams

PARAMS = SamplingParams(temperature=0.7, top_p=0.9, top_k=5)
SEED = 0xFEDC_BA98_7654_3210


def test_unpack_returns_what_was_packed() -> None:
    key = StepKey(sequences=2, tokens=4, pages=3)
    row = batches.Row(1, 5, 9, (7, 8), (5, 6), range(15, 20), PARAMS, SEED)
    packed, places = batches.pack([row], key, ranks=2, back=3)
    assert places == [2]
    batch, controls = batches.unpack(jnp.asarray(packed), key, 3, jnp.zeros((8, 4), jnp.int32))
    assert batch.token_ids[2].tolist() == [7, 8, 0, 0]
    assert batch.lookback_ids[2].tolist() == [0, 5, 6]
    assert batch.page_table[2].tolist() == [15, 16, 17]
    assert [int(a[2]) for a in (batch.slots, batch.start, batch.lens)] == [5, 9, 2]
    assert int(controls.position[2]) == 11
    assert controls.seed[2].tolist() == [SEED >> 32, SEED & 0xFFFFFFFF]
    np.testing.assert_allclose([controls.temperature[2], controls.top_p[2]], [0.7, 0.9], rtol=1e-6)
    assert int(controls.top_k[2]) == 5
    others = np.array([0, 1, 3])
    assert (np.asarray(batch.lens)[others] == 0).all()
    assert (np.asarray(batch.slots)[others] == batches.NO_SLOT).all()


def test_a_decode_step_finds_its_tokens_on_the_device() -> None:
    key = StepKey(sequences=1, tokens=1, pages=1, feeds_back=True)
    row = batches.Row(0, 2, 6, (0,), (), range(2, 3), PARAMS, 1)
    packed, _ = batches.pack([row], key, ranks=1, back=2)
    recent = jnp.arange(12, dtype=jnp.int32).reshape(4, 3)
    batch, _ = batches.unpack(jnp.asarray(packed), key, 2, recent)
    assert batch.lookback_ids.tolist() == [[6, 7]]
    assert batch.token_ids.tolist() == [[8]]

"""Weights land on the released grids, the same way in training and in the writer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ds_jax.checkpoint import decode, loader, quantize, writer
from ds_jax.models import deepseek_v41
from ds_jax.pallas_kernels import matmul
from ds_jax.sharding import params

LAYOUTS = (("fp8", (70, 96)), ("fp4", (3, 8, 64)), ("rows", (9, 64)))


def oracle(storage: str, x: np.ndarray) -> np.ndarray:
    """Each group alone, from the formulas, with the casts of ml_dtypes."""
    block = 32 if storage == "fp8" else 1
    top, floor = (6.0, 6 * 2.0**-126) if storage == "fp4" else (448.0, 1e-4)
    kind = ml_dtypes.float4_e2m1fn if storage == "fp4" else ml_dtypes.float8_e4m3fn
    flat = x.reshape(-1, *x.shape[-2:])
    out = np.zeros_like(flat)
    for m, matrix in enumerate(flat):
        for o in range(0, x.shape[-2], block):
            for i in range(0, x.shape[-1], 32):
                group = matrix[o : o + block, i : i + 32].astype(np.float64)
                scale = 2.0 ** np.ceil(np.log2(max(np.abs(group).max(), floor) / top))
                grid = np.clip(group / scale, -top, top).astype(kind).astype(np.float64)
                out[m, o : o + block, i : i + 32] = grid * scale
    return out.reshape(x.shape)


def sample(shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(0)
    x = random.standard_normal(shape) * 2.0 ** random.integers(-12, 4, shape)
    x[..., 0, :32] = 0  # an all-zero group
    x[..., 1, 3] = 448.0 * 2.0**-3  # exactly at the top of a grid
    x[..., 2, 5] = 300.0  # an outlier
    return x.astype(np.float32)


@pytest.mark.parametrize(("storage", "shape"), LAYOUTS)
def test_values_equal_the_formula(storage, shape):
    x = sample(shape)
    coded = quantize.encode(storage, jnp.asarray(x))
    assert coded.data.shape == params.data_shape(storage, shape)
    assert coded.scale.shape == params.scale_shape(storage, shape)
    assert coded.scale.dtype == jnp.uint8
    np.testing.assert_array_equal(matmul.dequantize(coded, jnp.float32), oracle(storage, x))


@pytest.mark.parametrize(("storage", "shape"), LAYOUTS)
def test_quantising_twice_changes_nothing(storage, shape):
    once = matmul.dequantize(quantize.encode(storage, jnp.asarray(sample(shape))), jnp.float32)
    twice = matmul.dequantize(quantize.encode(storage, once), jnp.float32)
    np.testing.assert_array_equal(once, twice)


def test_training_sees_exactly_what_saving_and_loading_gives(model, tmp_path):
    spec_tree = deepseek_v41.spec(model)
    initial = params.initialize(spec_tree, seed=3)
    fake = jax.jit(lambda p: quantize.fake_quantize(spec_tree, p))(initial)
    writer.save(tmp_path / "x", model, initial)
    stored = loader.load(tmp_path / "x", model, weights="dequantized", dtype=jnp.float32)
    jax.tree.map(np.testing.assert_array_equal, fake, stored)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), initial, fake)
    assert changed.layers[0].ffn.w13 and changed.layers[0].attn.wkv and changed.head
    assert not changed.layers[0].hc_attn.fn


def test_training_sees_bf16_where_the_checkpoint_is_not_quantised(model):
    spec_tree = deepseek_v41.spec(model).layers[0].ffn
    initial = params.initialize(spec_tree, seed=3)
    fake = quantize.fake_quantize(spec_tree, initial, quantized=False)
    np.testing.assert_array_equal(fake.w13, initial.w13.astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_array_equal(fake.bias, initial.bias)


def test_gradients_pass_straight_through(model):
    spec_tree = deepseek_v41.spec(model).layers[0].ffn
    initial = params.initialize(spec_tree, seed=3)

    def total(p):
        leaves = jax.tree.leaves(quantize.fake_quantize(spec_tree, p))
        return sum(jnp.sum(x * 3) for x in leaves)

    for gradient in jax.tree.leaves(jax.jit(jax.grad(total))(initial)):
        np.testing.assert_array_equal(gradient, np.full(gradient.shape, 3, np.float32))


def test_the_host_decodes_what_the_device_encodes():
    for storage, shape in (("fp8", (70, 96)), ("fp4", (8, 64)), ("rows", (9, 64))):
        coded = quantize.encode(storage, jnp.asarray(sample(shape)))
        values = decode.dequantize(storage, np.asarray(coded.data), np.asarray(coded.scale))
        np.testing.assert_array_equal(values, matmul.dequantize(coded, jnp.float32))

"""What follows from a declaration: shapes, dtypes, bytes, initial values."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from ds_jax.pallas_kernels import grouped_matmul, matmul
from ds_jax.sharding import params
from ds_jax.sharding.params import ParamSpec, QuantArray

EXPERTS = ParamSpec((4, 70, 64), "fp4", ("experts", None, None), ("e.{e}.w1", "e.{e}.w3"), 64)
TREE = {
    "dense": ParamSpec((70, 96), "fp8", (None, None), ("dense",), 96),
    "experts": EXPERTS,
    "table": ParamSpec((10, 64), "rows", ("rows", None), ("table",), 64),
    "norm": ParamSpec((5,), "bf16", (None,), ("norm.weight",)),
    "sink": ParamSpec((3,), "f32", (None,), ("sink",), fill=0.0, keep_f32=True),
    "none": None,
}


def test_quantised_shapes():
    tree = params.abstract(TREE, True, jnp.bfloat16, row_multiple=8)
    described = {
        name: (x.data.shape, x.data.dtype.name, x.scale.shape, x.scale.dtype.name)
        for name, x in tree.items()
        if isinstance(x, QuantArray)
    }
    assert described == {
        "dense": ((70, 96), "float8_e4m3fn", (3, 3), "uint8"),
        "experts": ((4, 70, 32), "uint8", (4, 70, 2), "uint8"),
        "table": ((16, 64), "float8_e4m3fn", (16, 2), "uint8"),
    }
    assert tree["norm"] == jax.ShapeDtypeStruct((5,), jnp.bfloat16)
    assert tree["sink"] == jax.ShapeDtypeStruct((3,), jnp.float32)
    assert tree["none"] is None
    sizes = (70 * 96 + 9, 4 * 70 * (32 + 2), 16 * (64 + 2), 10, 12)
    assert params.num_bytes(tree) == sum(sizes)


def test_plain_shapes_and_counts():
    tree = params.abstract(TREE, False, jnp.float32)
    assert {n: x.shape for n, x in tree.items() if x} == {n: s.shape for n, s in TREE.items() if s}
    assert {x.dtype.name for x in tree.values() if x} == {"float32"}
    assert params.num_parameters(TREE) == params.num_bytes(tree) // 4


def test_initial_values_have_the_declared_spread():
    tree = params.initialize(TREE, seed=1)
    for name in ("dense", "experts"):
        x = tree[name]
        assert x.shape == TREE[name].shape and x.dtype == jnp.float32
        assert math.isclose(float(x.std()), TREE[name].fan_in ** -0.5, rel_tol=0.05)
    np.testing.assert_array_equal(tree["norm"], np.ones(5))
    np.testing.assert_array_equal(tree["sink"], np.zeros(3))


def test_initial_values_depend_on_seed_and_name_alone():
    whole = params.initialize(TREE, seed=1)
    alone = params.initialize({"x": TREE["dense"]}, seed=1)
    np.testing.assert_array_equal(whole["dense"], alone["x"])
    other = params.initialize({"x": TREE["dense"]}, seed=2)
    assert not np.array_equal(alone["x"], other["x"])
    half = params.initialize(TREE, seed=1, dtype=jnp.bfloat16)
    assert half["dense"].dtype == jnp.bfloat16 and half["sink"].dtype == jnp.float32


def test_a_matrix_held_input_first_multiplies_the_same():
    draw = np.random.default_rng(0)
    x = jnp.asarray(draw.integers(-8, 8, (5, 96)), jnp.float32)
    w = jnp.asarray(draw.integers(-8, 8, (3, 70, 96)), jnp.bfloat16)
    held = params.input_first(params.linear((3, 70, 96), "bf16", ("w",)), w)
    assert held.data.shape == (3, 96, 70) and held.data.dtype == w.dtype
    assert grouped_matmul.num_experts(held) == 3
    assert (matmul.dequantize(held, w.dtype) == w).all()
    for number in range(3):  # whole numbers: their sums are exact in any order
        one = grouped_matmul.take_expert(held, jnp.int32(number))
        assert (matmul.matmul(x, one) == matmul.matmul(x, w[number])).all()


def test_only_plain_multiplied_matrices_are_held_input_first():
    table = ParamSpec((70, 96), "bf16", (None, None), ("table",), 96)
    w = jnp.zeros((70, 96), jnp.bfloat16)
    assert params.input_first(table, w) is w
    quantized = QuantArray(w, w, "fp8")
    assert params.input_first(params.linear((70, 96), "fp8", ("w",)), quantized) is quantized

"""Arrays come back bit-equal on any mesh."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.checkpoint import loader, store
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.sharding import mesh, params


def equal_bits(x: jax.Array, y: jax.Array) -> None:
    a, b = np.asarray(x), np.asarray(y)
    rows = min(len(a), len(b))
    assert a.dtype == b.dtype and a[:rows].tobytes() == b[:rows].tobytes()
    assert not a[rows:].view(np.uint8).any() and not b[rows:].view(np.uint8).any()


def on_mesh(path, model, text, original):
    devices = mesh.build(mesh.MeshSpec.parse(text))
    tree = store.restore_model(path, model, quantized=True, mesh=devices)
    jax.tree.map(equal_bits, original, tree)
    used = {d for x in jax.tree.leaves(tree) for d in x.sharding.device_set}
    assert used == set(devices.devices.flat)
    return tree


def test_one_device_to_eight_to_two_by_four_to_three(model, case, tmp_path):
    original = loader.load(case, model)
    store.save(tmp_path / "one", original)
    eight = on_mesh(tmp_path / "one", model, "ep8", original)
    store.save(tmp_path / "eight", eight)
    two_by_four = on_mesh(tmp_path / "eight", model, "ep4,dp8", original)
    w13 = two_by_four.layers[0].ffn.w13.data
    assert w13.addressable_shards[0].data.shape[0] == model.n_routed_experts // 4
    on_mesh(tmp_path / "eight", model, "ep1,dp3", original)  # table rows need padding


def test_plain_parameters_without_a_mesh(model, tmp_path):
    plain = dataclasses.replace(model, quantization=None)
    initial = params.initialize(deepseek_v41.spec(plain), seed=0)
    store.save(tmp_path / "x", initial)
    again = store.restore_model(tmp_path / "x", plain, quantized=False, dtype=jnp.float32)
    jax.tree.map(equal_bits, initial, again)


def test_any_pytree_can_be_stored(tmp_path):
    tree = {"step": jnp.int32(3), "moments": [jnp.ones(4), jnp.zeros((2, 2))]}
    store.save(tmp_path / "x", tree)
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    jax.tree.map(np.testing.assert_array_equal, tree, store.restore(tmp_path / "x", target))


def test_everything_that_does_not_fit_is_listed(tmp_path):
    store.save(tmp_path / "x", {"a": jnp.ones(4), "b": jnp.ones((2, 3))})
    shape = jax.ShapeDtypeStruct
    target = {"b": shape((2, 4), jnp.float32), "c": shape((1,), jnp.float32)}
    with pytest.raises(CheckpointError) as error:
        store.restore(tmp_path / "x", target)
    assert "3 arrays do not fit" in str(error.value)
    assert "a: stored, but not asked for" in str(error.value)
    assert "b: [2, 3] stored, [2, 4] asked for" in str(error.value)
    assert "c: not stored" in str(error.value)


def test_folders_are_checked(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        store.restore(tmp_path / "x", {})
    with pytest.raises(CheckpointError, match="not a folder written by store"):
        store.restore(tmp_path, {"a": jax.ShapeDtypeStruct((1,), jnp.float32)})
    store.save(tmp_path / "x", {"a": jnp.ones(1)})
    with pytest.raises(CheckpointError, match="already exists"):
        store.save(tmp_path / "x", {"a": jnp.ones(1)})
    store.save(tmp_path / "x", {"a": jnp.zeros(1)}, overwrite=True)

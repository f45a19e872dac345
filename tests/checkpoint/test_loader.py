"""Loading joins tensors exactly, into any sharding, and names everything that does not fit."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config
from ds_jax.checkpoint import decode, loader, names, reader, safetensors
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.pallas_kernels import matmul
from ds_jax.sharding import mesh, params
from ds_jax.sharding.params import QuantArray

F32 = jnp.float32


def equal(x: jax.Array, y: jax.Array) -> None:
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def rewrite(source: pathlib.Path, target: pathlib.Path, change) -> pathlib.Path:
    """Copies a checkpoint; `change` edits the table name -> (dtype, values)."""
    old = safetensors.Reader(source / reader.SINGLE)
    table = {name: (t.dtype, old.read(name)) for name, t in old.tensors.items()}
    change(table)
    infos = [safetensors.TensorInfo(n, dtype, v.shape) for n, (dtype, v) in table.items()]
    target.mkdir()
    safetensors.write(target / reader.SINGLE, infos, lambda name: table[name][1])
    return target


def test_dequantised_weights_equal_the_recorded_ones(case, model):
    spec_tree = deepseek_v41.spec(model)
    loaded = loader.load(case, model, weights="dequantized", dtype=F32)
    recorded = safetensors.Reader(case / "dequantized.safetensors")
    compared = 0

    def compare(spec, array):
        nonlocal compared
        for piece in names.stored(spec, True):
            if piece.part == "data":
                expected = recorded.read(piece.info.name).astype(np.float32)
                own = np.asarray(array if piece.expert is None else array[piece.expert])
                rows = slice(piece.row, piece.row + len(expected))
                np.testing.assert_array_equal(own[rows], expected)
                compared += 1

    jax.tree.map(compare, spec_tree, loaded)
    assert compared == len(recorded.tensors)


def test_quantised_weights_dequantise_to_the_same_values(case, model):
    plain = loader.load(case, model, weights="dequantized", dtype=F32)
    quantized = loader.load(case, model)
    kinds = {
        x.storage
        for x in jax.tree.leaves(quantized, is_leaf=lambda x: isinstance(x, QuantArray))
        if isinstance(x, QuantArray)
    }
    assert kinds == {"fp8", "fp4", "rows"}

    @jax.jit
    def expand(tree):
        is_weight = lambda x: isinstance(x, QuantArray)  # noqa: E731
        return jax.tree.map(lambda x: matmul.dequantize(x, F32), tree, is_leaf=is_weight)

    jax.tree.map(equal, plain, expand(quantized))


def test_every_value_is_exact_in_bfloat16(case, model):
    plain = loader.load(case, model, weights="dequantized", dtype=F32)
    rounded = loader.load(case, model, weights="dequantized", dtype=jnp.bfloat16)
    jax.tree.map(lambda x, y: equal(x, y.astype(F32)), plain, rounded)
    assert rounded.head.dtype == jnp.bfloat16
    assert rounded.layers[0].hc_attn.fn.dtype == rounded.layers[0].attn.sink.dtype == F32


@pytest.mark.parametrize("weights", loader.WEIGHTS)
@pytest.mark.parametrize("text", ["ep8", "ep2,dp8", "ep1,dp3"])
def test_a_mesh_changes_the_placement_and_no_value(case, model, weights, text):
    devices = mesh.build(mesh.MeshSpec.parse(text))
    alone = loader.load(case, model, weights=weights)
    spread = loader.load(case, model, weights=weights, mesh=devices)

    def compare(spec, x, y):
        for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
            assert b.sharding.device_set == set(devices.devices.flat)
            equal(np.asarray(a), np.asarray(b)[: a.shape[0]])
            assert not np.asarray(b)[a.shape[0] :].view(np.uint8).any()

    jax.tree.map(compare, deepseek_v41.spec(model), alone, spread)
    w13 = jax.tree.leaves(spread.layers[0].ffn.w13)
    local = model.n_routed_experts // devices.shape["ep"]
    assert {x.addressable_shards[0].data.shape[0] for x in w13} == {local}
    table = jax.tree.leaves(spread.layers[1].engram.table)
    assert {x.addressable_shards[0].data.shape[0] for x in table} == {
        -(-model.engram_num_embeddings[0] // devices.size)
    }


def test_loaded_parameters_match_the_abstract_ones(case, model):
    for keep in (True, False):
        weights = "quantized" if keep else "dequantized"
        loaded = loader.load(case, model, weights=weights, row_multiple=7)
        expected = params.abstract(deepseek_v41.spec(model), keep, jnp.bfloat16, 7)
        described = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), loaded)
        assert described == expected


def test_names_with_the_model_prefix_load_too(case, model, tmp_path):
    def prefix(table):
        for name in list(table):
            table[f"model.{name}"] = table.pop(name)

    folder = rewrite(case, tmp_path / "x", prefix)
    alone = loader.load(case, model)
    jax.tree.map(equal, alone, loader.load(folder, model))


def test_parts_of_other_modules_are_skipped(case, model, tmp_path):
    def add(table):
        for name in ("mtp.0.main_norm.weight", "vision.norm.weight", "image_start"):
            table[name] = table["norm.weight"]

    folder = rewrite(case, tmp_path / "x", add)
    loader.load(folder, model)


def test_one_error_lists_everything_that_does_not_fit(case, model, tmp_path):
    def spoil(table):
        del table["norm.weight"]
        del table["layers.0.ffn.experts.3.w1.scale"]
        table["layers.0.extra"] = ("F32", np.zeros(3, np.float32))
        scale = table["layers.0.attn.wkv.scale"][1]
        table["layers.0.attn.wkv.scale"] = ("F32", scale.astype(np.float32))
        table["embed.weight"] = ("BF16", table["embed.weight"][1][:-1])

    with pytest.raises(CheckpointError) as error:
        loader.load(rewrite(case, tmp_path / "x", spoil), model)
    message = str(error.value)
    assert "2 missing tensors:" in message
    assert "norm.weight BF16 [64]" in message
    assert "layers.0.ffn.experts.3.w1.scale F8_E8M0 [32, 2]" in message
    assert "1 unknown tensors:\n  layers.0.extra F32 [3]" in message
    assert "layers.0.attn.wkv.scale: is F32 [2, 2], expected F8_E8M0 [2, 2]" in message
    assert "embed.weight: is BF16 [383, 64], expected BF16 [384, 64]" in message


def test_a_long_list_is_cut(case, model):
    unquantized = dataclasses.replace(model, quantization=None)
    with pytest.raises(CheckpointError, match=r"and \d+ more") as error:
        loader.load(case, unquantized)
    assert len(str(error.value).splitlines()) < 60


def test_a_truncated_checkpoint_is_an_error(case, model, tmp_path):
    for name in ("config.json", reader.SINGLE):
        shutil.copy(case / name, tmp_path / name)
    with open(tmp_path / reader.SINGLE, "r+b") as file:
        file.truncate(100_000)
    with pytest.raises(CheckpointError, match="truncated"):
        loader.load(tmp_path, model)


def test_unknown_weights_choice_is_an_error(case, model):
    with pytest.raises(CheckpointError, match="weights='int4': must be one of quantized"):
        loader.load(case, model, weights="int4")


def test_host_decoding_agrees_with_the_device():
    random = np.random.default_rng(0)
    for storage, shape in (("fp8", (70, 40)), ("fp4", (5, 64)), ("rows", (7, 64))):
        data = random.integers(0, 256, params.data_shape(storage, shape), np.uint8)
        if storage != "fp4":
            data = data & 0xF7  # no code that is not a number
            data = data.view(jnp.float8_e4m3fn)
        scale = random.integers(60, 190, params.scale_shape(storage, shape), np.uint8)
        weight = QuantArray(jnp.asarray(data), jnp.asarray(scale), storage)
        device = matmul.dequantize(weight, F32)
        np.testing.assert_array_equal(decode.dequantize(storage, data, scale), device)
        cut = decode.dequantize(storage, data[3:], scale, first_row=3)
        np.testing.assert_array_equal(cut, device[3:])


def test_released_config_needs_no_memory_to_describe():
    root = pathlib.Path(__file__).parents[2]
    model = config.load_model(root / "configs" / "deepseek_v41_flash.json")
    tree = params.abstract(deepseek_v41.spec(model), True, jnp.bfloat16, 64)
    table = tree.layers[1].engram.table.data
    assert table.shape == (384006208, 256)
    assert params.num_bytes(tree) > 500e9

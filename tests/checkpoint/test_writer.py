"""What is written is the released layout, complete or not there, and loads back bit-equal."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config
from ds_jax.checkpoint import loader, reader, safetensors, writer
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.sharding import mesh, params


def same_bytes(a: reader.Checkpoint, b: reader.Checkpoint) -> None:
    assert sorted(a.tensors) == sorted(b.tensors)
    for name, info in a.tensors.items():
        assert (info.dtype, info.shape) == (b.tensors[name].dtype, b.tensors[name].shape)
        assert a.read(name).tobytes() == b.read(name).tobytes(), name


def test_a_quantised_checkpoint_is_written_back_byte_for_byte(case, model, tmp_path):
    writer.save(tmp_path / "x", model, loader.load(case, model))
    same_bytes(reader.Checkpoint(case), reader.Checkpoint(tmp_path / "x"))
    assert config.load_model(tmp_path / "x") == model


def test_padding_and_placement_are_not_written(case, model, tmp_path):
    devices = mesh.build(mesh.MeshSpec.parse("ep2,dp6"))
    writer.save(tmp_path / "x", model, loader.load(case, model, mesh=devices))
    same_bytes(reader.Checkpoint(case), reader.Checkpoint(tmp_path / "x"))


def test_dequantising_on_save_gives_the_recorded_values(case, model, tmp_path):
    writer.save(tmp_path / "x", model, loader.load(case, model), quantize=False)
    written = reader.Checkpoint(tmp_path / "x")
    recorded = safetensors.Reader(case / "dequantized.safetensors")
    for name in recorded.tensors:
        np.testing.assert_array_equal(written.read(name), recorded.read(name))
    plain = config.load_model(tmp_path / "x")
    assert plain == dataclasses.replace(model, quantization=None)
    loader.load(tmp_path / "x", plain)


def test_requantising_keeps_every_value(case, model, tmp_path):
    values = loader.load(case, model, weights="dequantized", dtype=jnp.float32)
    writer.save(tmp_path / "x", model, values)
    again = loader.load(tmp_path / "x", model, weights="dequantized", dtype=jnp.float32)
    jax.tree.map(np.testing.assert_array_equal, values, again)


def test_shards_respect_the_size_and_carry_the_total(case, model, tmp_path):
    limit = 100_000
    writer.save(tmp_path / "x", model, loader.load(case, model), max_shard_bytes=limit)
    written = reader.Checkpoint(tmp_path / "x")
    same_bytes(reader.Checkpoint(case), written)
    index = json.loads((tmp_path / "x" / reader.INDEX).read_text())
    assert index["metadata"]["total_size"] == written.num_bytes
    shards = sorted(set(index["weight_map"].values()))
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors" and len(shards) > 5
    for shard in shards:
        file = safetensors.Reader(tmp_path / "x" / shard)
        size = sum(t.num_bytes for t in file.tensors.values())
        assert size <= limit or len(file.tensors) == 1


def test_an_unquantised_model_is_stored_in_bf16_and_f32(model, tmp_path):
    plain = dataclasses.replace(model, quantization=None)
    initial = params.initialize(deepseek_v41.spec(plain), seed=0)
    writer.save(tmp_path / "x", plain, initial, quantize=False)
    assert {t.dtype for t in reader.Checkpoint(tmp_path / "x").tensors.values()} == {"BF16", "F32"}


def test_further_files_are_written_and_foreign_ones_kept(case, model, tmp_path):
    loaded = loader.load(case, model)
    folder = tmp_path / "x"
    writer.save(folder, model, loaded, files={"tokenizer.json": "{}"}, max_shard_bytes=300_000)
    (folder / "notes.txt").write_text("mine")
    writer.save(folder, model, loaded, overwrite=True)
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["config.json", "model.safetensors", "notes.txt", "tokenizer.json"]
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_an_existing_folder_is_not_touched(case, model, tmp_path):
    (tmp_path / "keep").write_text("")
    with pytest.raises(CheckpointError, match="already exists; choose another folder"):
        writer.save(tmp_path, model, loader.load(case, model))
    assert [file.name for file in tmp_path.iterdir()] == ["keep"]


def test_a_value_that_is_not_finite_stops_the_write_and_leaves_nothing(model, tmp_path):
    initial = params.initialize(deepseek_v41.spec(model), seed=0)
    spoiled = dataclasses.replace(initial, head=initial.head.at[3, 4].set(jnp.nan))
    with pytest.raises(CheckpointError, match="head: holds values that are not finite"):
        writer.save(tmp_path / "x", model, spoiled)
    assert not list(tmp_path.iterdir())

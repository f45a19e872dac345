"""Files are read slice by slice, written whole or not at all, and broken ones are named."""

from __future__ import annotations

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from ds_jax.checkpoint import reader, safetensors
from ds_jax.checkpoint.safetensors import TensorInfo
from ds_jax.errors import CheckpointError

VALUES = {
    "a": ("F8_E4M3", np.linspace(-2, 2, 6).astype(ml_dtypes.float8_e4m3fn).reshape(2, 3)),
    "b": ("BF16", np.arange(4, dtype=np.float32).astype(ml_dtypes.bfloat16)),
    "c": ("I8", np.arange(-3, 3, dtype=np.int8)),
    "d": ("F8_E8M0", np.arange(250, 255, dtype=np.uint8)),
    "e": ("I64", np.array(2**40)),
    "f": ("F32", np.zeros((0, 4), np.float32)),
}


def write_values(path: pathlib.Path) -> None:
    tensors = [TensorInfo(name, kind, v.shape) for name, (kind, v) in VALUES.items()]
    safetensors.write(path, tensors, lambda name: VALUES[name][1])


def write_raw(path: pathlib.Path, header: object, body: bytes = b"") -> pathlib.Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def test_every_dtype_comes_back_bit_equal(tmp_path):
    write_values(tmp_path / "x.safetensors")
    file = safetensors.Reader(tmp_path / "x.safetensors")
    assert list(file.tensors) == list(VALUES)
    for name, (kind, values) in VALUES.items():
        assert file.tensors[name].dtype == kind
        read = file.read(name)
        assert read.dtype == safetensors.DTYPES[kind]
        assert read.shape == values.shape
        assert read.tobytes() == values.tobytes()


def test_reading_maps_the_file_instead_of_copying_it(tmp_path):
    write_values(tmp_path / "x.safetensors")
    rows = safetensors.Reader(tmp_path / "x.safetensors").read("a")[1:]
    assert not rows.flags.owndata and not rows.flags.writeable


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")

    def fail(name: str) -> np.ndarray:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        safetensors.write(path, [TensorInfo("a", "F32", (2,))], fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("length", [0, 4, 8, 60, 400, -1])
def test_a_truncated_file_is_named(tmp_path, length):
    path = tmp_path / "x.safetensors"
    write_values(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"x\.safetensors: .*(truncated|JSON)"):
        safetensors.Reader(path)


def entry(begin: int, end: int, dtype: str = "I8", shape: object = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape or [end - begin], "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([1, 2], "not a JSON object"),
        ({"t": {"dtype": "I8"}}, "t: header entry"),
        ({"t": entry(0, 4, shape=[-4])}, "t: header entry"),
        ({"t": entry(0, 4, "F4_E2M1")}, "t: dtype 'F4_E2M1' is not supported; supported are"),
        ({"t": entry(0, 4, shape=[5])}, r"t: I8 \[5\] needs 5 bytes, .* hold 4"),
        ({"t": entry(0, 3), "u": entry(2, 4)}, "u starts at byte .* and overlaps t"),
        ({"t": entry(0, 1), "u": entry(2, 4)}, "u starts at byte .* and leaves a gap after t"),
        ({"t": entry(0, 3)}, "1 bytes after the last tensor t"),
    ],
)
def test_a_bad_header_says_what_is_wrong(tmp_path, header, message):
    path = write_raw(tmp_path / "x.safetensors", header, b"1234")
    with pytest.raises(CheckpointError, match=message):
        safetensors.Reader(path)


def test_a_missing_file_is_a_checkpoint_error(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        safetensors.Reader(tmp_path / "x.safetensors")


def write_sharded(folder: pathlib.Path, weight_map: dict[str, str]) -> None:
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / reader.INDEX).write_text(json.dumps(index))
    for shard, name in (("s1.safetensors", "model.a"), ("s2.safetensors", "b")):
        tensors = [TensorInfo(name, "F32", (2,))]
        safetensors.write(folder / shard, tensors, lambda name: np.ones(2, np.float32))


def test_shards_are_joined_and_the_prefix_is_dropped(tmp_path):
    write_sharded(tmp_path, {"model.a": "s1.safetensors", "b": "s2.safetensors"})
    checkpoint = reader.Checkpoint(tmp_path)
    assert sorted(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.num_bytes == 16
    np.testing.assert_array_equal(checkpoint.read("a"), [1, 1])


def test_every_missing_shard_is_listed(tmp_path):
    write_sharded(tmp_path, {"a": "s1.safetensors", "b": "s3.safetensors", "c": "s4.safetensors"})
    with pytest.raises(CheckpointError, match=r"2 shards .*missing:\s+s3\S+\s+s4"):
        reader.Checkpoint(tmp_path)


def test_an_index_that_disagrees_with_its_shards_lists_the_tensors(tmp_path):
    write_sharded(tmp_path, {"a": "s2.safetensors", "c": "s1.safetensors"})
    with pytest.raises(CheckpointError, match="3 tensors disagree") as error:
        reader.Checkpoint(tmp_path)
    assert "c: announced in s1.safetensors, not there" in str(error.value)
    assert "b: in s2.safetensors, not in the index" in str(error.value)


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": []}', '{"weight_map": {"a": "../b"}}'])
def test_a_bad_index_is_named(tmp_path, text):
    (tmp_path / reader.INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=r"index\.json: not an index"):
        reader.Checkpoint(tmp_path)


def test_a_folder_without_tensors_says_what_belongs_there(tmp_path):
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        reader.Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        reader.Checkpoint(tmp_path / "no")

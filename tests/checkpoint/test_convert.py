"""Converting keeps every value it can, and a mistake costs one line and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ds_jax import config
from ds_jax.checkpoint import convert, reader, safetensors
from ds_jax.errors import CheckpointError


def test_dequantise_then_quantise_keeps_every_value(case, tmp_path):
    convert.convert(case, tmp_path / "plain", quantize=False)
    assert config.load_model(tmp_path / "plain").quantization is None
    plain = reader.Checkpoint(tmp_path / "plain")
    recorded = safetensors.Reader(case / "dequantized.safetensors")
    for name in recorded.tensors:
        np.testing.assert_array_equal(plain.read(name), recorded.read(name))
    convert.convert(tmp_path / "plain", tmp_path / "again", quantize=True)
    assert config.load_model(tmp_path / "again") == config.load_model(case)
    convert.convert(tmp_path / "again", tmp_path / "plain2", quantize=False)
    again = reader.Checkpoint(tmp_path / "plain2")
    for name in plain.tensors:
        assert plain.read(name).tobytes() == again.read(name).tobytes()


def test_laying_out_anew_changes_no_byte_and_copies_other_files(case, tmp_path):
    convert.convert(case, tmp_path / "x", max_shard_bytes=50_000)
    before, after = reader.Checkpoint(case), reader.Checkpoint(tmp_path / "x")
    for name in before.tensors:
        assert before.read(name).tobytes() == after.read(name).tobytes()
    tokenizer = "tokenizer.json"
    assert (tmp_path / "x" / tokenizer).read_bytes() == (case / tokenizer).read_bytes()


def test_a_source_that_does_not_fit_its_config_leaves_nothing(case, tmp_path):
    source = tmp_path / "source"
    convert.convert(case, source, quantize=False)
    (source / "config.json").write_bytes((case / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match="does not fit the config"):
        convert.convert(source, tmp_path / "x")
    with pytest.raises(CheckpointError, match="is no folder"):
        convert.convert(tmp_path / "none", tmp_path / "x")
    assert [file.name for file in tmp_path.iterdir()] == ["source"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ds_jax.checkpoint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_line(case, tmp_path):
    done = run("inspect", case)
    assert done.returncode == 0 and "336 total" in done.stdout, done.stderr
    (tmp_path / "x").mkdir()
    refused = run("convert", case, tmp_path / "x", "--dequantize")
    assert refused.returncode == 2
    assert refused.stderr.startswith("ds_jax.checkpoint: ") and "already exists" in refused.stderr
    assert "Traceback" not in refused.stderr
    unclear = run("convert", case)
    assert unclear.returncode == 2 and "use `inspect PATH` or `convert SRC DST`" in (
        unclear.stdout + unclear.stderr
    )

"""Names of weights: different for whatever a checkpoint says of its tensors."""

from __future__ import annotations

import pathlib

import numpy as np

from ds_jax import config
from ds_jax.checkpoint import safetensors
from ds_jax.engine import fingerprint
from ds_jax.testing import tiny_model

COUNT = 4000  # tensors: the header is longer than a sample


def write(folder: pathlib.Path, last: str, fill: int = 0) -> bytes:
    """The name of a shard of equal tensors, one in the middle of the header named `last`."""
    names = [last if n == COUNT // 2 else f"tensor.{n:05}" for n in range(COUNT)]
    tensors = [safetensors.TensorInfo(name, "U8", (256,)) for name in names]
    folder.mkdir()
    path = folder / "model.safetensors"
    safetensors.write(path, tensors, lambda _: np.full(256, fill, np.uint8))
    return fingerprint.of_files(folder)


def test_names_of_tensors_and_their_values_count(tmp_path: pathlib.Path) -> None:
    one = write(tmp_path / "one", "tensor.first")
    assert write(tmp_path / "same", "tensor.first") == one
    assert write(tmp_path / "renamed", "tensor.other") != one
    assert write(tmp_path / "other", "tensor.first", fill=1) != one


def test_canonical_rows_are_not_the_rows_of_other_programs() -> None:
    def of(engine: config.Engine) -> bytes:
        return fingerprint.of(tiny_model(), config.FLOAT32, engine, config.Cache(), b"weights")

    usual = of(config.Engine())
    assert of(config.Engine(max_sequences=9)) == usual
    assert of(config.Engine(canonical=True)) != usual
    assert of(config.Engine(canonical=True)) != of(config.Engine(canonical=True, canonical_rows=8))

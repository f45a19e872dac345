"""Names of weights: different for whatever a checkpoint says of its tensors."""

from __future__ import annotations

import pathlib

import numpy as np

from ds_jax.checkpoint import safetensors
from ds_jax.engine import fingerprint

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

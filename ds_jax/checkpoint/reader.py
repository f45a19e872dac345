"""A checkpoint on disk: one safetensors file, or shards with an index.

Decides which file holds a tensor and whether the set of files is complete. Never interprets values.
In: a folder or a file. Out: tensors by name, without the optional `model.` prefix.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from ds_jax.checkpoint import names
from ds_jax.checkpoint.safetensors import Reader, TensorInfo
from ds_jax.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHOWN = 20


class Checkpoint:
    """Tensors of a checkpoint by name; opening reads headers only."""

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        self.tensors: dict[str, TensorInfo] = {}
        self._readers: dict[str, Reader] = {}
        self._stored_names: dict[str, str] = {}
        for file in _files(self.path):
            reader = Reader(file)
            for stored_name, info in reader.tensors.items():
                name = names.strip_prefix(stored_name)
                if name in self.tensors:
                    first = self._readers[name].path
                    raise CheckpointError(f"{file}: {name} is already in {first}; keep one of them")
                self.tensors[name] = info
                self._readers[name] = reader
                self._stored_names[name] = stored_name
        if (self.path / INDEX).is_file():
            self._check_index()

    def read(self, name: str) -> np.ndarray:
        """Memory-mapped view of a tensor; slicing it reads only that part."""
        return self._readers[name].read(self._stored_names[name])

    @property
    def num_bytes(self) -> int:
        """Sum of the tensors' sizes."""
        return sum(t.num_bytes for t in self.tensors.values())

    def _check_index(self) -> None:
        announced = {names.strip_prefix(n): f for n, f in _weight_map(self.path / INDEX).items()}
        problems = [
            f"{name}: announced in {file}, "
            + (f"found in {self._readers[name].path.name}" if name in self.tensors else "not there")
            for name, file in announced.items()
            if name not in self.tensors or self._readers[name].path.name != file
        ]
        problems += [
            f"{name}: in {self._readers[name].path.name}, not in the index"
            for name in self.tensors
            if name not in announced
        ]
        if problems:
            raise CheckpointError(f"{self.path / INDEX}: {listing('tensors disagree', problems)}")


def listing(title: str, problems: list[str]) -> str:
    """`3 <title>:` and the problems, one a line, at most 20."""
    shown = "".join(f"\n  {problem}" for problem in problems[:_SHOWN])
    more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return f"{len(problems)} {title}:{shown}{more}"


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CheckpointError(
            f"{path}: does not exist; give a folder with {SINGLE} or {INDEX}, "
            "or one .safetensors file"
        )
    if (path / INDEX).is_file():
        shards = sorted(set(_weight_map(path / INDEX).values()))
        missing = [shard for shard in shards if not (path / shard).is_file()]
        if missing:
            raise CheckpointError(f"{path}: {listing('shards of the index are missing', missing)}")
        return [path / shard for shard in shards]
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    raise CheckpointError(f"{path}: holds neither {SINGLE} nor {INDEX}")


def _weight_map(index: pathlib.Path) -> dict[str, str]:
    try:
        content: Any = json.loads(index.read_text(encoding="utf-8"))
        table = content["weight_map"]
        if not table or not all(isinstance(f, str) for f in table.values()):
            raise ValueError("weight_map must map tensor names to file names")
        if any(pathlib.PurePath(f).name != f for f in table.values()):
            raise ValueError("weight_map must name files in the same folder")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{index}: not an index of safetensors shards ({what})") from None
    return table

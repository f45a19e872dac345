"""From parameters to a checkpoint folder in the released layout.

Decides how tensors are split over shards and that a folder appears complete or not at all.
Never decides names (names.py) or grids (quantize.py). In: parameters, or another checkpoint.
Out: config.json, safetensors shards and their index.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ds_jax import config
from ds_jax.checkpoint import decode, names, quantize, reader, safetensors
from ds_jax.checkpoint.safetensors import TensorInfo
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.sharding.params import QuantArray

Fetch = Callable[[str], np.ndarray]
MAX_SHARD_BYTES = 5 * 2**30


@dataclasses.dataclass(frozen=True)
class Coded:
    """A quantised checkpoint tensor on the host."""

    data: np.ndarray
    scale: np.ndarray


def save(
    path: str | pathlib.Path,
    model: config.Model,
    params: deepseek_v41.Params,
    *,
    quantize: bool = True,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    vision: config.Vision | None = None,
    files: Mapping[str, str | bytes] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the text model, its drafter if it has one, config.json and further files.

    Args:
      path: the folder to create.
      model: the model of `params`; its quantization is set or cleared to match `quantize`.
      params: plain arrays are quantised (or rounded to bf16), QuantArrays are stored as they are
        (or dequantised).
      quantize: FP8/FP4 weights, or bf16 everywhere.
      max_shard_bytes: one file up to this size, else shards with an index.
      vision: written to config.json only.
      files: name -> content of further files, such as tokenizer.json.
      overwrite: replace an existing folder; its files that are no checkpoint files are kept.

    Raises:
      CheckpointError: the folder exists, or a parameter holds a value that is not finite.
    """
    target = dataclasses.replace(model, quantization=quantization(model, quantize))
    spec_tree = deepseek_v41.spec(model, drafter=params.drafter is not None)
    with new_folder(pathlib.Path(path), overwrite) as folder:
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        (folder / "config.json").write_text(config.dump(target, vision), encoding="utf-8")
        fetch = from_params(spec_tree, params, quantize)
        write_shards(folder, names.inventory(spec_tree, quantize), fetch, max_shard_bytes)


def quantization(model: config.Model, quantized: bool) -> config.Quantization | None:
    """The quantization entry of a config whose checkpoint is, or is not, quantised."""
    return (model.quantization or config.Quantization()) if quantized else None


def write_shards(
    folder: pathlib.Path, tensors: Sequence[TensorInfo], fetch: Fetch, max_shard_bytes: int
) -> None:
    """Writes tensors into one file or into shards with an index, one tensor in memory at a time."""
    shards = _split(tensors, max_shard_bytes)
    if len(shards) == 1:
        safetensors.write(folder / reader.SINGLE, shards[0], fetch)
        return
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        safetensors.write(folder / file, shard, fetch)
        weight_map |= {t.name: file for t in shard}
    total = {"total_size": sum(t.num_bytes for t in tensors)}
    index = {"metadata": total, "weight_map": weight_map}
    (folder / reader.INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def from_params(spec_tree: Any, params: Any, quantized: bool) -> Fetch:
    """Checkpoint tensors by name, cut from parameters."""
    leaves = zip(
        jax.tree.leaves(spec_tree),
        jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, QuantArray)),
        strict=True,
    )
    table = {
        _base(piece.info.name): (spec, leaf, piece)
        for spec, leaf in leaves
        for piece in names.stored(spec, False)
    }

    def read(base: str) -> tuple[str, Coded | np.ndarray]:
        spec, leaf, piece = table[base]
        rows = slice(piece.row, piece.row + piece.info.shape[0])
        index = (rows,) if piece.expert is None else (piece.expert, rows)
        if isinstance(leaf, QuantArray):
            scales = index
            if spec.storage == "fp8":
                scales = (*index[:-1], slice(rows.start // 32, -(-rows.stop // 32)))
            return spec.storage, Coded(np.asarray(leaf.data[index]), np.asarray(leaf.scale[scales]))
        return spec.storage, np.asarray(leaf[index])

    return _fetch(read, quantized)


def from_checkpoint(source: reader.Checkpoint, spec_tree: Any, quantized: bool) -> Fetch:
    """Checkpoint tensors by name, from another checkpoint of the same model."""
    table = {
        _base(piece.info.name): spec
        for spec in jax.tree.leaves(spec_tree)
        for piece in names.stored(spec, False)
    }

    def read(base: str) -> tuple[str, Coded | np.ndarray]:
        scale = f"{base}.scale"
        name = base if base in source.tensors else f"{base}.weight"
        if table[base].quantizable and scale in source.tensors:
            return table[base].storage, Coded(source.read(name), source.read(scale))
        return table[base].storage, source.read(name)

    return _fetch(read, quantized)


def _fetch(read: Callable[[str], tuple[str, Coded | np.ndarray]], quantized: bool) -> Fetch:
    """Converts what `read` gives for a tensor into what the target layout stores."""

    @functools.lru_cache(maxsize=1)  # weight and scale come one after the other
    def encoded(base: str) -> dict[str, np.ndarray]:
        storage, values = read(base)
        if isinstance(values, Coded):
            if quantized:
                return {"weight": values.data, "scale": values.scale}
            values = decode.dequantize(storage, values.data, values.scale)
        if not np.all(np.isfinite(values.astype(np.float32))):
            raise CheckpointError(f"{base}: holds values that are not finite; it was not written")
        if storage in ("bf16", "f32") or not quantized:
            kind = safetensors.DTYPES["F32" if storage == "f32" else "BF16"]
            return {"weight": values.astype(kind)}
        coded = quantize.encode(storage, jnp.asarray(values))
        return {"weight": np.asarray(coded.data), "scale": np.asarray(coded.scale)}

    return lambda name: encoded(_base(name))["scale" if name.endswith(".scale") else "weight"]


def _base(name: str) -> str:
    return name.removesuffix(".scale").removesuffix(".weight")


def _split(tensors: Sequence[TensorInfo], max_shard_bytes: int) -> list[list[TensorInfo]]:
    shards: list[list[TensorInfo]] = [[]]
    size = 0
    for t in tensors:
        if shards[-1] and size + t.num_bytes > max_shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(t)
        size += t.num_bytes
    return shards


@contextlib.contextmanager
def new_folder(path: pathlib.Path, overwrite: bool = False) -> Iterator[pathlib.Path]:
    """A folder that appears under its name only after the block ended without an error."""
    path = path.absolute()
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path}: already exists; choose another folder or remove it")
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path}: is a file; give a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be created ({error.strerror})") from error
    try:
        folder = temporary / "new"
        folder.mkdir()
        yield folder
        if path.exists():
            for file in path.iterdir():
                if not belongs(file.name) and not (folder / file.name).exists():
                    (shutil.copytree if file.is_dir() else shutil.copy2)(file, folder / file.name)
            os.replace(path, temporary / "old")
        os.replace(folder, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def belongs(name: str) -> bool:
    """Whether a file of this name is written anew with every checkpoint."""
    return name.endswith(".safetensors") or name in (reader.INDEX, "config.json")

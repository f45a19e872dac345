"""From checkpoint tensors to parameters on devices.

Decides how tensors are joined (experts stacked, `names` concatenated) and that nothing is missing,
unused or of the wrong type. Never holds more than one device's part of one parameter on the host.
In: a checkpoint and declarations. Out: parameters in their sharding.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ds_jax import config
from ds_jax.checkpoint import decode, names, reader
from ds_jax.checkpoint.safetensors import TensorInfo
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.sharding import params, rules
from ds_jax.sharding.params import ParamSpec, QuantArray

WEIGHTS = ("quantized", "dequantized")
Fill = Callable[[names.Stored, slice], np.ndarray]


def load(
    path: str | pathlib.Path,
    model: config.Model,
    *,
    weights: str = "quantized",
    dtype: Any = jnp.bfloat16,
    mesh: Mesh | None = None,
    axis_rules: rules.Rules = rules.DEFAULT,
    row_multiple: int | None = None,
    drafter: bool = False,
) -> deepseek_v41.Params:
    """Loads the text model.

    Args:
      path: folder with `model.safetensors` or shards and their index, or one file.
      model: decides names, shapes and whether the checkpoint is quantised.
      weights: "quantized" keeps FP8/FP4 weights as QuantArray, "dequantized" expands them.
      dtype: dtype of plain weights; leaves declared `keep_f32` stay float32.
      mesh: where to put the parameters; None: the default device.
      axis_rules: logical axis -> mesh axes.
      row_multiple: table rows are padded with zeros to a multiple; None: what the mesh needs.
      drafter: also load the DSpark blocks (`mtp.*`).

    Raises:
      CheckpointError: unreadable files, or a list of missing, unknown and mistyped tensors.
    """
    spec_tree = deepseek_v41.spec(model, drafter=drafter)
    quantized = model.quantization is not None
    checkpoint = reader.Checkpoint(path)
    ignore = names.loaded_with_drafter if drafter else names.loaded_elsewhere
    check(checkpoint, names.inventory(spec_tree, quantized), ignore)
    return load_tree(
        checkpoint,
        spec_tree,
        quantized,
        weights=weights,
        dtype=dtype,
        mesh=mesh,
        axis_rules=axis_rules,
        row_multiple=row_multiple,
    )


def check(
    checkpoint: reader.Checkpoint,
    expected: Iterable[TensorInfo],
    ignore: Callable[[str], bool] = lambda name: False,
) -> None:
    """Raises one CheckpointError that lists every missing, unknown and mistyped tensor."""
    wanted = {t.name: t for t in expected}
    found = checkpoint.tensors
    missing = [f"{n} {t.dtype} {list(t.shape)}" for n, t in wanted.items() if n not in found]
    unknown = [
        f"{n} {t.dtype} {list(t.shape)}"
        for n, t in found.items()
        if n not in wanted and not ignore(n)
    ]
    wrong = [
        f"{n}: is {found[n].dtype} {list(found[n].shape)}, expected {t.dtype} {list(t.shape)}"
        for n, t in wanted.items()
        if n in found and (found[n].dtype, found[n].shape) != (t.dtype, t.shape)
    ]
    problems = [
        reader.listing(title, entries)
        for title, entries in (
            ("missing tensors", missing),
            ("tensors of the wrong type or shape", wrong),
            ("unknown tensors", unknown),
        )
        if entries
    ]
    if problems:
        raise CheckpointError(
            f"{checkpoint.path}: does not fit the config\n"
            + "\n".join(problems)
            + "\nuse the config.json that belongs to this checkpoint"
        )


def load_tree(
    checkpoint: reader.Checkpoint,
    spec_tree: Any,
    quantized: bool,
    *,
    weights: str,
    dtype: Any,
    mesh: Mesh | None = None,
    axis_rules: rules.Rules = rules.DEFAULT,
    row_multiple: int | None = None,
) -> Any:
    """Loads any tree of declarations from a checkpoint that was checked; arguments as in `load`."""
    if weights not in WEIGHTS:
        raise CheckpointError(f"weights={weights!r}: must be one of {', '.join(WEIGHTS)}")
    keep = quantized and weights == "quantized"
    multiple = row_multiple or rules.row_multiple(mesh, axis_rules)
    shapes = params.abstract(spec_tree, keep, dtype, multiple)

    def leaf(spec: ParamSpec, target: Any) -> Any:
        sharding = None
        if mesh is not None:
            sharding = NamedSharding(mesh, rules.partition_spec(spec, axis_rules))
        pieces = list(names.stored(spec, quantized))
        if isinstance(target, QuantArray):
            data = [p for p in pieces if p.part == "data"]
            scale = [p for p in pieces if p.part == "scale"]
            raw = _raw(checkpoint)
            return QuantArray(
                _place(target.data, sharding, data, spec, raw),
                _place(target.scale, sharding, scale, spec, raw),
                spec.storage,
            )
        if spec.quantizable and quantized:
            data = [p for p in pieces if p.part == "data"]
            return _place(target, sharding, data, spec, _dequantized(checkpoint, spec))
        return _place(target, sharding, pieces, spec, _raw(checkpoint))

    return jax.tree.map(leaf, spec_tree, shapes)


def _raw(checkpoint: reader.Checkpoint) -> Fill:
    def fill(piece: names.Stored, rows: slice) -> np.ndarray:
        values = checkpoint.read(piece.info.name)[rows]
        return values.view(np.uint8) if piece.info.dtype == "I8" else values

    return fill


def _dequantized(checkpoint: reader.Checkpoint, spec: ParamSpec) -> Fill:
    def fill(piece: names.Stored, rows: slice) -> np.ndarray:
        name = piece.info.name
        scale = checkpoint.read(name.removesuffix("weight") + "scale")
        return decode.dequantize(spec.storage, checkpoint.read(name)[rows], scale, rows.start)

    return fill


def _place(
    target: jax.Array | jax.ShapeDtypeStruct,
    sharding: NamedSharding | None,
    pieces: list[names.Stored],
    spec: ParamSpec,
    fill: Fill,
) -> jax.Array:
    """Assembles an array device by device, each distinct part once."""
    if sharding is None:
        whole = tuple(slice(0, n) for n in target.shape)
        return jax.device_put(_assemble(target, whole, pieces, spec, fill))
    where = sharding.devices_indices_map(target.shape)
    where = {d: where[d] for d in sharding.addressable_devices}
    parts = sorted(
        (tuple(s.indices(n)[:2] for s, n in zip(index, target.shape, strict=True)), i, device)
        for i, (device, index) in enumerate(where.items())
    )
    arrays = []
    for bounds, group in itertools.groupby(parts, key=lambda part: part[0]):
        values = _assemble(target, tuple(slice(a, b) for a, b in bounds), pieces, spec, fill)
        arrays += [jax.device_put(values, device) for _, _, device in group]
    return jax.make_array_from_single_device_arrays(target.shape, sharding, arrays)


def _assemble(
    target: jax.Array | jax.ShapeDtypeStruct,
    index: tuple[slice, ...],
    pieces: list[names.Stored],
    spec: ParamSpec,
    fill: Fill,
) -> np.ndarray:
    """One slice of a parameter; rows and experts may be cut, the other axes are whole."""
    out = np.zeros([s.stop - s.start for s in index], target.dtype)
    whole = out.shape[spec.row_axis + 1 :] == target.shape[spec.row_axis + 1 :]
    assert whole, f"only rows and experts can be split over devices, not {index}"
    rows = index[spec.row_axis]
    for piece in pieces:
        begin = max(rows.start, piece.row)
        end = min(rows.stop, piece.row + piece.info.shape[0])
        into = out
        if piece.expert is not None:
            if not index[0].start <= piece.expert < index[0].stop:
                continue
            into = out[piece.expert - index[0].start]
        if begin >= end:
            continue
        local = slice(begin - piece.row, end - piece.row)
        into[begin - rows.start : end - rows.start] = fill(piece, local)
    return out

"""Resumable checkpoints of arrays in their own layout (orbax), for training and fast restarts.

Decides nothing about names or formats. Never rounds: what comes back is bit-equal, unless the
target asks for another dtype. In: a pytree of arrays (QuantArrays included), a folder.
Out: the same pytree, on any mesh.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from ds_jax import config
from ds_jax.checkpoint import reader
from ds_jax.errors import CheckpointError
from ds_jax.models import deepseek_v41
from ds_jax.sharding import params, rules


def save(path: str | pathlib.Path, tree: Any, *, overwrite: bool = False) -> None:
    """Writes a pytree of arrays; the folder appears when it is complete."""
    path = pathlib.Path(path).absolute()
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path}: already exists; choose another folder or remove it")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree, force=overwrite)


def restore(path: str | pathlib.Path, target: Any, resizable: Collection[str] = ()) -> Any:
    """Reads a pytree back.

    Args:
      path: the folder written by `save`.
      target: the same structure with ShapeDtypeStruct leaves; their shardings decide the placement.
      resizable: names of leaves (`layers.1.engram.table.data`) that may have another number of
        rows than was stored: zero rows are added or rows at the end dropped.

    Raises:
      CheckpointError: no such folder, or a list of everything that does not fit the target.
    """
    path = pathlib.Path(path).absolute()
    if not path.is_dir():
        raise CheckpointError(f"{path}: does not exist; give a folder written by store.save")
    with ocp.StandardCheckpointer() as checkpointer:
        try:
            stored = checkpointer.metadata(path)
        except (ValueError, FileNotFoundError) as error:
            raise CheckpointError(f"{path}: not a folder written by store.save") from error
        stored = getattr(stored, "item_metadata", stored)  # older orbax gives the tree at once
        stored = getattr(stored, "tree", stored)
        if not stored:
            raise CheckpointError(f"{path}: not a folder written by store.save")
        _check(path, _shapes(stored), _shapes(target), resizable)
        return checkpointer.restore(path, target, strict=not resizable)


def restore_model(
    path: str | pathlib.Path,
    model: config.Model,
    *,
    quantized: bool,
    dtype: Any = jnp.bfloat16,
    mesh: Mesh | None = None,
    axis_rules: rules.Rules = rules.DEFAULT,
) -> deepseek_v41.Params:
    """Reads the text model back onto a mesh, whatever mesh it was saved from.

    Args:
      path: the folder written by `save`.
      model: decides structure and shapes.
      quantized: whether QuantArrays were saved.
      dtype: dtype of plain weights; leaves declared `keep_f32` stay float32.
      mesh: where to put the parameters; None: the default device.
      axis_rules: logical axis -> mesh axes.
    """
    spec_tree = deepseek_v41.spec(model)
    target = params.abstract(spec_tree, quantized, dtype, rules.row_multiple(mesh, axis_rules))
    if mesh is None:
        here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        shardings = jax.tree.map(lambda _: here, target)
    else:
        shardings = rules.shardings(spec_tree, quantized, mesh, axis_rules)
    target = jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), target, shardings
    )
    tables = [
        _name(location)
        for location, spec in jax.tree_util.tree_leaves_with_path(spec_tree)
        if "rows" in spec.axes
    ]
    padded = {name for name in _shapes(target) if name.removesuffix(".data") in tables}
    padded |= {name for name in _shapes(target) if name.removesuffix(".scale") in tables}
    return restore(path, target, padded)


def _check(
    path: pathlib.Path,
    found: dict[str, tuple[int, ...]],
    wanted: dict[str, tuple[int, ...]],
    resizable: Collection[str],
) -> None:
    problems = [f"{n}: not stored" for n in wanted if n not in found]
    problems += [f"{n}: stored, but not asked for" for n in found if n not in wanted]
    for name in wanted.keys() & found.keys():
        skip = 1 if name in resizable else 0
        if found[name][skip:] != wanted[name][skip:]:
            shapes = f"{list(found[name])} stored, {list(wanted[name])} asked for"
            problems.append(f"{name}: {shapes}")
    if problems:
        raise CheckpointError(f"{path}: {reader.listing('arrays do not fit', sorted(problems))}")


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(location): tuple(x.shape) for location, x in leaves}


def _name(location: Any) -> str:
    return jax.tree_util.keystr(location, simple=True, separator=".")

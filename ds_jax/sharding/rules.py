"""Which mesh axes a logical axis is split over.

Decides where parameters live. Never moves an array. In: ParamSpec leaves and a mesh.
Out: PartitionSpecs (for shard_map) and NamedShardings (for loading), one for each array.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ds_jax.sharding.params import InputFirst, ParamSpec, quant_like

Rules = Mapping[str, tuple[str, ...]]

# Routed experts over `ep`; Engram tables by rows over all devices; everything else on every device.
DEFAULT: Rules = types.MappingProxyType({"experts": ("ep",), "rows": ("replica", "ep")})


def partition_spec(spec: ParamSpec, rules: Rules = DEFAULT) -> PartitionSpec:
    """PartitionSpec of one parameter; data and scale of a quantised weight share it."""
    axes = [rules.get(axis) if axis else None for axis in spec.axes]
    while axes and axes[-1] is None:
        axes.pop()
    return PartitionSpec(*axes)


def partition_specs(spec_tree: Any, quantized: bool, rules: Rules = DEFAULT) -> Any:
    """Tree of PartitionSpecs with the structure of the parameters, QuantArray leaves included."""

    def leaf(spec: ParamSpec) -> Any:
        split = partition_spec(spec, rules)
        return quant_like(split, split, spec.storage) if quantized and spec.quantizable else split

    return jax.tree.map(leaf, spec_tree)


def partition_like(spec_tree: Any, params: Any, rules: Rules = DEFAULT) -> Any:
    """Tree of PartitionSpecs with the structure of these parameters, however memory holds them.

    Args:
      spec_tree: pytree with ParamSpec leaves.
      params: the same pytree of arrays, `QuantArray`s and `InputFirst`s; only structure is read.
    """

    def leaf(spec: ParamSpec, held: Any) -> Any:
        split = partition_spec(spec, rules)
        if isinstance(held, InputFirst):
            axes = [*split, *[None] * (len(spec.shape) - len(split))]
            split = PartitionSpec(*axes[:-2], axes[-1], axes[-2])
        return jax.tree.map(lambda _: split, held)

    return jax.tree.map(leaf, spec_tree, params)


def shardings(
    spec_tree: Any, quantized: bool, mesh: Mesh | AbstractMesh, rules: Rules = DEFAULT
) -> Any:
    """Tree of NamedShardings with the structure of the parameters."""
    return jax.tree.map(
        lambda split: NamedSharding(mesh, split),
        partition_specs(spec_tree, quantized, rules),
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def row_multiple(mesh: Mesh | AbstractMesh | None, rules: Rules = DEFAULT) -> int:
    """What the rows of a table are padded to so that every device holds equally many."""
    if mesh is None:
        return 1
    return math.prod(mesh.shape[axis] for axis in rules.get("rows", ()))

"""The collectives of a step, read from its traced program; no devices needed.

Decides how often a collective runs: scanned layers count once each layer. Never compiles.
In: a traced step over an AbstractMesh. Out: a list of `Collective`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ds_jax import config
from ds_jax.engine import batch as batches
from ds_jax.engine import footprint, runner, step
from ds_jax.engine.buckets import Buckets
from ds_jax.models import deepseek_v41
from ds_jax.sharding import mesh as meshes
from ds_jax.sharding import params, rules

_NAMES = {
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_to_all": "all_to_all",
    "ragged_all_to_all": "ragged_all_to_all",
    "reduce_scatter": "reduce_scatter",
    "ppermute": "collective_permute",
    "psum": "all_reduce",
    "psum2": "all_reduce",
    "psum_invariant": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
}


@dataclasses.dataclass(frozen=True)
class Collective:
    """One kind of exchange.

    Attributes:
      name: all_gather, all_to_all, reduce_scatter, all_reduce, ...
      axes: mesh axes it runs over.
      operand: type and shape one device puts in, such as `bfloat16[4,5120]`.
      operand_bytes: its size.
      count: how often it runs a step (times the rounds, if `rounds`).
      rounds: whether it runs in a loop whose length depends on the data (at least one round).
    """

    name: str
    axes: tuple[str, ...]
    operand: str
    operand_bytes: int
    count: int
    rounds: bool


def decode_collectives(
    model: config.Model,
    mesh: meshes.MeshSpec,
    engine: config.Engine,
    cache: config.Cache,
    numerics: config.Numerics = config.RELEASED,
    *,
    quantized: bool,
) -> list[Collective]:
    """Collectives of the largest decode step (every slot, longest context)."""
    return of_jaxpr(trace_decode(model, mesh, engine, cache, numerics, quantized=quantized).jaxpr)


def trace_decode(
    model: config.Model,
    mesh: meshes.MeshSpec,
    engine: config.Engine,
    cache: config.Cache,
    numerics: config.Numerics = config.RELEASED,
    *,
    quantized: bool,
) -> Any:
    """The decode step over an AbstractMesh; `.lower(lowering_platforms=...)` gives its text."""
    devices = meshes.abstract(mesh)
    ctx = runner.make_context(model, numerics, devices)
    layout = runner.make_layout(engine, cache)
    key = Buckets.plan(engine, cache).decode(engine.max_sequences, engine.max_context)
    spec_tree = deepseek_v41.stack_spec(model, deepseek_v41.spec(model))
    weights = params.abstract(spec_tree, quantized, jnp.bfloat16, rules.row_multiple(devices))
    whole = footprint.global_layout(layout, devices)
    state = jax.eval_shape(functools.partial(step.init_state, ctx, whole))
    words = batches.width(key, step.look_back(ctx))
    packed = jax.ShapeDtypeStruct((devices.size * key.sequences, words), jnp.int32)
    tables = footprint.hash_tables(model) if model.engram_layer_ids else None
    specs = rules.partition_specs(spec_tree, quantized)
    jitted: Any = step.build(ctx, layout, key, devices, specs)
    return jitted.trace(weights, tables, state, packed)


def of_jaxpr(jaxpr: Any) -> list[Collective]:
    """Collectives of a (closed) jaxpr and everything inside it, equal ones together."""
    counts: collections.Counter[tuple[Any, ...]] = collections.Counter()
    for name, axes, aval, times, rounds in _walk(jaxpr, 1, False):
        shape = f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"
        size = math.prod(aval.shape) * aval.dtype.itemsize
        counts[name, axes, shape, size, rounds] += times
    return [
        Collective(name, axes, shape, size, count, rounds)
        for (name, axes, shape, size, rounds), count in counts.items()
    ]


def _walk(jaxpr: Any, times: int, rounds: bool) -> Iterator[tuple[str, Any, Any, int, bool]]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        kind = equation.primitive.name
        if kind in _NAMES:
            axes = equation.params.get("axes", equation.params.get("axis_name"))
            axes = axes if isinstance(axes, tuple) else (axes,)
            for operand in equation.invars[:1] if kind.startswith("ragged") else equation.invars:
                yield _NAMES[kind], axes, operand.aval, times, rounds
        inner = times * (equation.params["length"] if kind == "scan" else 1)
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from _walk(part, inner, rounds or kind == "while")

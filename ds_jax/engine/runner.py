"""Holds a replica's parameters, cache and compiled steps, and launches them.

Decides which programs exist and keeps at most one of each. Never plans, never waits for a result.
In: packed rows and a `StepKey`. Out: `StepOutput` whose arrays may still be computed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ds_jax import config
from ds_jax.engine import batch as batches
from ds_jax.engine import step
from ds_jax.engine.buckets import Buckets, StepKey, pages_for
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, engram
from ds_jax.models.context import Context
from ds_jax.sharding import rules
from ds_jax.sharding.params import QuantArray


def make_context(model: config.Model, numerics: config.Numerics, mesh: Any) -> Context:
    """The static arguments of a step over a mesh."""
    return Context(
        model=model,
        numerics=numerics,
        expert_axis="ep" if mesh.shape["ep"] > 1 else None,
        row_axes=tuple(mesh.axis_names) if mesh.size > 1 else (),
    )


def make_layout(engine: config.Engine, cache: config.Cache) -> caches.Layout:
    """Sizes of one rank's cache: every slot can hold a whole context."""
    pages = pages_for(engine.max_context, cache.page_tokens)
    return caches.Layout(
        num_slots=engine.max_sequences,
        num_pages=engine.max_sequences * pages,
        page_tokens=cache.page_tokens,
        backtrack=cache.max_backtrack + 1,
        packed=cache.format == "packed",
    )


def param_specs(model: config.Model, params: deepseek_v41.Params) -> Any:
    """PartitionSpecs with the structure of the parameters, stacked and quantised as they are."""
    tree = deepseek_v41.spec(model)
    if any(deepseek_v41.stacked_depth(p) for p in params.layers):
        tree = deepseek_v41.stack_spec(model, tree)
    leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, QuantArray))
    quantized = any(isinstance(x, QuantArray) for x in leaves)
    return rules.partition_specs(tree, quantized)


class Runner:
    """One replica on its mesh. Mutates itself: every launch replaces the state.

    Args:
      params: parameters already on the mesh; stacked layers are scanned over.
      tables: hash constants of Engram, or None.
    """

    def __init__(
        self,
        model: config.Model,
        numerics: config.Numerics,
        mesh: Mesh,
        params: deepseek_v41.Params,
        tables: engram.HashTables | None,
        engine: config.Engine,
        cache: config.Cache,
    ):
        self.context = make_context(model, numerics, mesh)
        self.layout = make_layout(engine, cache)
        self.buckets = Buckets.plan(engine, cache)
        self.engine = engine
        self.mesh = mesh
        self.params = params
        self.tables = tables
        self.ranks = mesh.size
        self.back = step.look_back(self.context)
        self.specs = param_specs(model, params)
        self.state = step.global_state(self.context, self.layout, mesh)
        self.compile_s = 0.0  # spent on compiling or loading programs so far
        self._packed_sharding = NamedSharding(mesh, step.SPLIT)
        self._programs: dict[Hashable, Any] = {}

    def pages_of(self, slot: int) -> range:
        """Pages of a slot: every slot owns as many as a context needs."""
        each = self.layout.num_pages // self.layout.num_slots
        return range(slot * each, (slot + 1) * each)

    def launch(
        self, key: StepKey, rows: Sequence[batches.Row]
    ) -> tuple[step.StepOutput, list[int]]:
        """Starts a step; returns its output and the place of each row in it. Compiles a new key."""
        packed, places = batches.pack(rows, key, self.ranks, self.back)
        run = self.program(key)
        self.state, output = run(self.params, self.tables, self.state, self._placed(packed))
        return output, places

    def has(self, key: StepKey) -> bool:
        """Whether the step of a key is compiled."""
        return key in self._programs

    def program(self, key: StepKey) -> jax.stages.Compiled:
        """The compiled step of a key; compiles a new one."""
        if key not in self._programs:
            start = time.perf_counter()
            jitted: Any = step.build(self.context, self.layout, key, self.mesh, self.specs)
            packed = self._placed(batches.pack([], key, self.ranks, self.back)[0])
            lowered = jitted.lower(self.params, self.tables, self.state, packed)
            self._programs[key] = lowered.compile()
            self.compile_s += time.perf_counter() - start
        return self._programs[key]

    def _placed(self, packed: np.ndarray) -> np.ndarray | jax.Array:
        return packed if self.ranks == 1 else jax.device_put(packed, self._packed_sharding)

    def kept(self, name: Hashable, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """The program of a name, made on first use."""
        if name not in self._programs:
            self._programs[name] = make()
        return self._programs[name]

    def warm_up(self, keys: Sequence[StepKey] | None = None) -> int:
        """Compiles programs without running them; returns how many there are."""
        keys = self.buckets.keys() if keys is None else keys
        for key in keys:
            self.program(key)
        return len(keys)


def place_params(
    model: config.Model, params: deepseek_v41.Params, mesh: Mesh, *, stacked: bool
) -> deepseek_v41.Params:
    """Parameters on the mesh in their sharding, stacked for scanning if asked."""
    params = pad_rows(params, rules.row_multiple(mesh))
    if stacked and len(deepseek_v41.runs(model)) < len(params.layers):
        params = deepseek_v41.stack_layers(model, params)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        param_specs(model, params),
        is_leaf=lambda x: isinstance(x, P),
    )
    return jax.device_put(params, shardings)


def pad_rows(params: deepseek_v41.Params, multiple: int) -> deepseek_v41.Params:
    """Engram tables filled up with zero rows, so that every device holds equally many."""

    def pad(a: jax.Array) -> jax.Array:
        return jnp.pad(a, ((0, -a.shape[0] % multiple), (0, 0)))

    def layer(p: Any) -> Any:
        if p.engram is None:
            return p
        table = jax.tree.map(pad, p.engram.table)
        return dataclasses.replace(p, engram=dataclasses.replace(p.engram, table=table))

    if multiple == 1:
        return params
    return dataclasses.replace(params, layers=tuple(layer(p) for p in params.layers))


def scans_by_default(model: config.Model) -> bool:
    """Deep models compile much faster when scanned; shallow ones run faster unrolled."""
    return model.num_hidden_layers > 16

"""Bytes per device of a model's weights and cache, without devices.

Decides how weights are grouped for reading. Never allocates.
In: config, mesh, engine and cache sizes. Out: `Footprint`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from ds_jax import config
from ds_jax.engine import limits, runner, sampler, step
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, engram
from ds_jax.sharding import mesh as meshes
from ds_jax.sharding import params, rules

# First match names the group of a parameter, by its path in the tree.
_GROUPS = (
    (".engram.table", "Engram tables"),
    (".engram.", "Engram projections"),
    (".ffn.w", "routed experts"),
    (".ffn.shared_", "shared experts"),
    (".ffn.", "routers and norms"),
    (".attn.", "attention"),
    (".compressor.", "attention"),
    (".indexer.", "attention"),
    (".hc_", "hyper-connections"),
    (".embed", "embedding"),
    (".head", "head"),
    ("norm", "routers and norms"),
)


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes; all but `total` are of one device.

    Attributes:
      total: weights of the whole replica by group, each parameter once.
      weights: weights one device holds, by group.
      slot: one sequence's share that does not grow: window rings, compressor tails, last ids,
        counts of tokens.
      token: one token's share: compressed rows and index keys.
      slots: sequences a device can hold.
      state: one stored state: window rings of the layers that a prefix needs.
      states: stored states a device holds.
      tokens: tokens a device can hold, all sequences together.
    """

    total: dict[str, int]
    weights: dict[str, int]
    slot: int
    token: float
    slots: int
    tokens: int
    state: int = 0
    states: int = 0

    @property
    def cache(self) -> int:
        """Cache of one device."""
        fixed = self.slots * self.slot + self.states * self.state
        return fixed + round(self.tokens * self.token)

    @property
    def device(self) -> int:
        """Weights and cache of one device."""
        return sum(self.weights.values()) + self.cache

    def room(self, memory: float, context: int) -> int:
        """Sequences of `context` tokens that fit beside the weights."""
        free = memory - sum(self.weights.values())
        each = self.slot + self.state * self.states / self.slots + context * self.token
        return max(0, math.floor(free / each))


def measure(
    model: config.Model,
    mesh: meshes.MeshSpec,
    engine: config.Engine,
    cache: config.Cache,
    numerics: config.Numerics = config.RELEASED,
    *,
    quantized: bool,
) -> Footprint:
    """Derives the footprint from the declarations and the cache's layout."""
    devices = meshes.abstract(mesh)
    spec_tree = deepseek_v41.spec(model)
    arrays = params.abstract(spec_tree, quantized, jnp.bfloat16, rules.row_multiple(devices))
    shardings = rules.shardings(spec_tree, quantized, devices)
    total: dict[str, int] = {}
    weights: dict[str, int] = {}
    placed = zip(
        jax.tree_util.tree_leaves_with_path(arrays), jax.tree.leaves(shardings), strict=True
    )
    for (path, array), sharding in placed:
        group, size = _group(jax.tree_util.keystr(path)), array.dtype.itemsize
        total[group] = total.get(group, 0) + math.prod(array.shape) * size
        local = math.prod(sharding.shard_shape(array.shape)) * size
        weights[group] = weights.get(group, 0) + local
    if model.engram_layer_ids:
        constants = params.num_bytes(hash_tables(model))
        total["Engram hash constants"] = weights["Engram hash constants"] = constants
    layout = runner.make_layout(engine, cache)
    ctx = runner.make_context(model, numerics, devices)
    one = dataclasses.replace(layout, num_slots=1, num_pages=1)
    state = jax.eval_shape(functools.partial(step.init_state, ctx, one))
    counts = jax.ShapeDtypeStruct((1, model.vocab_size), sampler.COUNT)
    pages = params.num_bytes((state.cache.rows, state.cache.keys))
    rings = params.num_bytes(state.cache.window)
    depth = limits.replay_rule(model, cache).layers
    return Footprint(
        total=total,
        weights=weights,
        slot=params.num_bytes((state, counts)) - pages,
        token=pages / layout.page_tokens,
        slots=layout.num_slots,
        tokens=layout.num_pages * layout.page_tokens,
        state=rings * depth // layout.rings(model),
        states=limits.snapshots(engine, cache),
    )


def hash_tables(model: config.Model) -> engram.HashTables:
    """Shapes of Engram's hash constants."""
    shape = (len(model.engram_layer_ids), model.engram_max_ngram_size, model.vocab_size, 2)
    return engram.HashTables(jax.ShapeDtypeStruct(shape, jnp.uint32))  # pyright: ignore


def global_layout(layout: caches.Layout, mesh: Any) -> caches.Layout:
    """The layout of all ranks together."""
    slots, pages = layout.num_slots * mesh.size, layout.num_pages * mesh.size
    return dataclasses.replace(layout, num_slots=slots, num_pages=pages)


def _group(path: str) -> str:
    return next(group for part, group in _GROUPS if part in path)

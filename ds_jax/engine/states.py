"""Stored states of sequences on the device: what a prefix needs beside its pages.

Decides what a state is: the window rings of the layers that the replay rule names. Compressor tails
are empty at page borders, and the ids in front of a token come from the host. Never decides which
state is kept: a handle is a number of the host's. In: copies of a plan. Out: the same arrays, with
rings moved between slots and handles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from ds_jax.engine import controls, step
from ds_jax.engine.plan import Copy
from ds_jax.sharding.mesh import AXES

RINGS = P(None, AXES)  # layers, then slots or handles of all ranks


def store(rings: jax.Array, window: jax.Array, pairs: Int[Array, "n pair"]) -> jax.Array:
    """Rings of handles [layers handles R words] after copying (slot, handle) pairs out."""
    layers = jnp.arange(rings.shape[0])[:, None]
    slots = jnp.minimum(pairs[:, 0], window.shape[1] - 1)
    return rings.at[layers, pairs[None, :, 1]].set(window[layers, slots[None, :]], mode="drop")


def restore(window: jax.Array, rings: jax.Array, pairs: Int[Array, "n pair"]) -> jax.Array:
    """Rings of slots [L slots R words] after copying (slot, handle) pairs in."""
    layers = jnp.arange(rings.shape[0])[:, None]
    handles = jnp.minimum(pairs[:, 1], rings.shape[1] - 1)
    return window.at[layers, pairs[None, :, 0]].set(rings[layers, handles[None, :]], mode="drop")


class StateStore:
    """The stored rings of all ranks. `save` and `reset` mutate it.

    Args:
      capacity: states of ONE rank; 0: nothing is stored.
      layers: layers of a state, counted from the first.
      state: of the replica, for its sizes.
      most: copies a rank at most in one plan; there is one program for each direction.
    """

    def __init__(self, mesh: Mesh, capacity: int, layers: int, state: step.State, most: int):
        self.capacity = capacity
        self.ranks = mesh.size
        self.most = most
        window = state.cache.window
        shape = (layers, capacity * self.ranks, *window.shape[2:])
        sharding = NamedSharding(mesh, RINGS)
        self._pairs = NamedSharding(mesh, step.SPLIT)
        self._zeros: Any = jax.jit(lambda: jnp.zeros(shape, window.dtype), out_shardings=sharding)
        self.rings: jax.Array = self._zeros()
        specs = (RINGS, RINGS, step.SPLIT)
        self._store = step.over_ranks(store, mesh, specs, RINGS, donate=0)
        self._restore = step.over_ranks(restore, mesh, specs, RINGS, donate=0)

    def warm_up(self, state: step.State) -> None:
        """Compiles both directions."""
        if self.capacity:
            nothing = jax.device_put(self._pack([]), self._pairs)
            self._store = self._store.lower(self.rings, state.cache.window, nothing).compile()
            self._restore = self._restore.lower(state.cache.window, self.rings, nothing).compile()

    def reset(self) -> None:
        """Zeros: everything stored is lost."""
        self.rings.delete()
        self.rings = self._zeros()

    def save(self, state: step.State, copies: Sequence[Copy]) -> None:
        """Copies states out of slots, behind everything launched so far."""
        for pairs in self._packed(copies):
            self.rings = self._store(self.rings, state.cache.window, pairs)

    def load(self, state: step.State, copies: Sequence[Copy]) -> step.State:
        """The state (donated) with stored states copied into slots."""
        window = state.cache.window
        for pairs in self._packed(copies):
            window = self._restore(window, self.rings, pairs)
        return dataclasses.replace(state, cache=dataclasses.replace(state.cache, window=window))

    def _packed(self, copies: Sequence[Copy]) -> list[jax.Array]:
        """(slot, handle) pairs, `most` a rank in each array."""
        mine = [[c for c in copies if c.rank == rank] for rank in range(self.ranks)]
        longest = max((len(m) for m in mine), default=0)
        return [
            jax.device_put(self._pack([m[at : at + self.most] for m in mine]), self._pairs)
            for at in range(0, longest, self.most)
        ]

    def _pack(self, mine: Sequence[Sequence[Copy]]) -> np.ndarray:
        out = np.full((self.ranks, self.most, 2), controls.NOWHERE, np.int32)
        for rank, copies in enumerate(mine):
            for number, copy in enumerate(copies):
                out[rank, number] = copy.slot, copy.handle
        return out.reshape(self.ranks * self.most, 2)

"""The program that samples for a step in which somebody asks for more than the plain controls.

Decides where tokens are counted and when this program runs: behind a step, on the logits the step
leaves on the device. So steps stay as they are, whatever a request asks for, and there is one
program for each number of rows. Never plans, never waits. In: logits, full words. Out: tokens.

Rows under a mask have a program of their own, which sees only them: its cost grows with their
number, and a step that has none pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, UInt16

from ds_jax.engine import controls
from ds_jax.engine.step import SPLIT, over_ranks
from ds_jax.sampling import full, mask
from ds_jax.structured import masks

COUNT = jnp.uint16
MASKED = 2  # rows of the smallest program for masked ones


def run(
    logits: Float[Array, "B V"],
    plain: Int[Array, " B"],
    counts: UInt16[Array, "slots V"],
    recent: Int[Array, "slots recent"],
    words: Int[Array, "B words"],
) -> tuple[
    UInt16[Array, "slots V"], Int[Array, "slots recent"], tuple[jax.Array, jax.Array, jax.Array]
]:
    """Samples on one rank: counts and recent ids with the new tokens; tokens [B], report [B 41],
    newest token of every slot. Rows without a slot keep the `plain` token of the step.
    """
    asked, shaping = controls.unpack_full(words)
    counts, tokens, report = full.sample_full(logits, counts, asked, shaping)
    recent = recent.at[shaping.slots, -1].set(tokens, mode="drop")
    tokens = jnp.where(shaping.slots < controls.NOWHERE, tokens, plain)
    return counts, recent, (tokens, report, recent[:, -1])


def pick(logits: Float[Array, "B V"], places: Int[Array, " N"]) -> Float[Array, "N V"]:
    """The logits at these places; any of them for padding, whose place lies behind the last."""
    places = jnp.minimum(places, logits.shape[0] - 1)
    return logits.at[places].get(mode="promise_in_bounds")


def run_masked(
    logits: Float[Array, "N V"],
    counts: UInt16[Array, "slots V"],
    recent: Int[Array, "slots recent"],
    words: Int[Array, "N words"],
    rows: Int[Array, "N X"],
) -> tuple[UInt16[Array, "slots V"], Int[Array, "slots recent"], tuple[jax.Array, jax.Array]]:
    """Samples rows under their masks on one rank: counts and recent ids with the new tokens; the
    report [N 41], the newest token of every slot.
    """
    asked, shaping = controls.unpack_full(words)
    counts, tokens, report = full.sample_full(logits, counts, asked, shaping, rows)
    recent = recent.at[shaping.slots, -1].set(tokens, mode="drop")
    return counts, recent, (report, recent[:, -1])


def replace_row(
    counts: UInt16[Array, "slots V"], slots: Int[Array, " one"], row: UInt16[Array, " V"]
) -> UInt16[Array, "slots V"]:
    """Another row of counts on the rank whose slot is not `controls.NOWHERE`."""
    return counts.at[slots[0]].set(row, mode="drop")


class Sampler:
    """A replica's counts and sampling programs. Mutates itself: every call replaces the counts.

    Args:
      slots: slots of ONE rank.
    """

    def __init__(self, mesh: Mesh, slots: int, vocab_size: int):
        self.mesh = mesh
        self.ranks = mesh.size
        self.vocab_size = vocab_size
        self._split = NamedSharding(mesh, SPLIT)
        self._zeros: Any = jax.jit(
            lambda: jnp.zeros((self.ranks * slots, vocab_size), COUNT),
            out_shardings=self._split,
        )
        self.counts: jax.Array = self._zeros()
        self.mask_buckets = masks.bucket_sizes(slots, first=MASKED)[1:]
        self.mask_words = -(-vocab_size // mask.BITS)
        self._programs: dict[int | tuple[str, int], Any] = {}
        self._pick: Any = over_ranks(pick, mesh, (SPLIT, SPLIT), SPLIT, donate=())
        self._replace = over_ranks(replace_row, mesh, (SPLIT, SPLIT, P()), SPLIT, donate=0)

    def reset(self) -> None:
        """Zeroed counts, after a step has failed."""
        self.counts.delete()
        self.counts = self._zeros()

    def warm_up(self, rows: int, recent: jax.Array) -> None:
        """Compiles the program for `rows` rows a rank."""
        self.program(rows, recent)
        self.remember(0, controls.NOWHERE, (), 0)

    def remember(self, rank: int, slot: int, token_ids: Sequence[int], prompt_tokens: int) -> None:
        """Counts a sequence's tokens so far, instead of whatever its slot held."""
        row = controls.count_row(token_ids, prompt_tokens, self.vocab_size)
        slots = np.full(self.ranks, controls.NOWHERE, np.int32)
        slots[rank] = slot
        if self.ranks > 1:
            slots = jax.device_put(slots, self._split)
        self.counts = self._replace(self.counts, slots, row)

    def sample(
        self, logits: jax.Array, plain: jax.Array, recent: jax.Array, words: np.ndarray
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        """The recent ids (donated) with the new tokens; tokens, their report, newest of slots."""
        program = self.program(len(words) // self.ranks, recent)
        words = jax.device_put(words, self._split)
        self.counts, recent, drawn = program(logits, plain, self.counts, recent, words)
        return recent, drawn

    def sample_masked(
        self,
        logits: jax.Array,
        recent: jax.Array,
        places: np.ndarray,
        words: np.ndarray,
        rows: np.ndarray,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """The recent ids (donated) with the new tokens; their report, newest of slots.

        Args:
          logits: of the step, all rows of it.
          places: int32 [ranks * N], place of each masked row among those of its rank.
          words: full words of these rows.
          rows: their packed mask rows; N is one of `mask_buckets`.
        """
        program = self.masked_program(len(rows) // self.ranks, recent)
        places, words, rows = jax.device_put((places, words, rows), self._split)
        mine = self._pick(logits, places)
        self.counts, recent, drawn = program(mine, self.counts, recent, words, rows)
        return recent, drawn

    def warm_up_masked(self, recent: jax.Array, rows: Sequence[int]) -> None:
        """Compiles the programs for masked rows of steps with so many rows a rank."""
        for size in self.mask_buckets:
            self.masked_program(size, recent)
            places = jax.device_put(np.zeros(self.ranks * size, np.int32), self._split)
            for count in rows:
                shape = (self.ranks * count, self.vocab_size)
                self._pick(jnp.zeros(shape, jnp.float32, device=self._split), places)

    def masked_program(self, rows: int, recent: jax.Array) -> jax.stages.Compiled:
        """The program for so many masked rows a rank; compiles a new one."""
        name = ("masked", rows)
        if name not in self._programs:
            jitted = over_ranks(run_masked, self.mesh, (SPLIT,) * 5, (SPLIT,) * 3, donate=(1, 2))
            total = self.ranks * rows
            logits, words, masked = (
                jax.ShapeDtypeStruct((total, width), dtype, sharding=self._split)
                for width, dtype in (
                    (self.vocab_size, jnp.float32),
                    (controls.FULL_WORDS, jnp.int32),
                    (self.mask_words, jnp.int32),
                )
            )
            lowered = jitted.lower(logits, self.counts, recent, words, masked)
            self._programs[name] = lowered.compile()
        return self._programs[name]

    def program(self, rows: int, recent: jax.Array) -> jax.stages.Compiled:
        """The program for so many rows a rank; compiles a new one."""
        if rows not in self._programs:
            split = (SPLIT,) * 5
            jitted = over_ranks(run, self.mesh, split, (SPLIT,) * 3, donate=(2, 3))
            total = self.ranks * rows
            logits, plain, words = (
                jax.ShapeDtypeStruct((total, *width), dtype, sharding=self._split)
                for width, dtype in (
                    ((self.vocab_size,), jnp.float32),
                    ((), jnp.int32),
                    ((controls.FULL_WORDS,), jnp.int32),
                )
            )
            lowered = jitted.lower(logits, plain, self.counts, recent, words)
            self._programs[rows] = lowered.compile()
        return self._programs[rows]

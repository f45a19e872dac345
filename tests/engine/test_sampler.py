"""The sampling program over ranks: each does what one device would, and none talks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding

from ds_jax.engine import controls, sampler, step
from ds_jax.records import SamplingParams
from ds_jax.sharding import mesh as meshes

V, SLOTS, ROWS, RANKS = 61, 3, 2, 4
PARAMS = (
    SamplingParams(temperature=0.8, repetition_penalty=1.5, top_logprobs=2),
    SamplingParams(temperature=0, frequency_penalty=1.0, logit_bias=((4, 3.0),)),
)
HISTORY = ([5, 9, 9, 4, 4, 17], 3)


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(2).normal(0, 3, (RANKS * ROWS, V)).astype(np.float32)


def run(mesh: Mesh, logits: np.ndarray, ranks: range) -> list[np.ndarray]:
    """Two steps of these ranks: recent ids, tokens, reports and counts."""
    split = NamedSharding(mesh, step.SPLIT)
    made = sampler.Sampler(mesh, SLOTS, V)
    recent = jax.device_put(jnp.zeros((len(ranks) * SLOTS, 2), jnp.int32), split)
    plain = jax.device_put(jnp.full(len(ranks) * ROWS, 60, jnp.int32), split)
    for number, rank in enumerate(ranks):
        made.remember(number, (rank + 1) % SLOTS, *HISTORY)
    out: list[np.ndarray] = []
    for number in range(2):
        rows = [(rank, n) for rank in ranks for n in range(ROWS - (rank == 3))]  # one is padding
        words = controls.pack_full(
            [PARAMS[n] for _, n in rows],
            [rank * 10 + n for rank, n in rows],
            [(rank + 1 + n) % SLOTS for rank, n in rows],
            [7 + number] * len(rows),
            [(rank - ranks[0]) * ROWS + n for rank, n in rows],
            len(ranks) * ROWS,
        )
        mine = jax.device_put(logits[ranks[0] * ROWS : (ranks[-1] + 1) * ROWS], split)
        recent, drawn = made.sample(mine, plain, recent, words)
        out += [np.asarray(a) for a in (*drawn, recent, made.counts)]
    return out


def test_ranks_sample_like_single_devices_and_do_not_talk(logits: np.ndarray) -> None:
    mesh = meshes.build(meshes.MeshSpec.parse(f"ep{RANKS}"))
    together = run(mesh, logits, range(RANKS))
    single = meshes.build(meshes.MeshSpec.parse("ep1"))
    alone = [run(single, logits, range(rank, rank + 1)) for rank in range(RANKS)]
    for number, found in enumerate(together):
        np.testing.assert_array_equal(found, np.concatenate([parts[number] for parts in alone]))
    recent = jax.ShapeDtypeStruct(
        (RANKS * SLOTS, 2), jnp.int32, sharding=NamedSharding(mesh, step.SPLIT)
    )
    text = sampler.Sampler(mesh, SLOTS, V).program(ROWS, recent).as_text()
    for name in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
        assert name not in text


def masked(mesh: Mesh, logits: np.ndarray, ranks: range) -> list[np.ndarray]:
    """One step in which the last row of every rank is drawn under a mask, in a bucket of 2."""
    split = NamedSharding(mesh, step.SPLIT)
    made = sampler.Sampler(mesh, SLOTS, V)
    recent = jax.device_put(jnp.zeros((len(ranks) * SLOTS, 2), jnp.int32), split)
    places = np.full(len(ranks) * 2, controls.NOWHERE, np.int32)
    rows = np.full((len(ranks) * 2, made.mask_words), -1, np.int32)
    mine = range(0, len(places), 2)
    places[mine] = ROWS - 1
    rows[mine] = [[1 << (5 + rank), 1 << 9] for rank in ranks]
    params = SamplingParams(top_logprobs=1)
    count = len(ranks)
    words = controls.pack_full(
        [params] * count, list(ranks), [1] * count, [4] * count, list(mine), len(places)
    )
    given = jax.device_put(logits[ranks[0] * ROWS : (ranks[-1] + 1) * ROWS], split)
    recent, (report, newest) = made.sample_masked(given, recent, places, words, rows)
    return [np.asarray(report)[mine], np.asarray(newest), np.asarray(recent)]


def test_masked_rows_of_a_rank_are_its_own(logits: np.ndarray) -> None:
    mesh = meshes.build(meshes.MeshSpec.parse(f"ep{RANKS}"))
    together = masked(mesh, logits, range(RANKS))
    single = meshes.build(meshes.MeshSpec.parse("ep1"))
    alone = [masked(single, logits, range(rank, rank + 1)) for rank in range(RANKS)]
    for number, found in enumerate(together):
        np.testing.assert_array_equal(found, np.concatenate([parts[number] for parts in alone]))
    for rank, newest in enumerate(together[1].reshape(RANKS, SLOTS)):
        assert newest[1] in (5 + rank, 41) and newest[0] == newest[2] == 0


def test_rows_that_ask_for_nothing_keep_the_token_of_the_step(logits: np.ndarray) -> None:
    single = meshes.build(meshes.MeshSpec.parse("ep1"))
    tokens, _, newest, recent, counts = run(single, logits, range(3, 4))[:5]
    assert tokens[1] == 60 and tokens[0] != 60
    assert newest.tolist() == [0, tokens[0], 0] == recent[:, -1].tolist()
    assert counts[1, tokens[0]] & 0x7FFF == 1 + HISTORY[0][3:].count(int(tokens[0]))


def test_counts_of_a_slot_are_replaced_whole() -> None:
    single = meshes.build(meshes.MeshSpec.parse("ep1"))
    made = sampler.Sampler(single, SLOTS, V)
    made.remember(0, 1, [3, 3, 8, 8], 2)
    made.remember(0, 1, [5, 6], 1)
    made.remember(0, controls.NOWHERE, [7], 1)
    counts = np.asarray(made.counts)
    assert np.argwhere(counts).tolist() == [[1, 5], [1, 6]]
    made.reset()
    assert not np.asarray(made.counts).any()

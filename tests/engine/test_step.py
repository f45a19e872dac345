"""Steps: any cut, company and storage give the same logits; the cache changes in place."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ds_jax import Pipeline
from ds_jax.engine import scoring
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.runner import Runner
from ds_jax.models import deepseek_v41
from ds_jax.testing import largest_difference, prompt, tiny_model, tiny_pipeline
from tests.engine import stepping
from tests.engine.conftest import LARGE_CACHE

IDS = tuple(prompt(45))
DECODE = StepKey(sequences=4, tokens=1, pages=4, feeds_back=True)


@pytest.fixture(scope="module")
def logits(pipeline: Pipeline) -> np.ndarray:
    """Logits of IDS in a fresh chunk of 24 and a later one of 21."""
    return pipeline.score(IDS)


@pytest.mark.parametrize("cuts", [(1,), (2, 3, 5), (7, 20, 41), (23, 24, 25, 26, 27)])
def test_any_cut_gives_the_same_logits(
    pipeline: Pipeline, logits: np.ndarray, cuts: tuple[int, ...]
) -> None:
    got = scoring.score(pipeline.runner, IDS, cuts)
    assert largest_difference(got, logits) < 1e-5


def test_single_steps_give_the_same_logits(pipeline: Pipeline, logits: np.ndarray) -> None:
    scoring.score(pipeline.runner, IDS[:20])
    for end in range(21, len(IDS) + 1):
        (got,) = stepping.decode_logits(pipeline.runner, [(IDS[:end], 0)], DECODE)
        assert largest_difference(got, logits[end - 1]) < 1e-5, f"{end=}"


def test_a_trace_without_cache_gives_the_same_logits(
    pipeline: Pipeline, logits: np.ndarray
) -> None:
    assert largest_difference(pipeline.trace(IDS)["logits"], logits) < 1e-5


def test_neighbours_in_a_step_do_not_change_a_bit(pipeline: Pipeline) -> None:
    runner = pipeline.runner
    sequences = [(prompt(n, seed=n), slot) for n, slot in ((9, 3), (30, 0), (14, 7), (22, 5))]
    for ids, slot in sequences:
        _prefill(runner, ids[:-1], slot)
    together = stepping.decode_logits(runner, sequences, DECODE)
    for sequence, wanted in zip(sequences, together, strict=True):
        (alone,) = stepping.decode_logits(runner, [sequence], DECODE)
        np.testing.assert_array_equal(alone, wanted)
    moved = stepping.decode_logits(runner, sequences[::-1], DECODE)
    np.testing.assert_array_equal(moved[::-1], together)


def test_pages_in_any_order_give_the_same_logits(pipeline: Pipeline) -> None:
    runner = pipeline.runner
    key = StepKey(sequences=1, tokens=24, pages=4, all_logits=True)
    in_order = runner.launch(key, [stepping.row(runner, IDS[:24], 0, 24)])[0].logits
    shuffled = dataclasses.replace(
        stepping.row(runner, IDS[:24], 0, 24), pages=(200, 3, 77, 54), slot=9
    )
    np.testing.assert_array_equal(runner.launch(key, [shuffled])[0].logits, in_order)


def test_a_used_slot_gives_the_same_logits_as_a_new_one(
    pipeline: Pipeline, logits: np.ndarray
) -> None:
    scoring.score(pipeline.runner, prompt(60, seed=5))
    np.testing.assert_array_equal(pipeline.score(IDS), logits)


def test_packed_and_unpacked_rows_give_equal_bits(pipeline: Pipeline, logits: np.ndarray) -> None:
    packed = tiny_pipeline(cache_format="packed", **LARGE_CACHE)
    assert packed.runner.state.cache.window.dtype == np.uint8
    np.testing.assert_array_equal(packed.score(IDS[:24]), logits[:24])
    for one in (pipeline, packed):
        scoring.score(one.runner, IDS[:24])
    step = [(IDS[:25], 0)]  # reads what the chunk has stored
    np.testing.assert_array_equal(
        stepping.decode_logits(packed.runner, step, DECODE),
        stepping.decode_logits(pipeline.runner, step, DECODE),
    )


@pytest.mark.parametrize(
    "key",
    [
        DECODE,
        dataclasses.replace(DECODE, sequences=1),  # a write of one row, which copied all pages
        StepKey(1, 24, 4, all_logits=True),
        StepKey(1, 24, 2, fresh=True, all_logits=True),
    ],
    ids=["decode", "decode of one", "later chunk", "fresh chunk"],
)
def test_the_cache_is_updated_in_place(pipeline: Pipeline, key: StepKey) -> None:
    runner = pipeline.runner
    memory = runner.programs.get(key).memory_analysis()
    state = sum(a.nbytes for a in jax.tree.leaves(runner.state))
    assert memory.alias_size_in_bytes == state
    assert memory.temp_size_in_bytes < 0.1 * state


def test_scanned_layers_give_the_logits_of_unrolled_ones() -> None:
    model = tiny_model(
        compress_ratios=(0, 0, 2, 2, 2),
        kv_source_layer_ids=(2,),
        index_source_layer_ids=(2,),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )
    assert deepseek_v41.runs(model) == ((0, 2), (2, 1), (3, 2))
    key = StepKey(1, 24, 4, all_logits=True)  # reads and writes the cache
    unrolled, scanned = (
        tiny_pipeline(model, scan_layers=scan, token_map=None).runner for scan in (False, True)
    )
    assert deepseek_v41.stacked_depth(scanned.params.layers[0]) == 2
    found = []
    for runner in (unrolled, scanned):
        parts = [stepping.row(runner, IDS, start, start + 20) for start in (0, 20)]
        found.append([np.asarray(runner.launch(key, [part])[0].logits)[0, :20] for part in parts])
    assert largest_difference(np.array(found[1]), np.array(found[0])) < 1e-5


def _prefill(runner: Runner, ids: list[int], slot: int) -> None:
    """Runs a prompt in chunks, as a request would."""
    longest = runner.buckets.chunks[-1]
    for start in range(0, len(ids), longest):
        end = min(start + longest, len(ids))
        key = StepKey(1, longest, 4, all_logits=True)
        runner.launch(key, [stepping.row(runner, ids, start, end, slot)])

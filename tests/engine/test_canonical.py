"""Canonical mode: a row's bits depend on its sequence alone, at every size of the program."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine import batch as batches
from ds_jax.errors import ConfigError
from ds_jax.testing import prompt
from tests.engine import replicas

ROWS = (4, 8, 16)  # every size that is tested is a program of its own
PROMPT = prompt(37, seed=1)
GREEDY = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=20, temperature=0.9, top_p=0.9, seq_seed=7, ignore_eos=True)


@pytest.fixture(scope="module", params=ROWS)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return replicas.replica(
        canonical=True, engine={"canonical_rows": request.param}, cache={"pages": 6}
    )


@pytest.fixture(scope="module")
def released() -> Pipeline:
    return replicas.replica(
        canonical=True,
        numerics="released",
        engine={"canonical_rows": 8},
        cache={"pages": 6},
        cache_format="packed",
    )


def ways(pipeline: Pipeline, params: SamplingParams) -> dict[str, list[int]]:
    """Tokens of one prompt: cold, from a prefix, among others, preempted."""
    found: dict[str, list[int]] = {}

    def alone(name: str, **fields: bool) -> None:
        (events,) = replicas.run(pipeline, replicas.requests([PROMPT], params, **fields))
        found[name] = replicas.tokens(events)
        usage = events[-1].usage
        assert usage is not None
        assert (usage.cached_tokens > 0) == (name == "hit"), name

    alone("cold", reuse_prefix=False)
    alone("hit")
    short = dataclasses.replace(params, max_tokens=4)
    others = replicas.requests([prompt(3 + n, seed=n) for n in range(31)], short)
    mine = replicas.requests([PROMPT], params, reuse_prefix=False)
    found["among others"] = replicas.tokens(
        replicas.run(pipeline, others[:2] + mine + others[2:])[2]
    )
    # 6 pages: the other one takes the last that both can have, and the longer output gives way
    before = pipeline.stats()["preemptions_total"]
    asked = replicas.requests([PROMPT, prompt(20, seed=2)], params, reuse_prefix=False)
    found["resumed"] = replicas.tokens(replicas.run(pipeline, asked)[0])
    assert pipeline.stats()["preemptions_total"] > before
    return found


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_every_way_to_run_a_request_gives_the_same_tokens(
    pipeline: Pipeline, params: SamplingParams
) -> None:
    found = ways(pipeline, params)
    assert len(found["cold"]) == params.max_tokens
    assert set(map(tuple, found.values())) == {tuple(found["cold"])}, found


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_released_numerics_do_the_same(released: Pipeline, params: SamplingParams) -> None:
    found = ways(released, params)
    assert set(map(tuple, found.values())) == {tuple(found["cold"])}, found


@pytest.mark.slow
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_optimised_programs_do_the_same(
    params: SamplingParams,
) -> None:
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        optimised = replicas.replica(
            canonical=True, engine={"canonical_rows": 8}, cache={"pages": 6}
        )
        optimised.warm_up()
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    found = ways(optimised, params)
    assert set(map(tuple, found.values())) == {tuple(found["cold"])}, found


@pytest.mark.slow
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_experts_on_two_devices_do_the_same(params: SamplingParams) -> None:
    split = replicas.replica(
        canonical=True, mesh="ep2", engine={"canonical_rows": 8}, cache={"pages": 6}
    )
    alone = [replicas.requests([PROMPT], params, reuse_prefix=reuse)[0] for reuse in (False, True)]
    cold, hit = (replicas.tokens(replicas.run(split, [one])[0]) for one in alone)
    short = dataclasses.replace(params, max_tokens=4)
    others = replicas.requests([prompt(3 + n, seed=n) for n in range(31)], short)
    mine = replicas.requests([PROMPT], params, reuse_prefix=False)
    among = replicas.tokens(replicas.run(split, others[:2] + mine + others[2:])[2])
    assert len(cold) == params.max_tokens
    assert hit == cold and among == cold


def test_scores_are_the_logits_of_generation(pipeline: Pipeline) -> None:
    (result,) = pipeline.generate([PROMPT], replicas.GREEDY)
    logits = pipeline.score([*PROMPT, *result.token_ids])
    best = logits[len(PROMPT) - 1 : -1].argmax(axis=-1)
    assert best.tolist() == list(result.token_ids)


@pytest.mark.parametrize("cache", [{"replay": "mask", "keep_tokens": 8}, {"bounded_replay": True}])
def test_approximations_are_refused(cache: dict) -> None:
    with pytest.raises(ConfigError, match="canonical=True: needs exact states"):
        replicas.replica(canonical=True, cache=cache)


def test_logits_are_equal_bit_for_bit_wherever_a_row_stands(pipeline: Pipeline) -> None:
    """Prefill in one run, in single rows, and at every place among rows of other sequences.

    The last one of a pipeline: rows launched by hand overwrite pages that the prefix cache knows.
    """
    runner = pipeline.runner
    key = runner.buckets.flat
    wanted = flat_logits(pipeline, [key.sequences] * len(PROMPT))
    np.testing.assert_array_equal(flat_logits(pipeline, [1] * len(PROMPT)), wanted)
    draw = np.random.default_rng(0)
    cuts = [int(draw.integers(1, key.sequences + 1)) for _ in PROMPT]
    np.testing.assert_array_equal(flat_logits(pipeline, cuts, shuffled=draw), wanted)


def flat_logits(
    pipeline: Pipeline, cuts: list[int], shuffled: np.random.Generator | None = None
) -> np.ndarray:
    """Logits of every position of PROMPT in slot 0, in runs of so many rows.

    shuffled: rows of other slots fill the runs, and all stand in random order.
    """
    runner = pipeline.runner
    key, out, at = runner.buckets.flat, [], 0
    for count in cuts:
        end = min(at + count, len(PROMPT))
        rows = [part(pipeline, 0, PROMPT, p) for p in range(at, end)]
        if shuffled is not None:
            other = prompt(32, seed=int(shuffled.integers(99)))
            rows += [part(pipeline, 1, other, p) for p in range(key.sequences - len(rows))]
            order = shuffled.permutation(len(rows))
        else:
            order = np.arange(len(rows))
        output, places = runner.launch(key, [rows[i] for i in order])
        logits = np.asarray(output.logits)
        where = {int(i): place for i, place in zip(order, places, strict=True)}
        out += [logits[where[n]] for n in range(end - at)]
        at = end
    return np.stack(out)


def part(pipeline: Pipeline, slot: int, ids: list[int], at: int) -> batches.Row:
    back = pipeline.runner.back
    pages = range(4) if slot == 0 else range(4, 6)  # the other sequence is short
    return batches.Row(
        0, slot, at, ids[at : at + 1], ids[max(0, at - back) : at], pages, replicas.GREEDY, 0
    )

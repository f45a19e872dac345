"""Verified drafts chosen by confidence: same tokens, fewer rows, nothing compiled after warm-up."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine import batch as batches
from ds_jax.engine import profile, verify_step
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.runner import Runner
from ds_jax.engine.sequence import State
from ds_jax.engine.speculation import Drafted, Speculation
from ds_jax.speculative import state as draft_state
from ds_jax.speculative import worth
from ds_jax.speculative.state import Told
from ds_jax.testing import prompt, smallest_drafting_model, tiny_params
from tests.engine import stepping

DRAFTS, CONTEXT = 2, 32
SIZES: dict[str, Any] = {
    "max_sequences": 2,
    "max_context": CONTEXT,
    "page_tokens": 32,
    "chunk_tokens": (32,),
}


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    model = smallest_drafting_model()
    options = SIZES | {"numerics": "float32", "nextn": DRAFTS, "varlen_verify": True}
    return Pipeline(model, tiny_params(model), **options)


def test_no_compilation_after_warm_up_with_drafts(
    pipeline: Pipeline, compilations: list[str]
) -> None:
    keys = pipeline.runner.buckets.keys()
    assert pipeline.warm_up() == len(keys)
    assert {k.verify_rows for k in keys if k.feeds_back} == {1, 2, 3, 4, 6}
    assert {k.sequences for k in keys if k.rests} == {1, 2}
    compilations.clear()
    for params in (
        SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True),
        SamplingParams(max_tokens=6, temperature=0.9, top_p=0.8, ignore_eos=True),
        SamplingParams(max_tokens=4, top_logprobs=1, frequency_penalty=0.1, ignore_eos=True),
    ):
        for lengths in ((1,), (16, 3), (20, 7, 5)):
            results = pipeline.generate([prompt(n, seed=n) for n in lengths], params)
            assert [len(r.token_ids) for r in results] == [params.max_tokens] * len(lengths)
    assert not compilations


def test_tokens_do_not_depend_on_what_steps_cost(pipeline: Pipeline) -> None:
    every = pipeline.runner.buckets.keys()
    keys = [k for k in every if k.verify_rows]
    params = SamplingParams(max_tokens=12, temperature=1.0, seq_seed=4, ignore_eos=True)
    prompts = [prompt(n, seed=n) for n in (9, 4)]
    outputs, lengths = [], []
    for power in (0, 2):  # of the rows: all drafts pay, or none
        pipeline.loop.speculation = Speculation(pipeline.runner.buckets, 1)
        pipeline.loop.speculation.learn({k: float(k.verify_rows**power) for k in keys})
        outputs.append([r.token_ids for r in pipeline.generate(prompts, params)])
        lengths.append(pipeline.stats()["mean_verified_length"])
    assert outputs[0] == outputs[1]
    assert lengths[0] > 1.0 and lengths[1] == 0.0


def test_tokens_do_not_depend_on_steps_that_rest(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts are left out, tried again after five steps, and left out again."""
    monkeypatch.setattr(worth, "FIRST", 5)
    every = pipeline.runner.buckets.keys()
    keys = [k for k in every if k.verify_rows]
    prompts = [prompt(n, seed=n) for n in (9, 4)]
    for asked in ({"temperature": 0.0}, {"temperature": 1.0, "seq_seed": 4}):
        params = SamplingParams(max_tokens=20, ignore_eos=True, **asked)  # type: ignore
        outputs = []
        for rest_ms in (2.0, 0.1):  # of 1 ms for every other step: resting never pays, or always
            found = _costing(pipeline, {k: rest_ms if k.rests else 1.0 for k in keys}, monkeypatch)
            outputs.append([r.token_ids for r in pipeline.generate(prompts, params)])
            rested = found.stats()["steps_without_drafts"]
            assert (rested > 5) == (rest_ms < 1)
            assert found.stats()["drafting_rounds_total"] > 0
        assert outputs[0] == outputs[1]


def _costing(
    pipeline: Pipeline, times_ms: dict[StepKey, float], monkeypatch: pytest.MonkeyPatch
) -> Speculation:
    """Steps cost this, whatever they take. Mutates the pipeline."""
    monkeypatch.setattr(Speculation, "_time", lambda *_: None)
    found = Speculation(pipeline.runner.buckets, 1)
    found.learn(times_ms)
    pipeline.loop.speculation = found
    return found


def test_steps_rest_for_requests_whose_drafts_nobody_verifies(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log probabilities and penalties are asked for, or not; the drafts are equally good."""
    every = pipeline.runner.buckets.keys()
    times = {k: 0.99 if k.rests else 1.0 for k in every if k.verify_rows}
    prompts = [prompt(n, seed=n) for n in (9, 4)]
    for extra, rests in (
        ({}, False),
        ({"top_logprobs": 1}, True),
        ({"frequency_penalty": 0.3, "seq_seed": 2}, True),
    ):
        found = _costing(pipeline, times, monkeypatch)
        params = SamplingParams(max_tokens=20, temperature=1.0, ignore_eos=True, **extra)  # type: ignore
        results = pipeline.generate(prompts, params)
        assert [len(r.token_ids) for r in results] == [20, 20]
        assert (found.stats()["steps_without_drafts"] > 10) == rests


def test_a_step_that_rests_counts_no_drafting_round(pipeline: Pipeline) -> None:
    """Not for sequences either that have drafts behind it, as those under a grammar do."""
    found = Speculation(pipeline.runner.buckets, 1)
    key = pipeline.runner.buckets.resting(pipeline.runner.buckets.decode(2, CONTEXT))
    reader: Any = types.SimpleNamespace(state=State.DECODE, number=7)
    row = np.zeros((1, draft_state.words(DRAFTS)), np.int32)
    row[0, :2] = 1, 60
    tokens, drafts = found.read(3, Drafted(key, False, 0, (reader,)), row, 0.0)
    assert tokens == [[60]] and drafts == [()]
    assert found.stats()["drafting_rounds_total"] == 0
    assert found.stats()["mean_accepted_length"] == 1.0
    full = dataclasses.replace(key, rests=False) if key is not None else None
    found.read(4, Drafted(full, False, 0, (reader,)), row, 0.0)
    assert found.stats()["drafting_rounds_total"] == 1


def test_drafts_after_a_rest_are_those_without(pipeline: Pipeline) -> None:
    r = pipeline.runner
    given = r.context.model, r.context.numerics, r.mesh, r.params, r.tables, r.engine, r.cache
    runner, ids, states = Runner(*given), prompt(9, seed=9), []
    full = runner.buckets.decode(1, CONTEXT)
    drafting, rest = runner.buckets.verify(full)[0], runner.buckets.resting(full)
    assert rest is not None and rest.rests and not drafting.rests
    for keys in ([drafting] * 3, [rest, rest, drafting]):
        runner.reset()
        start = runner.buckets.prefill(1, len(ids), CONTEXT, fresh=True)
        runner.launch(start, [stepping.row(runner, ids, 0, len(ids))])
        for key in keys:
            packed = np.zeros((1, batches.width(key, runner.back)), np.int32)
            packed[0, verify_step.MOST] = CONTEXT - 2
            packed[0, batches.HEADER :] = list(runner.pages_of(0))[: key.pages]
            output = runner.start(key, packed)
            drafts = runner.state.drafts
            assert drafts is not None and int(drafts.count[0]) == (0 if key.rests else DRAFTS)
        assert output.newest is not None
        told = dataclasses.asdict(Told.read(np.asarray(output.newest)[:1]))
        kept = (drafts.anchor, drafts.tokens, drafts.confidence, runner.state.recent)
        made = [np.asarray(a)[0] for a in (output.logits, *kept)]
        states.append([*told.values(), *made])
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)


def test_measured_times_are_kept_for_the_next_start(
    pipeline: Pipeline, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = pipeline.runner.buckets.keys()
    keys = [k for k in every if k.verify_rows][:2]
    times = profile.curve(pipeline.runner, keys, tmp_path)
    assert all(np.isfinite(t) and t > 0 for t in times.values())

    def fails(*_: object) -> dict:
        raise AssertionError("measured again")

    monkeypatch.setattr(profile, "_time", fails)
    assert profile.curve(pipeline.runner, keys, tmp_path) == times
    (file,) = tmp_path.iterdir()
    file.write_text("[]")
    monkeypatch.setattr(profile, "_time", lambda *_: 3.0)
    assert set(profile.curve(pipeline.runner, keys, tmp_path).values()) == {3.0}

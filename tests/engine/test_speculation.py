"""Steps that verify drafts: the same tokens as plain decoding, whatever is drafted or rejected."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine import batch as batches
from ds_jax.engine import verify_step
from ds_jax.engine.runner import Runner
from ds_jax.errors import ConfigError
from ds_jax.records import GenerateRequest, TokenEvent
from ds_jax.serving import metrics
from ds_jax.testing import (
    drafting_model,
    largest_difference,
    prompt,
    smallest_drafting_model,
    tiny_pipeline,
)
from tests.engine import stepping

DRAFTS = 5
CONTEXT = 64
SIZES = {"max_sequences": 2, "max_context": CONTEXT, "chunk_tokens": (16,), "page_tokens": CONTEXT}
PROMPTS = [prompt(length, seed=length) for length in (3, 13)]
GREEDY_AND_SEEDED = (
    {"max_tokens": 12, "ignore_eos": True, "temperature": 0.0},
    {"max_tokens": 12, "ignore_eos": True, "temperature": 1.0, "seq_seed": 5},
)


@pytest.fixture(scope="module")
def plain() -> Iterator[Pipeline]:
    pipeline = tiny_pipeline(drafting_model(), **SIZES)
    yield pipeline
    pipeline.close()


@pytest.fixture(scope="module")
def drafting() -> Iterator[Pipeline]:
    pipeline = tiny_pipeline(drafting_model(), nextn=DRAFTS, **SIZES)
    yield pipeline
    pipeline.close()


def _tokens(pipeline: Pipeline, **params: object) -> list[tuple[int, ...]]:
    asked = SamplingParams(**{"max_tokens": 20, "ignore_eos": True, **params})  # type: ignore
    return [r.token_ids for r in pipeline.generate(PROMPTS, asked)]


def test_greedy_tokens_equal_plain_decoding(plain: Pipeline, drafting: Pipeline) -> None:
    assert _tokens(drafting, temperature=0.0) == _tokens(plain, temperature=0.0)
    stats = drafting.stats()
    assert stats["mean_accepted_length"] >= 1.0
    assert stats["drafts_verified_total"] > 0
    read = (*metrics.COUNTERS.values(), *metrics.GAUGES.values())  # by the service
    assert {name for name, _ in read} <= stats.keys()


def test_accepted_drafts_tell_their_confidence(drafting: Pipeline) -> None:
    before = drafting.stats()["drafts_accepted_total"]
    asked = SamplingParams(max_tokens=40, seq_seed=1, temperature=0.0)
    events = [event for events in _events(drafting, asked) for event in events]
    marked = [event.draft for event in events if event.draft is not None]
    assert 0 < len(marked) <= drafting.stats()["drafts_accepted_total"] - before
    assert all(0 <= confidence <= 1 for confidence in marked)


def _events(pipeline: Pipeline, asked: SamplingParams) -> list[list[TokenEvent]]:
    async def read() -> list[list[TokenEvent]]:
        streams = [
            pipeline.engine.submit(GenerateRequest(f"r{n}", tuple(ids), asked))
            for n, ids in enumerate(PROMPTS)
        ]
        return [[event async for event in stream] for stream in streams]

    return asyncio.run(read())


def test_tokens_of_a_fixed_seed_equal_plain_decoding(plain: Pipeline, drafting: Pipeline) -> None:
    for extra in ({}, {"top_p": 0.8}, {"top_k": 5, "temperature": 0.7}):
        asked = {"seq_seed": 7, "temperature": 1.0, **extra}
        assert _tokens(drafting, **asked) == _tokens(plain, **asked)


def test_penalties_and_log_probabilities_are_those_of_plain_decoding(
    plain: Pipeline, drafting: Pipeline
) -> None:
    asked = {"seq_seed": 3, "frequency_penalty": 0.5, "top_logprobs": 2, "max_tokens": 8}
    assert _tokens(drafting, **asked) == _tokens(plain, **asked)


def test_output_ends_where_it_is_asked_to(plain: Pipeline, drafting: Pipeline) -> None:
    for limit in (1, 2, 7):
        got = _tokens(drafting, temperature=0.0, max_tokens=limit)
        assert got == [t[:limit] for t in _tokens(plain, temperature=0.0)]
    room = CONTEXT - len(PROMPTS[1])
    (result,) = drafting.generate([PROMPTS[1]], SamplingParams(temperature=0, max_tokens=CONTEXT))
    (wanted,) = plain.generate([PROMPTS[1]], SamplingParams(temperature=0, max_tokens=CONTEXT))
    assert result.token_ids == wanted.token_ids and len(result.token_ids) <= room


def _force(runner: Runner, anchor: int, drafts: Sequence[int]) -> None:
    """Slot 0 stands at an anchor and has these drafts. Mutates the runner."""
    held = runner.state.drafts
    assert held is not None
    padded = [*drafts, *[0] * (DRAFTS - len(drafts))]
    held = dataclasses.replace(
        held,
        tokens=held.tokens.at[0].set(jnp.asarray(padded, jnp.int32)),
        confidence=held.confidence.at[0].set(1.0),
        count=held.count.at[0].set(len(drafts)),
        anchor=held.anchor.at[0].set(anchor),
    )
    runner.state = dataclasses.replace(runner.state, drafts=held)


def _verify(runner: Runner, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """One step of slot 0: the words told and the logits of the last token."""
    key = runner.buckets.decode(1, CONTEXT)
    packed = np.zeros((1, batches.width(key, runner.back)), np.int32)
    packed[0, verify_step.MOST], packed[0, verify_step.BUDGET] = CONTEXT - 2, budget
    packed[0, batches.HEADER :] = list(runner.pages_of(0))[: key.pages]
    output = runner.start(key, packed)
    assert output.newest is not None
    return np.asarray(output.newest)[0], np.asarray(output.logits)[0]


@pytest.mark.parametrize("length", [4, 13])
def test_rejection_at_every_position_leaves_plain_logits(
    plain: Pipeline, drafting: Pipeline, length: int
) -> None:
    """Over window rings, compressed rows of both ratios, index keys and hashed n-grams."""
    runner = Runner(*_parts(drafting))
    ids = prompt(length, seed=length)
    (wanted,) = plain.generate([ids], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))
    line = [*ids, *wanted.token_ids]
    logits = plain.score(line)
    for accepted in range(DRAFTS + 1):
        right = line[length + 1 : length + 1 + accepted]
        wrong = [(t + 1) % 90 + 3 for t in line[length + 1 + accepted : length + 1 + DRAFTS]]
        _prefill(runner, ids)
        stepping.remember(runner, line[: length + 1])
        _force(runner, length, [*right, *wrong])
        told, _ = _verify(runner, DRAFTS)
        assert told[: accepted + 2].tolist() == [
            accepted + 1,
            *line[length + 1 : length + 2 + accepted],
        ]
        at = length + accepted + 1
        for anchor in range(at, at + 4):  # rows of rejected drafts are behind or under these
            _force(runner, anchor, [])
            told, got = _verify(runner, 0)
            assert largest_difference(got, logits[anchor]) < 1e-5, f"{accepted=} {anchor=}"


def _prefill(runner: Runner, ids: Sequence[int]) -> None:
    key = runner.buckets.prefill(1, len(ids), CONTEXT, fresh=True)
    runner.launch(key, [stepping.row(runner, ids, 0, len(ids))])


def _parts(pipeline: Pipeline):
    r = pipeline.runner
    sizes = dataclasses.replace(r.engine, max_sequences=1)
    return r.context.model, r.context.numerics, r.mesh, r.params, r.tables, sizes, r.cache


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nextn": 6}, "nextn=6.*dspark_block_size=5"),
        ({"nextn": -1}, "nextn=-1.*negative"),
        ({"varlen_verify": True}, "varlen_verify.*nextn"),
        ({"nextn": 5, "confidence_temperatures": (1.0, 2.0)}, "one for each of nextn=5.*has 2"),
        ({"nextn": 1, "confidence_temperatures": (0.0,)}, "above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny_pipeline(drafting_model(), **options)


def test_checkpoint_without_a_drafter_is_refused(case) -> None:
    with pytest.raises(ConfigError, match=r"nextn=2.*no drafter"):
        Pipeline.from_checkpoint(case, nextn=2, program_cache=None)


@pytest.fixture
def case(golden):
    return golden / "model" / "swa_only"


@pytest.mark.parametrize("mesh", ["ep2", "ep2,dp4"])
def test_drafts_over_devices_give_the_tokens_of_plain_decoding(mesh: str) -> None:
    """Every device drafts for its own sequences; experts of drafter and target are split."""
    sizes = {"max_sequences": 2, "max_context": 32, "page_tokens": 32, "chunk_tokens": (16,)}
    prompts = [prompt(n, seed=n) for n in (5, 11, 8, 1, 13, 3)]
    model = smallest_drafting_model()
    drafts = {"nextn": 2, "varlen_verify": True}
    outputs = []
    for options in ({}, {"mesh": mesh}, {"mesh": mesh, **drafts}):
        pipeline = tiny_pipeline(model, **sizes, **options)
        outputs.append(
            [
                [r.token_ids for r in pipeline.generate(prompts, SamplingParams(**asked))]
                for asked in GREEDY_AND_SEEDED
            ]
        )
        stats = pipeline.stats()
        pipeline.close()
    assert outputs[0] == outputs[1] == outputs[2]
    assert stats["drafts_verified_total"] > 0

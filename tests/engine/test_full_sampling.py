"""Requests of every kind through the engine: what they get, alone and together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.errors import RequestError
from ds_jax.records import GenerateRequest, TokenEvent
from ds_jax.testing import prompt
from tests.engine import replicas
from tests.engine.replicas import tokens
from tests.oracles import sampling as oracle

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
DRAWN: dict[str, Any] = {"temperature": 0.9, "max_tokens": 12, "ignore_eos": True, "seq_seed": 5}
SHAPES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.6},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.8, "logit_bias": ((7, 1.5), (50, -3.0))},
    {"repetition_penalty": 0.7, "presence_penalty": -0.5, "frequency_penalty": 1.1},
    {"logit_bias": ((20, 100.0),), "frequency_penalty": 2.0},
)
EVERYTHING: tuple[dict[str, Any], ...] = (
    *({**DRAWN, **shape} for shape in SHAPES),
    {**DRAWN, "min_p": 0.2, "top_p": 0.9},
    {**DRAWN, "top_k": 9, "top_logprobs": 4, "presence_penalty": 1.0},
    {**GREEDY, "prompt_logprobs": 2},
    {**DRAWN, "prompt_logprobs": 0, "top_logprobs": 0, "repetition_penalty": 1.3},
    DRAWN,
    GREEDY,
)


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """One window layer; 3 slots that share the pages of 1.5 contexts; warm."""
    made = replicas.one_layer(max_sequences=3, cache={"pages": 6})
    made.warm_up()
    yield made
    made.close()


def requests(settings: Sequence[dict[str, Any]], first: int = 9) -> list[GenerateRequest]:
    """One request for each, prompts of 9 tokens and more, some of them two chunks long."""
    return [
        GenerateRequest(str(n), tuple(prompt(first + 3 * (n % 6), seed=n)), SamplingParams(**each))
        for n, each in enumerate(settings)
    ]


def run(pipeline: Pipeline, asked: Sequence[GenerateRequest]) -> dict[str, list[TokenEvent]]:
    """Events of each request; all of them go at once."""
    events: dict[str, list[TokenEvent]] = {request.request_id: [] for request in asked}
    for event in pipeline.events(asked):
        assert event.error is None, event.error
        events[event.request_id].append(event)
    return events


def test_greedy_tokens_are_the_most_likely_ones_of_the_formulas(pipeline: Pipeline) -> None:
    """Slots change hands, chunks are cut: the counts are still those of the sequence."""
    asked = requests([{**GREEDY, **shape} for shape in (*SHAPES, *SHAPES)])
    for request, events in zip(asked, run(pipeline, asked).values(), strict=True):
        start, output, p = request.prompt_token_ids, tokens(events), request.params
        assert len(output) == p.max_tokens
        logits = pipeline.score([*start, *output[:-1]])[len(start) - 1 :]
        for place, token in enumerate(output):
            values = oracle.shaped(
                logits[place],
                start,
                output[:place],
                p.repetition_penalty,
                p.presence_penalty,
                p.frequency_penalty,
                p.logit_bias,
            )
            assert values[token] > values.max() - 1e-4, f"{request.request_id}: output {place}"


def test_tokens_depend_on_nobody_else(pipeline: Pipeline) -> None:
    """Alone, and among all others on three slots whose pages do not suffice."""
    before = pipeline.stats()["preemptions_total"]
    asked = requests(EVERYTHING)
    together = run(pipeline, asked)
    assert pipeline.stats()["preemptions_total"] > before
    for request in asked:
        name = request.request_id
        assert tokens(run(pipeline, [request])[name]) == tokens(together[name]), name


def test_a_cached_prefix_gives_the_tokens_of_a_cold_run(pipeline: Pipeline) -> None:
    params = SamplingParams(**DRAWN, repetition_penalty=1.5, frequency_penalty=0.5)
    cold = GenerateRequest("a", tuple(prompt(40, seed=77)), params, reuse_prefix=False)
    first, again = (
        run(pipeline, [dataclasses.replace(cold, reuse_prefix=True)])["a"] for _ in range(2)
    )
    assert again[-1].usage is not None and again[-1].usage.cached_tokens > 0
    assert tokens(first) == tokens(again) == tokens(run(pipeline, [cold])["a"])


@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_logprobs_are_those_of_the_model(pipeline: Pipeline, penalty: float) -> None:
    params = SamplingParams(**DRAWN, top_logprobs=3, repetition_penalty=penalty)
    (request,) = [GenerateRequest("a", tuple(prompt(21, seed=4)), params)]
    events = run(pipeline, [request])["a"]
    output = tokens(events)
    logits = pipeline.score([*request.prompt_token_ids, *output[:-1]])[20:]
    for row, event in zip(logits, events, strict=True):
        wanted = oracle.logprobs(row)
        assert event.logprob is not None
        assert event.logprob.logprob == pytest.approx(wanted[event.token_id], abs=1e-4)
        assert [token for token, _ in event.logprob.top] == oracle.top(row, 3)
        np.testing.assert_allclose(
            [value for _, value in event.logprob.top], wanted[oracle.top(row, 3)], atol=1e-4
        )


@pytest.mark.parametrize("length", [1, 2, 16, 17, 40])
def test_prompt_logprobs_are_those_of_the_model(pipeline: Pipeline, length: int) -> None:
    params = SamplingParams(**GREEDY, prompt_logprobs=2)
    ids = tuple(prompt(length, seed=length))
    (result,) = pipeline.generate([ids], params)
    logits = pipeline.score(ids)
    assert result.prompt_logprobs is not None and len(result.prompt_logprobs) == length
    assert result.prompt_logprobs[0] is None
    for place, found in enumerate(result.prompt_logprobs[1:], 1):
        wanted = oracle.logprobs(logits[place - 1])
        assert found is not None
        assert found.logprob == pytest.approx(wanted[ids[place]], abs=1e-4)
        assert [token for token, _ in found.top] == oracle.top(logits[place - 1], 2)
    assert result.logprobs is None


def test_no_mix_of_requests_compiles_anything(pipeline: Pipeline, compilations: list[str]) -> None:
    for number in range(4):
        mixed = [*EVERYTHING[number:], *EVERYTHING[:number]]
        run(pipeline, requests(mixed[: 3 + 2 * number], first=1 + 5 * number))
    assert not compilations


def test_a_request_that_cannot_be_sampled_is_refused_alone(pipeline: Pipeline) -> None:
    wrong = SamplingParams(logit_bias=((96, 1.0),))
    with pytest.raises(RequestError, match=r"logit_bias=96: ids go from 0 to 95"):
        pipeline.generate([prompt(5)], wrong)
    assert pipeline.generate([prompt(5)], SamplingParams(**GREEDY))[0].usage.completion_tokens == 12

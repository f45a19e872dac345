"""Log probabilities come back with the tokens they belong to, of outputs and of prompts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine.plan import Cancel, Submit
from ds_jax.records import FinishReason, TokenEvent
from ds_jax.testing import prompt
from tests.engine import replicas

PROMPT = prompt(37, seed=1)  # two chunks
ASKED = SamplingParams(
    max_tokens=4, temperature=0, ignore_eos=True, top_logprobs=2, prompt_logprobs=1
)
PLAIN = dataclasses.replace(ASKED, top_logprobs=None, prompt_logprobs=None)


@pytest.fixture(scope="module", params=[False, True], ids=["chunks", "canonical"])
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return replicas.replica(canonical=request.param, engine={"canonical_rows": 8}, max_sequences=2)


def test_log_probabilities_are_those_of_the_scores(pipeline: Pipeline) -> None:
    # neighbours that ask for nothing, before and behind
    asked = [
        *replicas.requests([prompt(9, seed=2)], PLAIN),
        *replicas.requests([PROMPT], ASKED),
        *replicas.requests([prompt(30, seed=3)], PLAIN),
    ]
    before, found, behind = replicas.run(pipeline, asked)
    assert all(e.logprob is None and e.prompt_logprobs is None for e in [*before, *behind])
    ids = [*PROMPT, *replicas.tokens(found)]
    logits = pipeline.score(ids).astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    of_prompt = found[0].prompt_logprobs
    assert of_prompt is not None and len(of_prompt) == len(PROMPT) and of_prompt[0] is None
    for position, one in enumerate(of_prompt[1:], 1):
        assert one is not None, position
        assert abs(one.logprob - wanted[position - 1, ids[position]]) < 1e-4
        assert one.top[0][0] == wanted[position - 1].argmax()
    for number, event in enumerate(found):
        row = wanted[len(PROMPT) + number - 1]
        assert event.logprob is not None
        assert abs(event.logprob.logprob - row[event.token_id]) < 1e-4
        assert [i for i, _ in event.logprob.top] == np.argsort(-row, kind="stable")[:2].tolist()
    assert [e.prompt_logprobs for e in found[1:]] == [None] * 3


def test_a_cancelled_prompt_leaves_nothing_to_the_next_request_of_its_id(
    pipeline: Pipeline,
) -> None:
    """The engine's thread waits; the loop is turned by hand, so that the cancel hits a flight."""
    replicas.run(pipeline, replicas.requests([PROMPT], ASKED))  # programs: overlap needs them
    (request,) = replicas.requests([PROMPT], ASKED)
    told: list[TokenEvent] = []
    for events in ([Submit(request, 0)], [], [Cancel(request.request_id)]):
        pipeline.loop.turn(events, told.extend)
    assert not pipeline.loop.is_idle, "its last step is still in flight"
    while not pipeline.loop.is_idle:
        pipeline.loop.turn([], told.extend)
    assert [e.finish_reason for e in told] == [FinishReason.CANCELLED]
    (events,) = replicas.run(pipeline, [dataclasses.replace(request, params=PLAIN)])
    assert all(e.prompt_logprobs is None for e in events)

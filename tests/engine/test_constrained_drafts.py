"""Drafts under grammars: the tokens are those of plain decoding under the same masks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.grammar_request import GrammarRequest
from ds_jax.structured.matcher import Matcher
from ds_jax.testing import prompt
from tests.engine import constrained, replicas
from tests.engine.constrained import KINDS, params
from tests.engine.replicas import run, tokens

SIZES: dict[str, Any] = {"drafter": True, "max_context": 128}
WIDE = r"[ -~]{20,60}"  # half of what the model says anyway: its drafts are often allowed

BEGIN = 65


@pytest.fixture(scope="module")
def plain() -> Iterator[Pipeline]:
    pipeline = constrained.speaker(**SIZES)
    yield pipeline
    pipeline.close()


@pytest.fixture(scope="module")
def drafting() -> Iterator[Pipeline]:
    pipeline = constrained.speaker(nextn=5, **SIZES)
    yield pipeline
    pipeline.close()


def both(plain: Pipeline, drafting: Pipeline, settings: list[SamplingParams]) -> list[list[int]]:
    """The tokens of requests together, which are the same with and without drafts."""
    prompts = [prompt(4 + n % 5, seed=n, vocab=256) for n in range(len(settings))]
    found = []
    for pipeline in (plain, drafting):
        pairs = zip(prompts, settings, strict=True)
        asked = [r for ids, each in pairs for r in replicas.requests([ids], each)]
        found.append(run(pipeline, asked))
    assert not [e.error for each in found for events in each for e in events if e.error]
    wanted, got = ([tokens(events) for events in each] for each in found)
    assert got == wanted
    ends = [[events[-1].finish_reason for events in each] for each in found]
    assert ends[0] == ends[1]
    return got


def test_every_kind_beside_free_requests(plain: Pipeline, drafting: Pipeline) -> None:
    """Also one that asks for more than plain sampling, and so has no drafts."""
    free = SamplingParams(max_tokens=24, seq_seed=11, ignore_eos=True)
    settings = [params(kind, n, max_tokens=90) for n, kind in enumerate(KINDS)]
    shaped = params("regex", 9, max_tokens=30, frequency_penalty=0.5, top_logprobs=1)
    # its first token is drawn again in front of a launch that draws nothing again
    biased = SamplingParams(max_tokens=4, logit_bias=((200, 99.0),), ignore_eos=True)
    greedy = dataclasses.replace(free, temperature=0.0)
    found = both(plain, drafting, [*settings, free, greedy, shaped, biased])
    assert found[-1] == [200] * 4


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_accepted_under_a_grammar(
    plain: Pipeline, drafting: Pipeline, temperature: float, overlap: bool
) -> None:
    before = drafting.stats()["drafts_accepted_total"]
    setting = SamplingParams(
        regex=WIDE, max_tokens=90, temperature=temperature, stop_token_ids=(ord("~"),)
    )
    drafting.loop.overlap = overlap
    try:
        settings = [dataclasses.replace(setting, seq_seed=n) for n in range(5)]
        outputs = both(plain, drafting, settings)
    finally:
        drafting.loop.overlap = True
    if temperature:  # a random drafter seldom knows the most likely token
        assert drafting.stats()["drafts_accepted_total"] > before
    for output in outputs:
        assert re.fullmatch(WIDE.replace("20", "0"), bytes(output).decode())


def test_forced_text_is_drafted(plain: Pipeline, drafting: Pipeline) -> None:
    """Behind the first step every one takes six tokens, though the model knows none of them."""
    text = "forced text of forty characters, or less"
    before = drafting.stats()["drafting_rounds_total"]
    setting = SamplingParams(json_schema={"const": text}, max_tokens=90)
    (output,) = both(plain, drafting, [setting])
    assert bytes(output).decode() == f'"{text}"'
    rounds = drafting.stats()["drafting_rounds_total"] - before
    assert rounds <= len(output) // 6 + 5


def test_a_grammar_starts_inside_a_window(
    plain: Pipeline, drafting: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts of which one completes the trigger, and later ones belong to the grammar."""
    begun, fill = [], Matcher.fill_rows

    def spy(self: Matcher, draft_ids: Sequence[int], rows: Any) -> int:
        count = fill(self, draft_ids, rows)
        begun.append(self.is_waiting and BEGIN in draft_ids[: max(count - 1, 0)])
        return count

    monkeypatch.setattr(Matcher, "fill_rows", spy)
    grammar = GrammarRequest("regex", WIDE, trigger_token_ids=(BEGIN,))
    settings = [SamplingParams(max_tokens=100, grammar=grammar, seq_seed=n) for n in range(12)]
    outputs = [output for output in both(plain, drafting, settings) if BEGIN in output]
    assert any(begun) and len(outputs) > 3
    for output in outputs:
        answer = bytes(output[output.index(BEGIN) + 1 :]).decode()
        assert re.fullmatch(WIDE.replace("20", "0"), answer)

"""Outputs that follow a grammar: valid however they are run, and nobody else notices."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine.loop import Loop
from ds_jax.engine.plan import Submit
from ds_jax.errors import RequestError, StepError
from ds_jax.grammar_request import GrammarRequest
from ds_jax.records import FinishReason, GenerateRequest, TokenEvent
from ds_jax.structured import kinds
from ds_jax.structured.backend import MissingLibraryError
from ds_jax.structured.matcher import GrammarFault, Matcher
from ds_jax.testing import prompt
from tests.engine import constrained, replicas
from tests.engine.constrained import KINDS, THINKING_END, check, params
from tests.engine.replicas import run, tokens

PROMPTS = [prompt(n, seed=n, vocab=256) for n in (5, 17, 9, 21, 3, 12)]
FREE = SamplingParams(max_tokens=24, seq_seed=11, ignore_eos=True)


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """Canonical, so one program runs all steps; 4 slots that share the pages of 2 contexts."""
    made = constrained.speaker(
        canonical=True, max_context=256, engine={"canonical_rows": 8}, cache={"pages": 32}
    )
    made.warm_up()
    yield made
    made.close()


def asked(settings: list[SamplingParams], **fields: Any) -> list[GenerateRequest]:
    """One request for each, with prompts of several lengths."""
    given = zip(settings, PROMPTS * len(settings), strict=False)
    return [r for p, ids in given for r in replicas.requests([ids], p, **fields)]


def mixed(count: int, **fields: Any) -> tuple[list[str], list[SamplingParams]]:
    """Kinds and parameters of constrained requests with different seeds."""
    names = [list(KINDS)[n % len(KINDS)] for n in range(count)]
    return names, [params(name, seed=n, **fields) for n, name in enumerate(names)]


def test_every_kind_ends_valid_in_a_mixed_batch(
    pipeline: Pipeline, compilations: list[str]
) -> None:
    names, settings = mixed(40)
    everything = [each for pair in zip(settings, [FREE] * 40, strict=True) for each in pair]
    found = run(pipeline, asked(everything))
    ended = [check(name, events) for name, events in zip(names, found[::2], strict=True)]
    assert sum(ended) > 30
    assert {len(tokens(events)) for events in found[1::2]} == {24}
    assert not compilations


def test_free_requests_do_not_notice_constrained_ones(pipeline: Pipeline) -> None:
    free = [dataclasses.replace(FREE, seq_seed=n) for n in range(5)]
    wanted = [tokens(events) for events in run(pipeline, asked(free))]
    settings = mixed(5, max_tokens=40)[1]
    both = [
        replicas.requests([PROMPTS[n]], each)[0]
        for n, pair in enumerate(zip(free, settings, strict=True))
        for each in pair
    ]
    found = run(pipeline, both)
    assert [tokens(events) for events in found[::2]] == wanted


def test_preemption_prefixes_and_neighbours_change_no_token(pipeline: Pipeline) -> None:
    """120 tokens each: four of them do not fit into the pages."""
    schema = {"type": "array", "items": {"enum": [0, 1]}, "minItems": 60, "maxItems": 60}
    setting = SamplingParams(json_schema=schema, max_tokens=120, seq_seed=5)
    ids = [prompt(40 + n, seed=n, vocab=256) for n in range(4)]
    before = pipeline.stats()["preemptions_total"]
    together = run(pipeline, replicas.requests(ids, setting, reuse_prefix=False))
    assert pipeline.stats()["preemptions_total"] > before
    alone = [run(pipeline, replicas.requests([each], setting))[0] for each in ids]
    hit = run(pipeline, replicas.requests(ids[:1], setting))[0]
    assert hit[-1].usage is not None and hit[-1].usage.cached_tokens > 0
    assert [tokens(events) for events in together] == [tokens(events) for events in alone]
    assert tokens(hit) == tokens(alone[0]) and len(tokens(hit)) == 120


def test_overlap_changes_no_token(pipeline: Pipeline) -> None:
    settings = mixed(8, max_tokens=30)[1]
    wanted = [tokens(events) for events in run(pipeline, asked(settings))]
    pipeline.loop.overlap = False
    try:
        assert [tokens(events) for events in run(pipeline, asked(settings))] == wanted
    finally:
        pipeline.loop.overlap = True


def test_ranks_and_other_steps_change_no_token(pipeline: Pipeline) -> None:
    """Rectangular steps over two ranks, the rows of each under masks of its own."""
    names, settings = mixed(6, max_tokens=30)
    everything = [*settings, FREE, FREE]
    wanted = [tokens(events) for events in run(pipeline, asked(everything))]
    ranks = constrained.speaker(
        mesh="ep2", max_context=256, page_tokens=256, max_sequences=2, chunk_tokens=(24,)
    )
    found = run(ranks, asked(everything))
    ranks.close()
    assert [tokens(events) for events in found] == wanted
    for name, events in zip(names, found, strict=False):
        check(name, events)


def test_a_grammar_starts_behind_the_end_of_reasoning(pipeline: Pipeline) -> None:
    started = 0
    for seed in range(6):
        grammar = dataclasses.replace(KINDS["regex"][0], trigger_token_ids=(THINKING_END,))
        # a bias makes the random model end its reasoning at all
        setting = params("regex", seed, grammar=grammar, logit_bias=((THINKING_END, 4.0),))
        events = run(pipeline, replicas.requests([PROMPTS[0]], setting))[0]
        output = tokens(events)
        assert constrained.END not in output
        if THINKING_END in output and events[-1].finish_reason is FinishReason.STOP:
            answer = output[output.index(THINKING_END) + 1 :]
            assert constrained.PAIR.fullmatch(bytes(answer).decode())
            started += 1
    assert started > 3


def test_the_form_of_deepinfer_is_followed(pipeline: Pipeline) -> None:
    """Behind the bound id nothing but the trigger comes, then the grammar."""
    so_args = {
        "schema_type": "regex",
        "schema": "[a-c]{2}",
        "trigger_token_ids": [THINKING_END, 65],
        "bound_token_id": 66,
    }
    setting = SamplingParams(
        so_args=so_args, max_tokens=200, seq_seed=1, logit_bias=((66, 5.0), (constrained.END, -100))
    )
    output = tokens(run(pipeline, replicas.requests([PROMPTS[1]], setting))[0])
    bound = output.index(66)
    assert output[bound + 1 : bound + 3] == [THINKING_END, 65]
    assert len(output) == bound + 5 and set(output[bound + 3 :]) <= set(b"abc")


def test_greedy_tokens_are_the_most_likely_ones_that_are_allowed(pipeline: Pipeline) -> None:
    setting = params("json_schema", 0, temperature=0, max_tokens=16, top_logprobs=2)
    (request,) = replicas.requests([PROMPTS[3]], setting)
    events = run(pipeline, [request])[0]
    output = tokens(events)
    logits = pipeline.score([*PROMPTS[3], *output[:-1]])[len(PROMPTS[3]) - 1 :]
    grammar = kinds.compile("json_schema", KINDS["json_schema"][0].text, pipeline.tokenizer)
    matcher = grammar.matcher()
    for row, event in zip(logits, events, strict=False):
        allowed = [i for i in range(260) if matcher.count_valid([i])]
        assert row[event.token_id] > row[allowed].max() - 1e-4
        assert event.logprob is not None  # the model's own, whatever was refused
        shifted = row - row.max()
        wanted = shifted - np.log(np.exp(shifted).sum())
        assert event.logprob.logprob == pytest.approx(wanted[event.token_id], abs=1e-4)
        matcher.accept(event.token_id)


def test_everything_else_of_sampling_goes_with_a_grammar(pipeline: Pipeline) -> None:
    shapes: list[dict[str, Any]] = [
        {"repetition_penalty": 1.4},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5, "logit_bias": ((57, 3.0),)},
        {"min_p": 0.3, "top_p": 0.8},
        {"top_k": 3, "top_logprobs": 1},
        {"prompt_logprobs": 1},
    ]
    for kind in KINDS:
        found = run(pipeline, asked([params(kind, n, **each) for n, each in enumerate(shapes)]))
        for events in found:
            check(kind, events)
    penalised = params("lark", 7, repetition_penalty=50.0, temperature=0)
    digits = tokens(run(pipeline, replicas.requests([PROMPTS[0]], penalised))[0])[1:]
    assert len(set(digits)) == len(digits)  # a digit that was said is divided away


def test_a_failed_step_takes_no_grammar_along(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = mixed(6, max_tokens=25)[1]  # two of them wait for a slot
    wanted = [tokens(events) for events in run(pipeline, asked(settings))]
    start, calls = pipeline.runner.start, []

    def fails(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("the device is gone")
        return start(*arguments)

    monkeypatch.setattr(pipeline.runner, "start", fails)
    found = run(pipeline, asked(settings))
    failed = [isinstance(events[-1].error, StepError) for events in found]
    assert 1 <= sum(failed) < 6
    for events, output, broken in zip(found, wanted, failed, strict=True):
        assert tokens(events) == output[: len(tokens(events))] if broken else output


def test_tokens_of_a_void_plan_are_taken_back(pipeline: Pipeline) -> None:
    setting = params("json_schema", 4, max_tokens=30)
    wanted = tokens(run(pipeline, replicas.requests([PROMPTS[2]], setting))[0])
    assert pipeline.grammars is not None and setting.grammar is not None
    loop = Loop(pipeline.runner, pipeline.loop.scheduler.limits)
    pending = pipeline.grammars.submit_request(setting.grammar)
    pending.result()
    events: list[TokenEvent] = []
    submit = Submit(GenerateRequest("a", tuple(PROMPTS[2]), setting), 4, None, pending)
    for step in range(6):
        loop.turn([submit] if not step else [], events.extend)
    matcher = loop._constraints._held["a"].matcher
    matcher.accept(next(i for i in range(260) if matcher.count_valid([i])))
    while not loop.is_idle:
        loop.turn([], events.extend)
    pipeline.restart()
    assert tokens(events) == wanted


def test_a_dead_end_ends_its_request_alone(pipeline: Pipeline) -> None:
    dead = SamplingParams(grammar=GrammarRequest("lark", 'start: "ab" x\nx: x "c"'), max_tokens=9)
    good = params("regex", 5)
    wanted = tokens(run(pipeline, replicas.requests([PROMPTS[0]], good))[0])
    found = run(pipeline, replicas.requests([PROMPTS[0]] * 1, dead) + asked([good, FREE]))
    assert isinstance(found[0][-1].error, StepError)
    assert found[0][-1].finish_reason is FinishReason.ERROR
    assert "dead end" in str(found[0][-1].error)
    assert tokens(found[1]) == wanted and len(tokens(found[2])) == 24


def test_a_fault_of_the_parser_ends_its_request_alone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = Matcher.fill_row

    def fails(self: Matcher, row: Any) -> None:
        if self.length == 2 and bad(self):
            raise GrammarFault("the grammar's parser stopped: too many items")
        fill(self, row)

    def bad(matcher: Matcher) -> bool:
        probe = matcher.fork()
        return probe.count_valid([ord("=")]) == 1 or probe.count_valid([ord("a")]) == 1

    names = ["regex", "lark", "json_schema"]
    settings = [params(name, n, max_tokens=25) for n, name in enumerate(names)]
    wanted = [tokens(events) for events in run(pipeline, asked(settings))]
    monkeypatch.setattr(Matcher, "fill_row", fails)
    found = run(pipeline, asked(settings))
    assert "too many items" in str(found[0][-1].error) and tokens(found[0]) == wanted[0][:2]
    assert [tokens(events) for events in found[1:]] == wanted[1:]


class TestCompiling:
    """What happens while a grammar is not there."""

    @pytest.fixture
    def gate(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """Compilations of texts that begin with `slow` wait until it is set."""
        event, compile_ = threading.Event(), kinds.compile

        def slowly(kind: str, text: str, *args: Any, **options: Any) -> Any:
            assert threading.current_thread().name.startswith("grammar")
            if text.startswith("slow"):
                assert event.wait(60)
            return compile_(kind, text, *args, **options)

        monkeypatch.setattr(kinds, "compile", slowly)
        yield event
        event.set()

    def test_others_do_not_wait(self, pipeline: Pipeline, gate: threading.Event) -> None:
        slow = SamplingParams(regex="slow[0-9]", seq_seed=1)
        order: list[str] = []
        requests = [*replicas.requests([PROMPTS[0]], slow), *asked([FREE, params("lark", 1)])]
        for event in pipeline.engine.run(requests):
            if event.finish_reason is not None:
                order.append(event.request_id)
                if len(order) == 2:
                    gate.set()
        assert order[-1] == requests[0].request_id

    def test_a_request_that_waits_can_be_aborted_and_has_its_deadline(
        self, pipeline: Pipeline, gate: threading.Event
    ) -> None:
        (first,) = replicas.requests([PROMPTS[0]], SamplingParams(regex="slow1"))
        (late,) = replicas.requests([PROMPTS[0]], SamplingParams(regex="slow2"), deadline_s=0.05)
        reasons: dict[str, FinishReason | None] = {}
        for event in pipeline.engine.run([first, late]):
            assert event.token_id is None
            reasons[event.request_id] = event.finish_reason
            if event.request_id == late.request_id:
                pipeline.engine.abort(first.request_id)
        assert reasons[first.request_id] is FinishReason.CANCELLED
        assert reasons[late.request_id] is FinishReason.DEADLINE
        assert pipeline.engine.wait_until_drained(10)
        pipeline.engine.resume()
        gate.set()

    @pytest.mark.parametrize(
        ("setting", "reason"),
        [
            ({"regex": "(("}, "no regular expression"),
            ({"ebnf": 'root ::= "a" root'}, "no text comes out of the rule 'root'"),
            ({"json_schema": {"not": {}}}, "'not' cannot be enforced"),
            (
                {"json_schema": {"type": "string", "minLength": 3, "maxLength": 1}},
                "greater than maxLength",
            ),
        ],
    )
    def test_a_grammar_that_cannot_be_is_refused_alone(
        self, pipeline: Pipeline, setting: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(RequestError, match=reason) as caught:
            pipeline.generate([PROMPTS[0]], SamplingParams(**setting))
        assert caught.value.status == 400
        found = run(pipeline, asked([SamplingParams(**setting), FREE]))
        assert isinstance(found[0][-1].error, RequestError) and len(tokens(found[1])) == 24


def test_what_a_replica_cannot_constrain_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(RequestError, match="needs the model's tokenizer"):
        replicas.one_layer().generate([[0, 7]], SamplingParams(regex="a"))
    grammar = GrammarRequest("regex", "a", trigger_token_ids=(260,))
    with pytest.raises(RequestError, match="trigger_token_ids=260: ids go from 0 to 259"):
        pipeline.generate([PROMPTS[0]], SamplingParams(grammar=grammar))


def test_a_missing_library_is_told_to_the_caller(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise MissingLibraryError("install ds_jax[structured]")

    monkeypatch.setattr(kinds, "compile", missing)
    with pytest.raises(RequestError, match=r"install ds_jax\[structured\]") as caught:
        pipeline.generate([PROMPTS[0]], SamplingParams(regex="never compiled before"))
    assert caught.value.status == 501


def test_a_step_without_constrained_rows_runs_no_program_more(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nobody asked for a mask")

    monkeypatch.setattr(pipeline.runner.sampler, "sample_masked", never)
    assert len(tokens(run(pipeline, asked([FREE]))[0])) == 24

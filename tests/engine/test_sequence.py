"""A sequence's events: numbered, complete, and exactly one of them final."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

import pytest

from ds_jax.engine.sequence import Sequence
from ds_jax.engine.stop import StopMatcher
from ds_jax.errors import StepError
from ds_jax.kvcache.keys import KeyChain, root
from ds_jax.records import FinishReason, GenerateRequest, SamplingParams, TokenEvent, TokenLogprob
from tests.engine.test_stop import Bytes

END = 0


def make(limit: int = 5, stops: tuple[str, ...] = (), **changes: Any) -> Sequence:
    request = GenerateRequest("r", (7, 8), SamplingParams(stop=stops))
    return Sequence(
        request=request,
        seed=1,
        number=0,
        limit=limit,
        ends=frozenset({END}),
        chain=KeyChain(root(b"", "", 4), 4),
        matcher=StopMatcher(stops, Bytes()) if stops else None,
        **changes,
    )


def ids(events: Many[TokenEvent]) -> list[int | None]:
    assert [e.index for e in events if e.token_id is not None] == list(
        range(events[0].index, events[0].index + sum(e.token_id is not None for e in events))
    )
    return [e.token_id for e in events]


def test_several_tokens_of_one_step_are_numbered() -> None:
    sequence = make()
    assert ids(sequence.receive([5])) == [5]
    events = sequence.receive([6, 7])
    assert [(e.index, e.token_id, e.finish_reason) for e in events] == [(1, 6, None), (2, 7, None)]
    assert sequence.tokens == [7, 8, 5, 6, 7]


@pytest.mark.parametrize("stops", [(), ("XY",)])
def test_accepted_drafts_are_marked(stops: tuple[str, ...]) -> None:
    sequence = make(stops=stops)
    events = [*sequence.receive([5, 6, 9], None, [0.75, 0.5]), *sequence.receive([7])]
    assert ids(events) == [5, 6, 9, 7]
    assert [e.draft for e in events] == [0.75, 0.5, None, None]
    assert make(limit=2).receive([5, 6, 9], None, [0.75, 0.5])[-1].draft == 0.5


def test_an_end_token_inside_a_step_drops_what_follows() -> None:
    events = make().receive([5, END, 6])
    assert ids(events) == [5]
    assert events[-1].finish_reason is FinishReason.STOP
    alone = make().receive([END])
    assert [(e.index, e.token_id, e.finish_reason) for e in alone] == [(0, None, FinishReason.STOP)]


@pytest.mark.parametrize("step", [1, 3, 9])
def test_the_last_token_carries_the_reason(step: int) -> None:
    sequence, events = make(limit=3), list[TokenEvent]()
    tokens = [4, 5, 6, 7, 8, 9, 4, 5, 6]
    while not any(e.finish_reason for e in events):
        events += sequence.receive(tokens[:step])
        tokens = tokens[step:]
    assert len(ids(events)) == 3
    assert [e.finish_reason for e in events] == [None, None, FinishReason.LENGTH]
    assert events[-1].usage is not None
    assert events[-1].usage.total_tokens == 5


def test_ids_log_probabilities_and_text_end_together() -> None:
    sequence = make(limit=20, stops=("XY",))
    text = b"abXYcd"
    logprobs = [TokenLogprob(-float(n)) for n in range(len(text))]
    events = sequence.receive(list(text), logprobs)
    assert ids(events) == [ord("a"), ord("b")]
    assert "".join(e.text or "" for e in events) == "ab"
    assert [e.logprob for e in events if e.token_id is not None] == logprobs[:2]
    assert events[-1].matched_stop == "XY"
    assert events[-1].finish_reason is FinishReason.STOP


def test_held_text_is_shown_when_the_length_ends_it() -> None:
    events = make(limit=2, stops=("abc",)).receive(list(b"ab"))
    assert "".join(e.text or "" for e in events) == "ab"
    assert events[-1].finish_reason is FinishReason.LENGTH
    assert events[-1].matched_stop is None


def test_a_failure_is_told() -> None:
    (event,) = make().end(FinishReason.ERROR, error=StepError("broken"))
    assert event.finish_reason is FinishReason.ERROR
    assert str(event.error) == "broken"


def test_waiting_again_keeps_the_outputs() -> None:
    sequence = make()
    sequence.receive([5, 6])
    sequence.pages, sequence.slot, sequence.computed = [1, 2], 0, 4
    sequence.wait_again()
    assert sequence.tokens == [7, 8, 5, 6]
    assert (sequence.slot, sequence.pages, sequence.computed) == (-1, [], 0)
    assert ids(sequence.receive([9])) == [9]
    assert sequence.received == 3

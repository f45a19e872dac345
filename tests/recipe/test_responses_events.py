"""Responses events: items, their numbers, names in namespaces, custom tools, and the response."""

from __future__ import annotations

from typing import Any

import pytest

from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    Delta,
    Finished,
    ReasoningDelta,
    TokenLogprob,
)
from ds_jax.recipe.response_store import MemoryResponseStore
from ds_jax.recipe.responses_generator import ResponsesChunkGenerator
from ds_jax.recipe.responses_reply import ResponsesEcho, ResponsesReply
from ds_jax.recipe.responses_response import ResponsesResponse
from tests.recipe.delta_streams import bodies, events, finished, whole

LOGPROB = TokenLogprob("H", -0.5, (72,))
TURN: list[Delta] = [
    ReasoningDelta("th"),
    ReasoningDelta("ink"),
    ContentDelta("H", (LOGPROB,)),
    ContentDelta("i"),
    CallStart("call_0", "ns::f"),
    CallArguments('{"a": '),
    CallArguments("1}"),
    CallStart("call_1", "apply_patch"),
    CallArguments('{"input": "a\\'),
    CallArguments('nb"}'),
    CallStart("call_2", "tool_search"),
    CallArguments('{"q": 1.50}'),
]
REPLY = ResponsesReply(
    namespace_tool_map={"ns::f": ("ns", "f")},
    custom_tools=frozenset({"apply_patch"}),
    tool_search=True,
)


def generator(reply: ResponsesReply | None = REPLY) -> ResponsesChunkGenerator:
    return ResponsesChunkGenerator("id", "m", reply)


def response() -> ResponsesResponse:
    return ResponsesResponse("id", "m", 5, 0, 0)


def output(deltas: list[Delta], end: Finished | None = None) -> list[dict[str, Any]]:
    return whole(response(), events(generator(), deltas, end))["output"]


@pytest.mark.parametrize("size", range(len(TURN) + 1))
def test_items_open_and_close_in_order(size: int):
    made = bodies(events(generator(), TURN[:size]))
    assert [event["sequence_number"] for event in made] == list(range(len(made)))
    added = [event for event in made if event["type"] == "response.output_item.added"]
    done = [event for event in made if event["type"] == "response.output_item.done"]
    places = list(range(len(added)))
    assert [event["output_index"] for event in added] == places
    assert [event["output_index"] for event in done] == places
    final = made[-1]["response"]
    assert final["output"] == [event["item"] for event in done]
    assert len({item["id"] for item in final["output"]}) == len(added)
    keys = [[key for key in event if key != "type"] for event in made]
    assert all(names == sorted(names) for names in keys)


@pytest.mark.parametrize("size", range(len(TURN) + 1))
def test_the_response_equals_the_last_event(size: int):
    made = events(generator(), TURN[:size])
    final = bodies(made)[-1]["response"]
    assert whole(response(), made) == final


def test_items_of_every_kind():
    entry = {"token": "H", "logprob": -0.5, "bytes": [72], "top_logprobs": []}
    reasoning, message, function, custom, search = output(TURN)
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "think"}]
    assert message["phase"] == "commentary"
    assert message["content"] == [
        {"type": "output_text", "annotations": [], "logprobs": [entry], "text": "Hi"}
    ]
    assert (function["namespace"], function["name"]) == ("ns", "f")
    assert function["arguments"] == '{"a": 1}'
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "a\nb")
    assert (search["status"], search["arguments"]) == ("completed", {"q": 1.5})


@pytest.mark.parametrize(
    ("reason", "details"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
@pytest.mark.parametrize("size", range(1, len(TURN) + 1))
def test_what_was_cut_short_is_incomplete(size: int, reason: str, details: str):
    made = events(generator(), TURN[:size], finished(reason))
    final = whole(response(), made)
    assert (final["status"], final["incomplete_details"]) == ("incomplete", {"reason": details})
    statuses = [item["status"] for item in final["output"]]
    assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]
    if final["output"][-1]["type"] == "tool_search_call":
        assert final["output"][-1]["arguments"] == {}


def test_a_search_that_is_no_json_is_incomplete():
    (item,) = output([CallStart("call_0", "tool_search"), CallArguments('{"q": nan}')])
    assert (item["status"], item["arguments"]) == ("incomplete", {})


def test_names_are_split_by_the_map_or_at_the_colons():
    def name(made: ResponsesChunkGenerator) -> tuple[str | None, str]:
        item = bodies(events(made, [CallStart("call_0", "a::b::c")]))[2]["item"]
        return item.get("namespace"), item["name"]

    assert name(generator()) == (None, "a::b::c")
    assert name(generator(None)) == ("a", "b::c")
    assert name(generator(None).with_echo(ResponsesEcho())) == ("a", "b::c")
    assert name(generator(None).with_namespace_tool_map({})) == (None, "a::b::c")
    assert name(generator().with_namespace_tool_map({"a::b::c": ("x", "y")})) == ("x", "y")


def test_settings_come_back_as_they_were_sent():
    echo = ResponsesEcho(temperature=0.30000001192092896, top_p=1.0, user="u", tools=({"a": 1.0},))
    first = events(generator().with_echo(echo), [])[0].to_json()
    assert '"temperature":0.3,"text"' in first
    assert '"tools":[{"a":1.0}],' in first
    assert '"user":"u","metadata":{}}' in first


def test_usage_counts_the_cache_within_the_input():
    final = whole(response(), events(generator(), [], finished(reasoning_tokens=None)))
    assert final["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 17,
    }


def test_a_kept_response_can_be_continued():
    store = MemoryResponseStore()
    question = {"role": "user", "content": "hi"}
    reply = ResponsesReply(
        store=store, previous_response_id="earlier", input_items=(question,), tool_search=True
    )
    made = events(generator(reply), TURN[:4])
    final = bodies(made)[-1]["response"]
    assert (final["store"], final["previous_response_id"]) == (True, "earlier")
    kept = store.get("id")
    assert kept is not None
    assert kept.previous_response_id == "earlier"
    assert list(kept.items) == [question, *final["output"]]

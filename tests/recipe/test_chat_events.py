"""Chat Completions chunks: shapes that clients rely on, several choices, and the whole response."""

from __future__ import annotations

from typing import Any

import pytest

from ds_jax import recipe
from ds_jax.recipe import chat_events
from ds_jax.recipe.chat_events import ChatCompletionChunkGenerator, UsageTally
from ds_jax.recipe.chat_response import ChatCompletionResponse
from ds_jax.recipe.deltas import CallArguments, CallStart, ContentDelta, Delta, ReasoningDelta
from tests.recipe.delta_streams import bodies, events, finished, whole

TURN: list[Delta] = [
    ReasoningDelta("th"),
    ReasoningDelta("ink"),
    ContentDelta("Hi"),
    CallStart("call_0", "f"),
    CallArguments('{"a": '),
    CallArguments("1}"),
    CallStart("call_1", "g"),
    CallArguments("{}"),
]


def generator(
    index: int = 0, tally: UsageTally | None = None, **changes: Any
) -> ChatCompletionChunkGenerator:
    options: dict[str, Any] = {
        "thinking_mode": True,
        "starts_in_reasoning": True,
        "usage_in_every_chunk": False,
    }
    return ChatCompletionChunkGenerator(
        "id", "m", **(options | changes), index=index, tally=tally, created=5
    )


def response() -> ChatCompletionResponse:
    return ChatCompletionResponse("id", "m", 5, 0, 0)


def test_a_chunk_is_spelled_in_this_order():
    head = '{"id":"id","object":"chat.completion.chunk","created":5,"model":"m",'
    first, second, _ = events(generator(), [ContentDelta("x\n")])
    assert first.to_json() == (
        f'{head}"system_fingerprint":"fp","choices":[{{"index":0,"delta":{{"role":"assistant",'
        '"content":null,"reasoning_content":""},"logprobs":null,"finish_reason":null}]}'
    )
    assert second.to_json() == (
        f'{head}"system_fingerprint":"fp","choices":[{{"index":0,"delta":{{"content":"x\\n",'
        '"reasoning_content":null},"logprobs":null,"finish_reason":null}]}'
    )


@pytest.mark.parametrize("deltas", [[], TURN[:2], TURN[:3], TURN], ids=len)
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls"])
def test_every_chunk_has_a_delta_and_only_the_last_one_a_reason(deltas: list[Delta], reason: str):
    chunks = bodies(events(generator(), deltas, finished(reason)))
    assert all(chunk["choices"][0]["delta"] for chunk in chunks)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [reason]
    assert [("usage" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_a_stop_string_is_an_ordinary_stop():
    assert bodies(events(generator(), [], finished("stop_sequence", "END")))[-1]["choices"][0] == {
        "index": 0,
        "delta": {"content": "", "reasoning_content": None},
        "logprobs": None,
        "finish_reason": "stop",
    }


def test_unknown_reasoning_tokens_are_absent():
    usage = bodies(events(generator(), [], finished()))[-1]["usage"]
    assert "completion_tokens_details" not in usage
    usage = bodies(events(generator(), [], finished(reasoning_tokens=3)))[-1]["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_the_whole_response_has_what_the_stream_said():
    made = events(generator(), TURN, finished("tool_calls", reasoning_tokens=2))
    usage = bodies(made)[-1]["usage"]
    total = whole(response(), made)
    assert total["usage"] == usage
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    message = total["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("think", "Hi")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": "{}"},
    ]


def test_all_tokens_spent_on_reasoning_is_a_length_with_empty_content():
    made = events(generator(), TURN[:2], finished("length", reasoning_tokens=7))
    choice = whole(response(), made)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "think",
    }


def test_several_choices_share_one_usage():
    tally = UsageTally(2)
    made = [events(generator(i, tally), TURN[: 3 + i], finished()) for i in range(2)]
    assert [("usage" in bodies(chunks)[-1]) for chunks in made] == [False, True]
    total = whole(response(), [*made[1], *made[0]])
    assert [choice["index"] for choice in total["choices"]] == [0, 1]
    assert total["usage"]["completion_tokens"] == 14
    assert total["usage"]["prompt_tokens"] == 10


def test_generators_of_a_request_differ_in_their_index():
    body = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "x"}]}
    request = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions())
    made = [bodies(events(g, [])) for g in chat_events.generators(request, "id", "m", 3)]
    assert [chunks[0]["choices"][0]["index"] for chunks in made] == [0, 1, 2]
    assert len({chunks[0]["created"] for chunks in made}) == 1

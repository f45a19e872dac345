"""Messages events: blocks open and close in order, and add up to the message."""

from __future__ import annotations

from typing import Any

import pytest

from ds_jax.recipe.deltas import CallArguments, CallStart, ContentDelta, Delta, ReasoningDelta
from ds_jax.recipe.messages_events import MessagesChunkGenerator
from ds_jax.recipe.messages_response import MessagesResponse
from tests.recipe.delta_streams import bodies, events, finished, whole

TURN: list[Delta] = [
    ReasoningDelta("th"),
    ReasoningDelta("ink"),
    ContentDelta("Hi"),
    CallStart("call_0", "f"),
    CallArguments('{"a": 1.50, '),
    CallArguments('"a": 2}'),
    CallStart("call_1", "g"),
    CallArguments("{"),
]


def generator(thinking: bool = True) -> MessagesChunkGenerator:
    return MessagesChunkGenerator("id", "m", thinking)


def response() -> MessagesResponse:
    return MessagesResponse("id", "m", 5, 0, 0)


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("size", range(len(TURN) + 1))
def test_every_block_opens_grows_and_closes(size: int, thinking: bool):
    made = bodies(events(generator(thinking), TURN[:size]))
    assert made[0]["type"] == "message_start"
    assert [event["type"] for event in made[-2:]] == ["message_delta", "message_stop"]
    opened = [event["index"] for event in made if event["type"] == "content_block_start"]
    closed = [event["index"] for event in made if event["type"] == "content_block_stop"]
    assert opened == closed == list(range(len(opened)))
    current = -1
    for event in made:
        if event["type"] == "content_block_start":
            current += 1
        elif event["type"].startswith("content_block"):
            assert event["index"] == current
    pings = [i for i, event in enumerate(made) if event["type"] == "ping"]
    assert len(pings) == bool(opened)
    assert all(made[i - 1]["type"] == "content_block_start" for i in pings)


def test_thinking_is_open_from_the_start_and_signed_at_its_end():
    made = bodies(events(generator().with_signature("s"), [ContentDelta("x")]))
    assert [event["type"] for event in made[:5]] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
    ]
    assert made[3]["delta"] == {"type": "signature_delta", "signature": "s"}


@pytest.mark.parametrize(
    ("reason", "sequence", "want"),
    [
        ("stop", None, "end_turn"),
        ("length", None, "max_tokens"),
        ("tool_calls", None, "tool_use"),
        ("content_filter", None, "refusal"),
        ("stop_sequence", "END", "stop_sequence"),
    ],
)
def test_stop_reasons(reason: str, sequence: str | None, want: str):
    made = events(generator(), [], finished(reason, sequence))
    assert bodies(made)[-2]["delta"] == {"stop_reason": want, "stop_sequence": sequence}
    total = whole(response(), made)
    assert (total["stop_reason"], total["stop_sequence"]) == (want, sequence)


def test_the_message_has_what_the_stream_said():
    made = events(generator(), TURN)
    usage = bodies(made)[-2]["usage"]
    total = whole(response(), made)
    assert total["usage"] == usage
    assert usage == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 7,
        "service_tier": "standard",
    }
    assert total["content"] == [
        {"type": "thinking", "thinking": "think", "signature": "id"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": 2}},
        {"type": "tool_use", "id": "call_1", "name": "g", "input": {}},
    ]


def test_a_message_without_output():
    assert whole(response(), events(generator(False), []))["content"] == []
    block = {"type": "thinking", "thinking": "", "signature": "id"}
    assert whole(response(), events(generator(), []))["content"] == [block]


def test_a_flag_is_no_number():
    wrong: Any = 1
    with pytest.raises(TypeError, match="'thinking_mode'"):
        MessagesChunkGenerator("id", "m", wrong)

"""Generators and events are used once, and belong to one protocol."""

from __future__ import annotations

from typing import Any

import pytest

from ds_jax.recipe.chat_events import ChatCompletionChunkGenerator
from ds_jax.recipe.chat_response import ChatCompletionResponse
from ds_jax.recipe.deltas import ContentDelta
from ds_jax.recipe.messages_events import MessagesChunkGenerator
from ds_jax.recipe.messages_response import MessagesResponse
from ds_jax.recipe.parse import ParsingOptions
from ds_jax.recipe.responses_generator import ResponsesChunkGenerator
from ds_jax.recipe.responses_reply import ResponsesEcho
from ds_jax.recipe.responses_response import ResponsesResponse
from ds_jax.recipe.stream import StreamProcessor
from tests.recipe.delta_streams import events


def chat() -> Any:
    return ChatCompletionChunkGenerator(
        "id", "m", thinking_mode=True, starts_in_reasoning=True, usage_in_every_chunk=True
    )


def messages() -> Any:
    return MessagesChunkGenerator("id", "m", True)


def responses() -> Any:
    return ResponsesChunkGenerator("id", "m")


PROTOCOLS: list[Any] = [
    (chat, ChatCompletionResponse),
    (messages, MessagesResponse),
    (responses, ResponsesResponse),
]


@pytest.mark.parametrize(("generator", "response"), PROTOCOLS)
def test_an_event_is_accumulated_once(generator: Any, response: Any):
    total = response("id", "m", 1, 2, 3)
    for event in events(generator(), [ContentDelta("x")]):
        total.accumulate(event)
        for use in (total.accumulate, response.sse_event_name, lambda used: used.to_json()):
            with pytest.raises(RuntimeError, match="protocol chunk has been consumed"):
                use(event)


@pytest.mark.parametrize(("generator", "response"), PROTOCOLS)
def test_an_event_of_another_protocol_is_refused(generator: Any, response: Any):
    event = events(generator(), [])[0]
    for _, other in PROTOCOLS:
        if other is not response:
            with pytest.raises(TypeError, match=f"'{type(event).__name__}' object cannot be cast"):
                other("id", "m", 1, 2, 3).accumulate(event)
            with pytest.raises(TypeError, match="cannot be cast"):
                other.sse_event_name(event)
    assert event.to_json()


@pytest.mark.parametrize(
    ("generator", "use"),
    [
        (chat, lambda used: StreamProcessor(used, ParsingOptions())),
        (messages, lambda used: used.with_signature("s")),
        (responses, lambda used: used.with_echo(ResponsesEcho())),
        (responses, lambda used: used.with_namespace_tool_map({"a": ("b", "c")})),
    ],
)
def test_a_generator_is_used_once(generator: Any, use: Any):
    used = generator()
    use(used)
    for again in (use, lambda used: StreamProcessor(used, ParsingOptions())):
        with pytest.raises(RuntimeError, match="chunk generator has been consumed"):
            again(used)


def test_a_wrong_argument_leaves_the_generator_usable():
    used = responses()
    wrong: list[Any] = [5, {"a": ["b", "c"]}, {"a": ("b",)}, {1: ("b", "c")}]
    for value in wrong:
        with pytest.raises((TypeError, ValueError)):
            used.with_namespace_tool_map(value)
    with pytest.raises(TypeError, match="'echo'"):
        used.with_echo(None)
    assert used.with_echo(ResponsesEcho())


@pytest.mark.parametrize(("generator", "response"), PROTOCOLS)
def test_responses_refuse_numbers_outside_64_bits(generator: Any, response: Any):
    for numbers in [(-1, 0, 0), (0, -1, 0), (0, 0, 2**64)]:
        with pytest.raises(OverflowError):
            response("id", "m", *numbers)
    with pytest.raises(TypeError, match="'created'"):
        response("id", "m", 1.5, 0, 0)
    assert response("id", "m", 2**64 - 1, 2**63, 0).to_json()


@pytest.mark.parametrize(("generator", "response"), PROTOCOLS)
def test_names_of_server_sent_events(generator: Any, response: Any):
    for event in events(generator(), [ContentDelta("x")]):
        name = response.sse_event_name(event)
        assert (
            name is None if response is ChatCompletionResponse else f'"{name}"' in event.to_json()
        )
    done = "[DONE]" if response is ChatCompletionResponse else None
    assert response.sse_done_data() == done

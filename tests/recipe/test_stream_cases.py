"""Streams of all protocols are the library's, byte by byte, and mean the same at every cut."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from ds_jax import recipe
from ds_jax.recipe.tokenizer import Tokenizer
from tests.recipe import golden_cases, random_streams, strategies, stream_cases
from tests.recipe.parsing import END, V4, V41, block, cuts, tokenizer

FILES = sorted((golden_cases.GOLDEN / "stream").glob("*.jsonl"))
TOKENIZER = str(golden_cases.GOLDEN / "tokenizer_514.json")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_streams_match_recorded_ones(file: pathlib.Path):
    cases = golden_cases.read(f"stream/{file.name}")
    assert cases
    for case in cases:
        assert stream_cases.run(recipe, case["input"]) == case["expected"], case["id"]


def test_any_protocol_can_answer_a_request_of_another():
    case = golden_cases.read("stream/chat.open.jsonl")[0]["input"]
    for protocol in stream_cases.RESPONSES:
        outcome = stream_cases.run(recipe, case, protocol)
        assert "Hello" in outcome["response"]


PROMPTS: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "x"}]},
    "responses": {"input": "x"},
    "messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 50},
}
TOOLS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": {"name": "f"}},
    "responses": {"type": "function", "name": "f"},
    "messages": {"name": "f", "input_schema": {"type": "object"}},
}
MODELS = {V4: "DeepSeek-V4-Pro", V41: "DeepSeek-V4.1-Flash"}
FORMS = pytest.mark.parametrize("form", MODELS, ids=["v4", "v41"])
PROTOCOLS = pytest.mark.parametrize("protocol", PROMPTS)
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
ANSWER = tokenizer().encode(f"I should greet.{END}Hi")
REASONING_TOKENS = len(tokenizer().encode("I should greet."))
USAGES: dict[str, dict[str, Any]] = {
    "chat": {
        "prompt_tokens": 10,
        "completion_tokens": len(ANSWER),
        "total_tokens": 10 + len(ANSWER),
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "prompt_cache_hit_tokens": 4,
        "prompt_cache_miss_tokens": 6,
    },
    "responses": {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": len(ANSWER),
        "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "total_tokens": 10 + len(ANSWER),
    },
    "messages": {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": len(ANSWER),
        "service_tier": "standard",
    },
}


def answered(
    protocol: str, chunks: list[Any], finish: str = "stop", form: str = V41, **fields: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events and the whole response for an output of ids or of text."""
    given = [
        {"text": data, "n": 1} if isinstance(data, str) else {"tokens": data} for data in chunks
    ]
    outcome = stream_cases.run(
        recipe,
        {
            "protocol": protocol,
            "body": {"model": MODELS[form], **PROMPTS[protocol], **fields},
            "chunks": [
                {"ready": {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}},
                *given,
                {"finish": finish},
            ],
            "tokenizer": "tiny",
        },
    )
    return [json.loads(text) for _, text in outcome["events"]], json.loads(outcome["response"])


def told(protocol: str, event: dict[str, Any]) -> tuple[str, str]:
    """Reasoning and answer in one event."""
    if protocol == "chat":
        delta = event["choices"][0]["delta"]
        return delta.get("reasoning_content") or "", delta.get("content") or ""
    if protocol == "responses":
        kind, text = event["type"], event.get("delta", "")
        reasoning, answer = "response.reasoning_text.delta", "response.output_text.delta"
        return text * (kind == reasoning), text * (kind == answer)
    delta = event.get("delta", {})
    return delta.get("thinking", ""), delta.get("text", "")


def held(protocol: str, response: dict[str, Any]) -> tuple[str, str]:
    """Reasoning and answer of a whole response."""
    if protocol == "chat":
        message = response["choices"][0]["message"]
        return message["reasoning_content"], message["content"]
    if protocol == "responses":
        reasoning, message = response["output"]
        assert (reasoning["type"], message["type"]) == ("reasoning", "message")
        return reasoning["content"][0]["text"], message["content"][0]["text"]
    thinking, text = response["content"]
    return thinking["thinking"], text["text"]


@PROTOCOLS
@STREAMED
def test_reasoning_comes_before_the_answer_at_every_cut(protocol: str, streamed: bool):
    for chunks in cuts(ANSWER):
        events, response = answered(protocol, chunks, stream=streamed)
        pairs = [told(protocol, event) for event in events]
        want = ("I should greet.", "Hi")
        assert tuple("".join(texts) for texts in zip(*pairs, strict=True)) == want
        assert held(protocol, response) == want
        begun = [bool(answer) for reasoning, answer in pairs if reasoning or answer]
        assert begun == sorted(begun)


@PROTOCOLS
@STREAMED
def test_usage_is_the_same_in_events_and_response_at_every_cut(protocol: str, streamed: bool):
    for chunks in cuts(ANSWER):
        events, response = answered(protocol, chunks, stream=streamed)
        last = events[-2] if protocol == "messages" else events[-1]
        usage = last["response"]["usage"] if protocol == "responses" else last["usage"]
        assert usage == response["usage"] == USAGES[protocol]
        if protocol == "messages":
            assert events[0]["message"]["usage"] == {**usage, "output_tokens": 0}


def test_chat_chunks_have_one_shape_at_every_cut():
    for chunks in cuts(ANSWER):
        events, _ = answered("chat", chunks, stream=True)
        choices = [event["choices"][0] for event in events]
        assert {tuple(choice) for choice in choices} == {
            ("index", "delta", "logprobs", "finish_reason")
        }
        assert all("content" in choice["delta"] for choice in choices)
        reasons = [choice["finish_reason"] for choice in choices]
        assert reasons == [None] * (len(reasons) - 1) + ["stop"]
        assert ["usage" in event for event in events] == [bool(reason) for reason in reasons]


def calls(protocol: str, response: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and arguments of the calls of a whole response."""
    if protocol == "chat":
        for call in response["choices"][0]["message"].get("tool_calls", []):
            yield call["function"]["name"], json.loads(call["function"]["arguments"])
    elif protocol == "responses":
        for item in response["output"]:
            if item["type"] == "function_call":
                yield item["name"], json.loads(item["arguments"])
    else:
        for part in response["content"]:
            if part["type"] == "tool_use":
                yield part["name"], part["input"]


@FORMS
@PROTOCOLS
def test_arguments_keep_their_types_at_every_cut(protocol: str, form: str):
    output = END + block(form, ("f", [("bg", "false", "true"), ("cmd", "true", "true 2>&1")]))
    for chunks in cuts(output):
        _, response = answered(protocol, chunks, form=form, tools=[TOOLS[protocol]])
        assert list(calls(protocol, response)) == [("f", {"bg": True, "cmd": "true 2>&1"})]


@FORMS
@PROTOCOLS
def test_an_output_cut_by_length_is_never_told_as_complete(protocol: str, form: str):
    output = END + block(form, ("f", [("text", "true", "long text")]))
    for size in range(len(output)):
        for chunks in ([output[:size]], [*output[:size]]):
            _, response = answered(protocol, chunks, "length", form, tools=[TOOLS[protocol]])
            if protocol == "chat":
                assert response["choices"][0]["finish_reason"] == "length"
            elif protocol == "responses":
                assert response["status"] == "incomplete"
                assert all(item["status"] == "incomplete" for item in response["output"])
            else:
                assert response["stop_reason"] == "max_tokens"


@FORMS
def test_a_named_function_is_the_one_call_at_every_cut(form: str):
    opening, rest = block(form, ("f", [("query", "true", "SELECT 1")])).split("\n", 1)
    fields = {
        "tools": [TOOLS["chat"], {"type": "function", "function": {"name": "g"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "thinking": {"type": "disabled"},
    }
    body = {"model": MODELS[form], **PROMPTS["chat"], **fields}
    converted = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions())
    encoding = recipe.DeepseekV41Encoding() if form == V41 else recipe.DeepseekV4Encoding()
    prompt = encoding.render_conversation(converted.conversation).prompt
    assert prompt.endswith(f"{END}\n\n{opening}\n")
    for chunks in cuts(rest):
        _, response = answered("chat", chunks, form=form, **fields)
        assert list(calls("chat", response)) == [("f", {"query": "SELECT 1"})]
        choice = response["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "tool_calls")


@pytest.mark.skipif(
    importlib.util.find_spec("deepseek_recipe") is None,
    reason="the library to compare with is a development dependency",
)
@settings(max_examples=50, deadline=None)
@given(strategies.cases(lambda rng: random_streams.case(rng, Tokenizer.from_file(TOKENIZER))))
def test_random_streams_match_the_library(case: dict[str, object]):
    import deepseek_recipe

    for protocol in stream_cases.RESPONSES:
        if protocol != case["protocol"]:
            case = {**case, "signature": None, "namespace_tool_map": None}
        want = stream_cases.run(deepseek_recipe, case, protocol)
        assert stream_cases.run(recipe, case, protocol) == want

"""Wrong Python arguments are refused as deepseek-recipe 0.2.0 refuses them, in the same words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from ds_jax import recipe

BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x"}
DEEP = functools.reduce(lambda inner, _: [inner], range(200), 1)
CALLS: dict[str, Callable[[Any], Any]] = {
    "content": lambda lib: lib.UserMessage(5),
    "lone surrogate": lambda lib: lib.UserMessage("\ud800"),
    "string for a list": lambda lib: lib.Conversation(tools="x"),
    "number for a flag": lambda lib: lib.Conversation(thinking_mode=1),
    "number in a list": lambda lib: lib.Conversation([5]),
    "default_thinking_mode": lambda lib: lib.ConversionOptions(default_thinking_mode=1),
    "web search": lambda lib: lib.ConversionOptions(responses_web_search=1),
    "bound": lambda lib: lib.ConversionOptions(thinking_max_tokens_upper_bound=1.5),
    "alias": lambda lib: lib.ConversionOptions().with_model_alias("a", "b"),
    "models": lambda lib: lib.ConversionOptions().with_model_versions_by_name([]),
    "model": lambda lib: lib.ConversionOptions().with_model_versions_by_name({1: 2}),
    "version": lambda lib: lib.ConversionOptions().with_model_versions_by_name({"a": 2}),
    "chat options": lambda lib: lib.ChatCompletionRequest(BODY).convert(5),
    "responses options": lambda lib: lib.ResponsesRequest(BODY).convert(5),
    "messages options": lambda lib: lib.MessagesRequest(BODY).convert(5),
    "body": lambda lib: lib.ChatCompletionRequest(bytearray(b"{}")),
    "key": lambda lib: lib.ToolDefinition("a", parameters={1: 2}),
    "nan": lambda lib: lib.ToolDefinition("a", parameters=float("nan")),
    "set": lambda lib: lib.ToolDefinition("a", parameters={"a": {1}}),
    "large": lambda lib: lib.ToolDefinition("a", parameters=2**70),
    "deep": lambda lib: lib.ToolDefinition("a", parameters=DEEP),
    "id": lambda lib: lib.InferenceChunk.tokens(["a"]),
    "finish": lambda lib: lib.InferenceChunk.finish("stop"),
    "generator": lambda lib: lib.StreamProcessor(5, lib.ParsingOptions()),
    "stop": lambda lib: lib.ParsingOptions(stop_sequences="abc"),
    "stops": lambda lib: lib.ParsingOptions(stop_sequences=[5]),
    "created": lambda lib: lib.ChatCompletionResponse("a", "b", "c", 0, 0),
    "chunk": lambda lib: lib.ChatCompletionResponse("a", "b", 0, 0, 0).accumulate(5),
    "event": lambda lib: lib.ChatCompletionResponse.sse_event_name(5),
    "conversation": lambda lib: lib.DeepseekV4Encoding().render_conversation(5),
    "request": lambda lib: lib.ChatCompletionRequest.chunk_generator(5, "a", "b"),
}
SIZES: dict[str, Callable[[Any], Any]] = {
    "bound": lambda lib: lib.ConversionOptions(thinking_max_tokens_upper_bound=2**32),
    "negative bound": lambda lib: lib.ConversionOptions(non_thinking_max_tokens_upper_bound=-1),
    "count": lambda lib: lib.InferenceChunk.text("a", -1),
    "id": lambda lib: lib.InferenceChunk.tokens([2**32]),
    "created": lambda lib: lib.ChatCompletionResponse("a", "b", 2**64, 0, 0),
    "prompt tokens": lambda lib: lib.PromptUsage(prompt_tokens=2**64),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_refused_as_in_the_library(name):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    with pytest.raises((TypeError, ValueError, OverflowError, RecursionError)) as want:
        CALLS[name](library)
    with pytest.raises(want.type) as got:
        CALLS[name](recipe)
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("name", SIZES)
def test_numbers_that_do_not_fit_are_refused(name):
    with pytest.raises(OverflowError):
        SIZES[name](recipe)

"""Streams of all three protocols are byte-identical to recorded ones, and to the library itself."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest
from hypothesis import given, settings

from ds_jax import recipe
from ds_jax.recipe.tokenizer import Tokenizer
from tests.recipe import golden_cases, random_streams, strategies, stream_cases

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

"""Requests are checked once, and name the field at fault."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ds_jax import grammar_request
from ds_jax.errors import RequestError
from ds_jax.records import GenerateRequest, ImageSpan, SamplingParams


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": 1.5}, "priority=1.5: must be a whole number"),
        ({"deadline_s": 0}, "deadline_s=0: must be above 0"),
        ({"deadline_s": float("inf")}, "deadline_s=inf: must be a finite number"),
        ({"images": (ImageSpan(3, b""),)}, "images=3: must start inside the prompt"),
        ({"images": (ImageSpan(1, b"a"), ImageSpan(1, b"b"))}, "images=1: .* ascending order"),
    ],
)
def test_a_request_names_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        GenerateRequest("a", (1, 2, 3), **changes)
    assert caught.value.param == next(iter(changes))


@pytest.mark.parametrize("stop", [("",), (3,), (None,)])
def test_a_stop_string_has_a_character(stop: tuple[Any, ...]) -> None:
    with pytest.raises(RequestError, match=r"stop=.*: must be a string of at least"):
        SamplingParams(stop=stop)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_p": 1.5}, "min_p=1.5: must be from 0 to 1"),
        ({"min_p": float("nan")}, "min_p=nan: must be a finite number"),
        ({"repetition_penalty": 0}, "repetition_penalty=0: must be from 0.01 to 100"),
        ({"presence_penalty": 2.5}, "presence_penalty=2.5: must be from -2 to 2"),
        ({"frequency_penalty": -3}, "frequency_penalty=-3: must be from -2 to 2"),
        ({"frequency_penalty": True}, "frequency_penalty=True: must be a finite number"),
        ({"logit_bias": ((-1, 0.0),)}, "logit_bias=-1: must be a whole number from 0"),
        ({"logit_bias": ((3, 101.0),)}, "logit_bias=101.0: must be from -100 to 100"),
        ({"logit_bias": ((3, float("-inf")),)}, "logit_bias=-inf: must be a finite number"),
        ({"logit_bias": ((3, 1.0), (4, 1.0), (3, 2.0))}, "logit_bias=3: must name a token once"),
        (
            {"logit_bias": tuple((n, 1.0) for n in range(301))},
            "logit_bias='301 tokens': must be at most 300 tokens",
        ),
        ({"top_logprobs": 21}, "top_logprobs=21: must be a whole number from 0 to 20 or None"),
        ({"top_logprobs": True}, "top_logprobs=True: must be a whole number"),
        ({"prompt_logprobs": -1}, "prompt_logprobs=-1: must be a whole number from 0 to 20"),
    ],
)
def test_sampling_names_what_was_given_and_what_is_allowed(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        SamplingParams(**changes)
    assert caught.value.param == next(iter(changes))


@pytest.mark.parametrize(
    ("changes", "full", "counts"),
    [
        ({"temperature": 0.3, "top_p": 0.5, "top_k": 4, "seq_seed": 1}, False, False),
        ({"prompt_logprobs": 5}, False, False),
        ({"min_p": 0.1}, True, False),
        ({"logit_bias": ((1, 1.0),)}, True, False),
        ({"top_logprobs": 0}, True, False),
        ({"repetition_penalty": 1.1}, True, True),
        ({"presence_penalty": -0.1}, True, True),
        ({"frequency_penalty": 0.1}, True, True),
    ],
)
def test_sampling_knows_what_it_needs(changes: dict[str, Any], full: bool, counts: bool) -> None:
    params = SamplingParams(**changes)
    assert (params.needs_full_sampling, params.counts_tokens) == (full, counts)


def test_prompt_logprobs_compute_the_whole_prompt() -> None:
    assert GenerateRequest("a", (1,)).reuse_prefix
    assert not GenerateRequest("a", (1,), SamplingParams(prompt_logprobs=0)).reuse_prefix


def test_a_grammar_is_given_in_short_or_in_full() -> None:
    request = grammar_request.GrammarRequest("regex", "a+")
    assert SamplingParams(regex="a+").grammar == request == SamplingParams(grammar=request).grammar
    assert SamplingParams().grammar is None
    schema = {"type": "integer"}
    for given in (schema, '{"type": "integer"}'):
        found = SamplingParams(json_schema=given).grammar
        assert found is not None and (found.kind, found.options) == ("json_schema", ())
        assert json.loads(found.text) == schema
    found = SamplingParams(ebnf='root ::= "a"').grammar
    assert found is not None and found.kind == "ebnf"
    so_args = {"schema_type": "json", "schema": "{}", "trigger_token_ids": [5], "bound_token_id": 6}
    found = SamplingParams(so_args=so_args).grammar
    assert found is not None and found.options == (("strict", True),)
    assert (found.trigger_token_ids, found.bound_token_id, found.holds_end) == ((5,), 6, False)
    params = SamplingParams(regex="a+")
    assert dataclasses.replace(params, max_tokens=3).grammar == request


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"json_schema": 3}, "json_schema=3: must be a JSON Schema"),
        ({"json_schema": {"const": {1, 2}}}, "is no JSON value"),
        ({"regex": 7}, "schema=7: must be text"),
        ({"so_args": {"schema_type": "yaml"}}, "schema_type='yaml'"),
        ({"so_args": []}, "must be an object"),
        ({"regex": "a", "ebnf": "b"}, "at most one"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos=True"),
    ],
)
def test_a_grammar_that_cannot_be_read_is_refused(fields: dict, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        SamplingParams(**fields)


def test_a_grammar_request_is_checked() -> None:
    for fields, reason in (
        (("yaml", ""), "kind='yaml': must be one of json_schema"),
        (("regex", "a", (), (-1,)), "trigger_token_ids=-1"),
        (("regex", "a", (), (1,), -2), "bound_token_id=-2"),
        (("regex", "a", (), (), 2), "needs trigger_token_ids"),
    ):
        with pytest.raises(RequestError, match=reason):
            grammar_request.GrammarRequest(*fields)

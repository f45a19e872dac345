"""Texts inside events: strings, 32-bit floats and log probabilities."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_jax.recipe import event_json
from ds_jax.recipe.deltas import TokenLogprob


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-0.1, "-0.1"),
        (3.0, "3.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e12, "1500000000000.0"),
        (1e13, "1e+13"),
        (123456789.125, "123456790.0"),
        (0.949999988079071, "0.95"),
        (1e-45, "1e-45"),
        (0.5**96, "1.2621775e-29"),
        (1e-46, "0.0"),
        (1e40, "null"),
        (math.nan, "null"),
        (-math.inf, "null"),
    ],
)
def test_float32_writes_the_shortest_digits(number: float, text: str):
    assert event_json.float32(number) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_names_its_number(number: float):
    text = event_json.float32(number)
    assert struct.pack("f", float(text)) == struct.pack("f", number)


@given(st.text())
def test_quote_is_json_with_few_escapes(text: str):
    quoted = event_json.quote(text)
    assert json.loads(quoted) == text
    assert quoted == json.dumps(text, ensure_ascii=False)


def test_logprobs_hold_tokens_with_their_alternatives():
    other = TokenLogprob("&", -3.5, (38,))
    entry = TokenLogprob("\\xf0", math.nan, (240,), (other, other))
    top = '{"token":"&","logprob":-3.5,"bytes":[38]}'
    want = f'[{{"token":"\\\\xf0","logprob":null,"bytes":[240],"top_logprobs":[{top},{top}]}}]'
    assert event_json.logprobs([entry]) == want
    assert event_json.logprobs([]) == "[]"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"a": 1.50, "b": -0, "a": 1e5}', '{"a":100000.0,"b":-0.0}'),
        ('{"a": 12345678901234567890123}', '{"a":1.2345678901234568e+22}'),
        (" [] ", "[]"),
        ('{"a": ', None),
        ('{"a": 1e400}', None),
        ('{"a": "\\ud800"}', None),
        ("[" * 200 + "]" * 200, None),
        ("", None),
    ],
)
def test_respelled_reads_strictly(text: str, want: str | None):
    assert event_json.respelled(text) == want

"""Nothing a client can send raises anything but the documented errors, in any protocol."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_jax import recipe
from tests.recipe import (
    chat_requests,
    conversion_cases,
    messages_requests,
    responses_requests,
    strategies,
)

REQUESTS = [recipe.ChatCompletionRequest, recipe.ResponsesRequest, recipe.MessagesRequest]
MODELS = ("DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro")
MAKERS = {
    "chat": chat_requests.request,
    "responses": responses_requests.request,
    "messages": messages_requests.request,
}
every_protocol = pytest.mark.parametrize("request_class", REQUESTS, ids=lambda each: each.__name__)
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

_KEYS = """
model messages input role content type text tools tool_choice function name parameters strict
thinking reasoning effort image_url url source data media_type tool_calls id arguments system stop
max_tokens temperature top_p response_format json_schema schema format instructions call_id output
namespace budget_tokens stream stream_options
"""
_WORDS = """
user system assistant tool developer text image_url image json_object json_schema function auto none
required any message reasoning function_call tool_use tool_result thinking enabled disabled high f
json data:image/png;base64,AA== http://a <｜User｜>
"""
KEYS = st.sampled_from(_KEYS.split())
WORDS = st.sampled_from([*MODELS, *_WORDS.split(), "\x00", ""])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | WORDS, inner, max_size=5),
    max_leaves=25,
)


def convert(request_class: Any, body: Any) -> None:
    """Converts and renders a body; anything but a documented error escapes."""
    try:
        request = request_class(body)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return
    try:
        converted = request.convert(recipe.ConversionOptions())
    except recipe.ConversionError as error:
        assert error.status_code == 400
        assert json.loads(error.body)["error"]["message"] == str(error)
        return
    v4 = converted.model_version == recipe.ModelVersion.DeepseekV4Pro
    encoding = recipe.DeepseekV4Encoding() if v4 else recipe.DeepseekV41Encoding()
    encoding.render_conversation(converted.conversation)


def only_value_errors(request_class: Any, body: bytes | str) -> None:
    """Text is refused with ValueError alone (UnicodeEncodeError is one)."""
    try:
        request_class(body)
    except ValueError as error:
        if not isinstance(error, UnicodeEncodeError):
            assert str(error).startswith(("invalid JSON request: ", "invalid request body: "))


@every_protocol
@fuzz
@given(st.dictionaries(KEYS, VALUES), st.sampled_from(MODELS), st.booleans())
def test_random_values(request_class, fields, model, whole):
    body: dict[str, Any] = {**fields, "model": model} if whole else fields
    if whole and request_class is not recipe.ResponsesRequest:
        body.setdefault("messages", [{"role": "user", "content": "x"}])
    convert(request_class, body)
    convert(request_class, json.dumps(body))


@every_protocol
@fuzz
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_random_bytes_and_text(request_class, body):
    only_value_errors(request_class, body)


@pytest.mark.parametrize("protocol", sorted(MAKERS))
@fuzz
@given(strategies.cases(lambda rng: rng), st.integers(1, 4))
def test_damaged_bytes_of_real_requests(protocol, rng: random.Random, times):
    case = MAKERS[protocol](rng)
    if "body" in case:
        data = bytearray(json.dumps(case["body"]).encode())
    else:
        data = bytearray(
            case.get("body_text", "").encode() or bytes.fromhex(case.get("body_hex", ""))
        )
    for _ in range(times):
        place = rng.randrange(len(data) + 1)
        data[place : place + rng.choice((0, 1, 1, 9))] = rng.choice(
            (
                b"",
                b"\x00",
                b"\xff",
                b"\\ud800",
                b"[" * 200,
                b'"',
                b"{",
                b"1e999",
                b"9" * 400,
                b"null",
            )
        )
    request_class = getattr(recipe, conversion_cases.REQUESTS[protocol])
    convert(request_class, bytes(data))


@every_protocol
@pytest.mark.parametrize("place", ["messages", "input", "tools", "extra", "thinking", "system"])
@pytest.mark.parametrize(
    "text",
    [
        "[" * 127 + "]" * 127,
        "[" * 100_000,
        '{"a":' * 126 + "1" + "}" * 126,
        '{"type":"object","properties":{"a":' * 50 + "{}" + "}}" * 50,
        "1" * 5000,
        "1e999999999999",
        "-0",
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '[{"role":"user","content":"\\u0000"}]',
    ],
    ids=range(11),
)
def test_deep_huge_and_odd_values(request_class, place, text):
    body = f'{{"model":"{MODELS[0]}","messages":[],"input":"x","{place}":{text}}}'
    only_value_errors(request_class, body)
    convert(request_class, body)


@every_protocol
@pytest.mark.parametrize("depth", [60, 125])
def test_schemas_nested_as_deep_as_a_body_may_be(request_class, depth):
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth // 2 - 4):
        schema = {"type": "object", "properties": {"a": schema}, "anyOf": [True]}
    for strict in (True, False):
        tools = [
            {"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}},
            {"type": "function", "name": "f", "parameters": schema, "strict": strict},
            {"name": "f", "input_schema": schema},
        ]
        tool = tools[REQUESTS.index(request_class)]
        body = {"model": MODELS[0], "messages": [{"role": "user", "content": "x"}], "input": "x"}
        convert(request_class, {**body, "tools": [tool]})


@every_protocol
@pytest.mark.parametrize(
    "body",
    [
        *(None, 5, [], {}, {"messages": {}}, {1: 2}, {"a": {1, 2}}, {"a": b"x"}, {"a": "\ud800"}),
        *({"\ud800": 1}, {"a": float("nan")}, {"a": 2**70}, object(), bytearray(b"{}"), "\ud800"),
    ],
    ids=range(15),
)
def test_python_values_that_are_no_json(request_class, body):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        request_class(body)

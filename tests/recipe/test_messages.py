"""Messages requests: recorded conversions, and the rules they follow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_jax import recipe
from ds_jax.recipe import messages_images
from tests.recipe import conversion_cases, golden_cases

MODEL = "DeepSeek-V4.1-Flash"


@pytest.mark.parametrize(
    "case", golden_cases.read("convert/messages.open.jsonl"), ids=lambda case: case["id"]
)
def test_conversion_matches_recorded_one(case):
    got = json.loads(json.dumps(conversion_cases.run(recipe, case["input"])))
    wording = case.get("library_text", False)
    assert conversion_cases.comparable(got, library_text=wording) == conversion_cases.comparable(
        case["expected"], library_text=wording
    )


def convert(messages: Any, **fields: Any) -> recipe.ConversationRequest:
    """A request with these messages, converted with default options."""
    body = {"model": MODEL, "messages": messages, **fields}
    return recipe.MessagesRequest(body).convert(recipe.ConversionOptions())


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def asks(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "f", "input": {}}


def answers(name: str, *content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": list(content)}


def refusal(messages: Any, **fields: Any) -> str:
    """The message of the error body."""
    with pytest.raises(recipe.ConversionError) as caught:
        convert(messages, **fields)
    assert caught.value.status_code == 400
    return json.loads(caught.value.body)["error"]["message"]


def test_request_is_used_up_even_by_a_failure():
    request = recipe.MessagesRequest({"model": "nobody", "messages": []})
    assert request.model == "nobody"
    with pytest.raises(recipe.ConversionError, match="you passed nobody"):
        request.convert(recipe.ConversionOptions())
    for use in (lambda: request.model, lambda: request.convert(recipe.ConversionOptions())):
        with pytest.raises(RuntimeError, match="protocol request has been consumed"):
            use()


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([assistant(asks("b"), asks("a"))], "messages.0:`tool_use` ids were found"),
        ([assistant(asks("1")), user(text("x"), answers("1"))], "messages.1: `tool_use` ids"),
        ([assistant(asks("1"), text("x")), user(answers("1"))], "messages.0.1: `tool_use` ids"),
        ([assistant(asks("1")), assistant(text("x"))], "messages.1: `tool_use` ids"),
        ([assistant(asks("1"), asks("1"))], "messages.0.content.1: `tool_use` ids must be unique"),
        ([user(answers("1"))], "unexpected `messages.0.content.0: tool_use_id` found"),
        (
            [assistant(asks("1")), user(answers("1"), text("x"), answers("1"))],
            "messages.1.content.2: each tool_use must have a single result.",
        ),
    ],
)
def test_unpaired_calls_are_refused_with_their_place(messages, said):
    assert refusal(messages).startswith(said)


def test_missing_ids_are_sorted_by_bytes():
    ids = ["é", "z", "Z", "\U00010000", "\uffff"]
    assert "after: Z, z, é, \uffff, \U00010000. " in refusal([assistant(*map(asks, ids))])


def test_thinking_between_a_call_and_its_result_is_allowed():
    thought = {"type": "thinking", "thinking": "R", "signature": "s"}
    converted = convert([assistant(asks("1"), thought), user(answers("1"))])
    assert [m.role for m in converted.conversation.messages] == ["assistant", "tool"]
    assert converted.conversation.messages[0].reasoning_content == "R"


def test_images_stand_by_position_not_by_spelling():
    token = recipe.SpecialTokens().image
    image = {"type": "image", "source": {"type": "url", "url": "http://h/i"}}
    converted = convert([assistant(asks("1")), user(answers("1", text(token), image))])
    rendered = recipe.DeepseekV41Encoding().render_conversation(converted.conversation)
    first = rendered.prompt.index(token)
    second = rendered.prompt.index(token, first + 1)
    starts = [start for start, _ in rendered.special_ranges]
    assert first not in starts and second in starts
    assert [source.path for source in rendered.image_sources] == [
        "messages.1.content.0.tool_result"
    ]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        *(("", ""), ("AA==", "AA=="), ("AA=", "AA=="), ("AAA=====", "AAA="), ("AAAA=", "AAAA")),
        *(
            ("AA", None),
            ("A", None),
            ("AB==", None),
            ("AAB=", None),
            ("A A=", None),
            ("-_==", None),
        ),
    ],
)
def test_base64_is_strict_but_for_the_count_of_padding(given, canonical):
    assert messages_images.canonical_base64(given) == canonical


def test_control_strings_in_every_field_add_no_control_tokens():
    """But for marks of places in images, which are control tokens in the assistant's own text."""
    tokens = [spelling for _, spelling in recipe.SpecialTokens().items()]
    marks = tokens[tokens.index(recipe.SpecialTokens().ref) :]

    def prompt(words: str) -> recipe.RenderedPrompt:
        said = "".join(token for token in tokens if token in words and token not in marks)
        schema = {"type": "object", "description": words, "properties": {words: {}}}
        call = {"type": "tool_use", "id": words, "name": words, "input": {words: words}}
        messages = [
            user(text(words)),
            assistant({"type": "thinking", "thinking": said}, text(said), call),
            user(answers(words, text(words)), text(words)),
            {"role": "system", "content": words},
            user({"type": "document", "source": {"media_type": words}}),
        ]
        tool = {"name": "f", "description": words, "input_schema": schema}
        converted = convert(messages, tools=[tool], system=words)
        return recipe.DeepseekV41Encoding().render_conversation(converted.conversation)

    plain = prompt("plain")
    controls = [plain.prompt[start:end] for start, end in plain.special_ranges]
    for words in [*tokens, "".join(tokens)]:
        forged = prompt(words)
        assert [forged.prompt[start:end] for start, end in forged.special_ranges] == controls


@pytest.mark.parametrize("effort", [True, 0, 101, 3.5, "ultra-high", {}, []])
def test_effort_of_another_kind_is_refused(effort):
    with pytest.raises(ValueError, match="invalid request body: ") as caught:
        convert([user(text("x"))], output_config={"effort": effort})
    assert caught.value.path == "output_config.effort"  # pyright: ignore[reportAttributeAccessIssue]


def test_last_assistant_message_is_a_finished_turn():
    converted = convert([user(text("x")), assistant(text("The answer is"))])
    assert not converted.conversation.messages[-1].prefix
    rendered = recipe.DeepseekV41Encoding().render_conversation(converted.conversation)
    assert rendered.prompt.endswith("<｜Assistant｜><think>")


_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary() | st.text() | _ANYTHING.map(json.dumps))
def test_any_body_converts_or_gives_a_documented_error(body):
    try:
        recipe.MessagesRequest(body).convert(recipe.ConversionOptions())
    except (ValueError, recipe.ConversionError) as error:
        assert str(error)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(_ANYTHING, st.sampled_from(["messages", "tools", "system", "tool_choice", "thinking"]))
def test_any_value_of_a_field_converts_or_gives_a_documented_error(value, field):
    body = {"model": MODEL, "messages": [user(text("x"))], field: value}
    try:
        recipe.MessagesRequest(json.dumps(body)).convert(recipe.ConversionOptions())
    except (ValueError, recipe.ConversionError) as error:
        assert str(error)

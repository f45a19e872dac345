"""Chat Completions requests: recorded conversions, and the rules they follow."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from ds_jax import recipe
from ds_jax.recipe import data_url
from ds_jax.recipe.data_url import DataUrlFault
from tests.recipe import conversion_cases, golden_cases

V41, V4 = "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"
OPTIONS = recipe.ConversionOptions()
REJECT = OPTIONS.with_reasoning_content_behavior(recipe.ReasoningContentBehavior.Reject)
USER = {"role": "user", "content": "u"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "case", golden_cases.read("convert/chat.open.jsonl"), ids=lambda case: case["id"]
)
def test_recorded_requests_convert_as_recorded(case):
    got = json.loads(json.dumps(conversion_cases.run(recipe, case["input"])))
    wording = case.get("library_text", False)
    assert conversion_cases.comparable(got, library_text=wording) == (
        conversion_cases.comparable(case["expected"], library_text=wording)
    )


def convert(messages: Any = (USER,), options: Any = OPTIONS, **fields: Any) -> Any:
    """A request with these messages, converted."""
    body = {"model": V41, "messages": list(messages), **fields}
    return recipe.ChatCompletionRequest(body).convert(options)


def refused(messages: Any = (USER,), options: Any = OPTIONS, **fields: Any) -> str:
    """The message of the error body."""
    with pytest.raises(recipe.ConversionError) as caught:
        convert(messages, options, **fields)
    assert caught.value.status_code == 400
    error = json.loads(caught.value.body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"] == str(caught.value)
    return error["message"]


def assistant(content: str = "a", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def calls(*ids: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    entries = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "tool_calls": entries, **fields}


def result(id: str, content: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


# A request and its use -----------------------------------------------------------------------


def test_request_is_used_up_by_conversion_even_if_that_fails():
    request = recipe.ChatCompletionRequest({"model": "x", "messages": []})
    assert request.model == "x"
    with pytest.raises(TypeError):
        request.convert(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(recipe.ConversionError):
        request.convert(OPTIONS)
    for use in (lambda: request.model, lambda: request.convert(OPTIONS)):
        with pytest.raises(RuntimeError, match="protocol request has been consumed"):
            use()


def test_body_may_be_values_text_or_bytes_and_is_not_changed():
    body = {"model": V41, "messages": [USER], "tools": [TOOL]}
    text = json.dumps(body)
    for form in (body, text, text.encode()):
        converted = recipe.ChatCompletionRequest(form).convert(OPTIONS)
        assert [message.content for message in converted.conversation.messages] == ["u"]
    assert json.dumps(body) == text


@pytest.mark.parametrize("effort", [True, 0, 101, "turbo", 3.5, [], {}])
def test_effort_of_another_type_is_refused(effort):
    with pytest.raises(ValueError, match=r"^invalid request body: (unknown|invalid)") as caught:
        convert(reasoning_effort=effort)
    assert caught.value.path == "reasoning_effort"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("effort", "v41", "v4"),
    [
        ("low", "Reasoning Effort: 50 (", None),
        (None, "Reasoning Effort: 75 (", "Reasoning Effort: Absolute maximum "),
        ("high", "Reasoning Effort: 75 (", "Reasoning Effort: Absolute maximum "),
        ("max", "Reasoning Effort: 100 (", "Reasoning Effort: Beyond maximum "),
    ],
)
def test_each_effort_has_its_own_words_in_the_prompt(effort, v41, v4):
    for model, encoding, words in (
        (V41, recipe.DeepseekV41Encoding(), v41),
        (V4, recipe.DeepseekV4Encoding(), v4),
    ):
        conversation = convert(model=model, reasoning_effort=effort).conversation
        prompt = encoding.render_conversation(conversation).prompt
        assert prompt.count("Reasoning Effort: ") == (words is not None)
        assert words is None or words in prompt


def test_model_names_are_listed_in_byte_order():
    options = OPTIONS.with_model_alias("é", recipe.ModelVersion.DeepseekV4Pro)
    assert refused((), options, model="x") == (
        f"The supported API model names are {V4}, {V41}, é, but you passed x."
    )


# Thinking and reasoning ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch, word, on, effort",
    [
        (None, None, True, "high"),
        (None, "none", False, None),
        (None, "minimal", True, "low"),
        (None, "medium", True, "high"),
        (None, "xhigh", True, "xhigh"),
        (None, "ultra", True, "max"),
        ("enabled", "none", True, "high"),
        ("adaptive", "low", True, "low"),
        ("disabled", "max", False, None),
    ],
)
def test_thinking_follows_switch_then_effort_then_default(switch, word, on, effort):
    thinking = None if switch is None else {"type": switch}
    conversation = convert(thinking=thinking, reasoning_effort=word).conversation
    assert (conversation.thinking_mode, conversation.reasoning_effort) == (on, effort)


@pytest.mark.parametrize("given", [None, "", "R"])
def test_missing_and_empty_reasoning_read_alike_unless_rejected(given):
    history = (USER, assistant(reasoning_content=given))
    kept = convert(history).conversation.messages[1].reasoning_content
    assert kept == (given or "")
    off = convert(history, thinking={"type": "disabled"}).conversation.messages[1]
    assert off.reasoning_content is None
    if given is None:
        assert "must be passed back" in refused(history, REJECT, tools=[TOOL])
    else:
        assert convert(history, REJECT, tools=[TOOL])


def test_rejection_concerns_turns_after_the_last_user_message():
    old = (USER, calls("1"), result("1"), USER)
    assert convert(old, REJECT)
    assert "`reasoning_content`" in refused(old[:3], REJECT)
    assert convert((USER, calls("call_00_ET_x"), result("call_00_ET_x")), REJECT)
    assert convert((USER, assistant()), REJECT)


# Prefix continuation -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, reasoning, stage",
    [
        ("```python\n", None, recipe.ThinkingInitialStage.ContentContinuation),
        ("", "Step 1", recipe.ThinkingInitialStage.ReasoningContinuation),
        ("", "", recipe.ThinkingInitialStage.ReasoningStart),
    ],
)
def test_prefix_decides_where_parsing_begins(content, reasoning, stage):
    prefix = assistant(content, reasoning_content=reasoning, prefix=True)
    converted = convert((USER, prefix), stop=["```"])
    assert converted.parsing_options.thinking_initial_stage is stage
    assert converted.parsing_options.stop_sequences == ["```"]
    encoding = recipe.DeepseekV41Encoding()
    prompt = encoding.render_conversation(converted.conversation).prompt
    assert prompt.endswith(f"<think>{reasoning or ''}" + (f"</think>{content}" if content else ""))


@pytest.mark.parametrize("model", [V41, V4])
def test_last_assistant_message_without_prefix_is_a_finished_turn(model):
    conversation = convert((USER, assistant("The answer is")), model=model).conversation
    encoding = recipe.DeepseekV41Encoding() if model == V41 else recipe.DeepseekV4Encoding()
    prompt = encoding.render_conversation(conversation).prompt
    assert prompt.endswith("The answer is<｜end▁of▁sentence｜><｜Assistant｜><think>")


def test_prefix_must_be_last_and_alone():
    prefix = assistant(prefix=True)
    assert "prefix set true" in refused((USER, prefix, USER))
    assert convert((USER, prefix, {"role": "system", "content": ""}))
    assert "Function call" in refused((USER, prefix), tools=[TOOL], tool_choice="none")
    assert "Function call" in refused((USER, calls("1"), result("1"), prefix))
    json_object = {"type": "json_object"}
    assert "json_object" in refused(
        (USER, assistant("json", prefix=True)), response_format=json_object
    )


# Messages ------------------------------------------------------------------------------------


def test_blocks_are_joined_and_images_keep_their_places():
    token = "<｜image｜>"
    blocks = [{"type": "text", "text": f"{token} is text"}, image("http://a"), image("http://b")]
    (message,) = convert([{"role": "user", "content": blocks}]).conversation.messages
    assert message.content == f"{token} is text\n\n{token}\n\n{token}"
    assert [source.url for source in message.image_sources] == ["http://a", "http://b"]
    encoding = recipe.DeepseekV41Encoding()
    rendered = encoding.render_conversation(recipe.Conversation([message]))
    places = [rendered.prompt[slice(*span)] for span in rendered.special_ranges]
    assert places.count(token) == 2 and rendered.prompt.count(token) == 3


def test_v4_takes_no_image_and_checks_none():
    for block in (image("zzz"), {"type": "file"}, {"type": "file", "file_id": "x"}):
        (message,) = convert([{"role": "user", "content": [block]}], model=V4).conversation.messages
        assert message.content == "[Unsupported Image]" and not message.image_sources


def test_tool_results_answer_their_calls_in_any_order():
    converted = convert((USER, calls("1", "2"), result("2"), result("1"), USER))
    assert [m.tool_call_id for m in converted.conversation.messages[2:4]] == ["2", "1"]
    for history, message in (
        ((USER, calls("1")), "insufficient tool messages"),
        ((USER, calls("1"), USER), "insufficient tool messages"),
        ((USER, calls("1"), result("9", [image("zzz")])), "did not have response messages: 9"),
        ((USER, calls("1", "2"), result("1"), result("1")), "of 1 in message[3]"),
        ((USER, calls("1", "1")), "of 1 in message[1]"),
        ((USER, result("1")), "must be a response to a preceding message"),
        ((USER, assistant(tool_calls=[])), "Invalid 'messages[1].tool_calls': empty array."),
        ((USER, {"role": "assistant"}), "content or tool_calls must be set"),
    ):
        assert message in refused(history)


@pytest.mark.parametrize(
    "text, kept",
    [
        ("x-anthropic-billing-header: a; You are X\nrest", "You are X\nrest"),
        ("x-anthropic-billing-header: a\n \u3000 rest", "rest"),
        ("x-anthropic-billing-header: a\n\x1crest", "\x1crest"),
        ("x-anthropic-billing-header: a", None),
        (" x-anthropic-billing-header: a", " x-anthropic-billing-header: a"),
    ],
)
def test_billing_header_is_cut_from_system_messages(text, kept):
    messages = convert([{"role": "system", "content": text}, USER]).conversation.messages
    assert [message.content for message in messages] == [*([] if kept is None else [kept]), "u"]


def test_error_says_which_message():
    long = "http://" + "é" * 5000
    blocks = [{"type": "text", "text": ""}, image(long)]
    assert refused((USER, {"role": "user", "content": blocks})).startswith(
        ".messages[1].image_url.url[1]: image_url.url external link length 10007 too long"
    )
    assert refused((USER, {"role": "user", "content": [image("x")]})) == (
        ".messages[1]: Unsupported image_url format"
    )
    assert refused((USER, assistant(content=[image("x")]))) == (
        "Image in assistant message is not supported"
    )


@pytest.mark.parametrize(
    "url, fault",
    [
        ("data:image/png;base64,AA==", None),
        (" DATA:image/WEBP;a=b;base64,A A\n=%3D#f", None),
        ("data:image/png;base64,", None),
        ("data:image/png;base64,AAA", None),
        ("data:image/png;base64,A", DataUrlFault.BASE64),
        ("data:image/png;base64,A===", DataUrlFault.BASE64),
        ("data:image/png;base64,-_8=", DataUrlFault.BASE64),
        ("data:image/bmp;base64,A", DataUrlFault.MEDIA_TYPE),
        ("data:base64,AA==", DataUrlFault.MEDIA_TYPE),
        ("data:image/png,AA==", DataUrlFault.FORMAT),
        ("data:image/png;BASE64,AA==", DataUrlFault.FORMAT),
        ("ftp:base64,", DataUrlFault.FORMAT),
        ("data:#base64,", DataUrlFault.FORMAT),
    ],
)
def test_data_urls(url, fault):
    assert data_url.base64_fault_of(url) is fault


# Tools, formats, sampling --------------------------------------------------------------------


def test_constraint_is_tools_then_format():
    schema = {"type": "object", "properties": {"a": {"type": "number", "minimum": 1e-7}}}
    format = {"type": "json_schema", "json_schema": {"schema": schema, "strict": True}}
    constraint = convert(response_format=format).inference_options.output_constraint
    assert constraint.kind == "json"
    assert constraint.schema == (
        '{"type":"object","properties":{"a":{"type":"number","minimum":1e-7}},'
        '"additionalProperties":false,"required":["a"]}'
    )
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    constraint = convert(response_format=format, tools=tools).inference_options.output_constraint
    assert constraint == recipe.OutputConstraint(
        "tool_call",
        '[{"type":"function","function":{"name":"f","description":null,'
        '"parameters":{"type":"object"},"strict":null}}]',
    )
    regex = convert(response_format={"type": "regex", "regex": "[a-"}).inference_options
    assert regex.output_constraint == recipe.OutputConstraint("regex", "[a-")
    assert convert(response_format={"type": "text"}).inference_options.output_constraint is None


def test_strict_is_carried_in_the_constraint():
    tools = [{"type": "function", "function": {"name": "f", "strict": True}}]
    constraint = convert(tools=tools).inference_options.output_constraint
    (tool,) = json.loads(constraint.schema)
    assert tool["function"]["strict"] is True
    assert tool["function"]["parameters"]["additionalProperties"] is False


def test_tool_choice_narrows_the_tools():
    tools = [TOOL, {"type": "function", "function": {"name": "g"}}]
    named = {"type": "function", "function": {"name": "g"}}
    off = {"type": "disabled"}
    converted = convert(tools=tools, tool_choice=named, thinking=off)
    assert [tool.name for tool in converted.conversation.tools] == ["g"]
    assert converted.conversation.tool_choice == "required"
    assert converted.parsing_options.starts_in_tool_calls
    none = convert(tools=[TOOL, TOOL], tool_choice="none")
    assert none.conversation.tools == [] and not none.parsing_options.parse_tool_calls
    assert "does not support this tool_choice" in refused(tools=tools, tool_choice="required")
    assert "no function named 'zz'" in refused(
        tools=tools, tool_choice={"type": "function", "function": {"name": "zz"}}
    )


@pytest.mark.parametrize(
    "model, thinking, top_p, expected",
    [
        (V41, "enabled", None, 1.0),
        (V41, "enabled", 0.5, 0.949999988079071),
        (V41, "enabled", 0.96, 0.9599999785423279),
        (V41, "disabled", 0.5, 1.0),
        (V4, "enabled", 0.5, 1.0),
        (V4, "disabled", 0.5, 0.5),
    ],
)
def test_top_p_follows_the_version(model, thinking, top_p, expected):
    converted = convert(model=model, thinking={"type": thinking}, top_p=top_p)
    assert converted.inference_options.top_p == expected


def test_log_probabilities_are_carried():
    inference = convert(logprobs=True, top_logprobs=20).inference_options
    assert inference.logprobs and inference.top_logprobs == 20
    assert "must be set to true" in refused(top_logprobs=0)
    assert "[0, 20]" in refused(logprobs=True, top_logprobs=21)


def test_max_tokens_are_completed_from_the_context():
    resolve = convert(reasoning_effort="max").resolve_max_tokens
    assert resolve(10, 10**6) == 131072
    assert resolve(10, 100) == 90
    assert resolve(100, 100) == 1
    assert convert().resolve_max_tokens(0, 10**6) == 65536
    assert convert(reasoning_effort="none").resolve_max_tokens(0, 10**6) == 8192
    assert convert(max_tokens=5).resolve_max_tokens(5, 10) == 5
    with pytest.raises(recipe.ConversionError, match="you requested 11 tokens"):
        convert(max_tokens=5).resolve_max_tokens(6, 10)
    with pytest.raises(OverflowError):
        resolve(-1, 10)


# Several choices -----------------------------------------------------------------------------


def test_several_choices_need_the_operators_consent():
    assert refused(n=2) == "Invalid n value (currently only n = 1 is supported)"
    assert convert(n=1).inference_options.n == 1
    options = OPTIONS.with_max_choices(4)
    assert convert(options=options, n=4).inference_options.n == 4
    assert convert(options=options).inference_options.n == 1
    for n in (0, 5):
        assert refused(options=options, n=n) == "Invalid n value, the valid range of n is [1, 4]"
    with pytest.raises(ValueError, match="max_choices=0"):
        OPTIONS.with_max_choices(0)


def test_each_choice_has_its_own_generator():
    converted = convert(options=OPTIONS.with_max_choices(2), n=2, thinking={"type": "disabled"})
    generators = recipe.ChatCompletionRequest.chunk_generators(converted, "id", "m")
    chunks: list[Any] = []
    for generator in generators:
        processor = recipe.StreamProcessor(generator, converted.parsing_options)
        chunks += processor.push(recipe.InferenceChunk.text("x", 1)) + processor.finish()
    indices = [json.loads(chunk.to_json())["choices"][0]["index"] for chunk in chunks]
    assert sorted(set(indices)) == [0, 1]
    assert json.loads(chunks[-1].to_json())["usage"]["completion_tokens"] == 2


# Options -------------------------------------------------------------------------------------


def test_options_never_change():
    aliased = OPTIONS.with_model_alias("m", recipe.ModelVersion.DeepseekV4Pro)
    assert "m" in aliased.model_versions_by_name
    assert OPTIONS.model_versions_by_name == {
        V4: recipe.ModelVersion.DeepseekV4Pro,
        V41: recipe.ModelVersion.DeepseekV41Flash,
    }
    assert OPTIONS.with_model_versions_by_name({}).model_versions_by_name == {}
    assert not OPTIONS.with_default_thinking_mode(False).default_thinking_mode
    assert OPTIONS.default_thinking_mode


@pytest.mark.parametrize(
    "error, fields",
    [
        (TypeError, {"default_thinking_mode": 1}),
        (TypeError, {"responses_web_search": 1}),
        (TypeError, {"thinking_max_tokens_upper_bound": 1.5}),
        (OverflowError, {"thinking_max_tokens_upper_bound": -1}),
        (OverflowError, {"non_thinking_max_tokens_upper_bound": 2**32}),
    ],
)
def test_options_refuse_other_types(error, fields):
    with pytest.raises(error):
        recipe.ConversionOptions(**fields)


@pytest.mark.parametrize(
    "error, versions",
    [(TypeError, {"a": 1}), (UnicodeEncodeError, {"\ud800": recipe.ModelVersion.DeepseekV4Pro})],
)
def test_tables_of_models_refuse_other_types(error, versions):
    with pytest.raises(error):
        OPTIONS.with_model_versions_by_name(versions)


def test_equal_options_are_interchangeable():
    same = recipe.ConversionOptions()
    assert same == OPTIONS and hash(same) == hash(OPTIONS)
    assert pickle.loads(pickle.dumps(OPTIONS)) == OPTIONS
    assert OPTIONS.with_model_alias("m", recipe.ModelVersion.DeepseekV4Pro) != OPTIONS


def test_table_of_models_that_was_read_can_be_changed_without_effect():
    OPTIONS.model_versions_by_name.clear()
    assert V41 in OPTIONS.model_versions_by_name


# Where a wrong field is ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, path",
    [
        ({"messages": 5}, "messages"),
        ({"messages": [USER, {"role": "user"}]}, "messages.1"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content[0]"),
        ({"messages": [["user", [["text", 5]], None]]}, "messages.0.content[0].text"),
        ({"tools": [TOOL, {"type": "function", "function": {"name": 5}}]}, "tools.1.function.name"),
        ({"tool_choice": {"type": "function", "function": 5}}, "tool_choice.function"),
        ({"temperature": "x"}, "temperature"),
        ({"model": None}, "model"),
    ],
)
def test_body_error_has_the_path_of_the_wrong_value(fields, path):
    with pytest.raises(ValueError, match=r"^invalid request body: ") as caught:
        recipe.ChatCompletionRequest({"model": V41, "messages": [USER], **fields})
    assert caught.value.path == path  # pyright: ignore[reportAttributeAccessIssue]

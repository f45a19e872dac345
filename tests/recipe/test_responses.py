"""Responses requests: recorded cases, and the facts that a caller relies on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_jax import recipe
from tests.recipe import conversion_cases, golden_cases

V41, V4 = "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"
OPTIONS = recipe.ConversionOptions()
CASES = golden_cases.read("convert/responses.open.jsonl")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_recorded_requests_convert_as_recorded(case):
    outcome = json.loads(json.dumps(conversion_cases.run(recipe, case["input"])))
    assert list(outcome) == list(case["expected"])
    wording = bool(case.get("library_text"))
    assert conversion_cases.comparable(outcome, library_text=wording) == (
        conversion_cases.comparable(case["expected"], library_text=wording)
    )


def convert(items: Any, options: recipe.ConversionOptions = OPTIONS, **settings: Any):
    """A converted request with these input items."""
    body = {"model": V41, "input": items, **settings}
    return recipe.ResponsesRequest(body).convert(options)


def messages(items: Any, **settings: Any) -> list[tuple[Any, ...]]:
    """Role, content and what else a message of the role carries."""
    shown: list[tuple[Any, ...]] = []
    for message in convert(items, **settings).conversation.messages:
        more: tuple[Any, ...] = ()
        if message.role == "assistant":
            calls = [(call.id, call.name, call.arguments) for call in message.tool_calls or []]
            more = (message.reasoning_content, calls)
        elif message.role == "tool":
            more = (message.tool_call_id,)
        shown.append((message.role, message.content, *more))
    return shown


def refusal(items: Any, options: recipe.ConversionOptions = OPTIONS, **settings: Any) -> str:
    """The message of the refusal."""
    with pytest.raises(recipe.ConversionError) as caught:
        convert(items, options, **settings)
    assert caught.value.status_code == 400
    return json.loads(caught.value.body)["error"]["message"]


def user(text: str = "u") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def reasoning(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "summary": [], "content": content, **more}


def call(call_id: str, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(call_id: str | None, text: Any = "r") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **more}


def namespace(name: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **more}


# Turns ---------------------------------------------------------------------------------------


def test_reasoning_items_never_become_visible_text():
    items = [user(), reasoning("secret"), call("1"), output("1"), user("more")]
    assert messages(items) == [
        ("user", "u"),
        ("assistant", "", "secret", [("1", "f", "{}")]),
        ("tool", "r", "1"),
        ("user", "more"),
    ]
    rendered = recipe.DeepseekV41Encoding().render_conversation(convert(items).conversation)
    assert "secret" not in rendered.prompt  # without active tools old reasoning is dropped


@pytest.mark.parametrize(
    "content", [None, [], [{"type": "reasoning_text", "text": ""}]], ids=["none", "empty", "blank"]
)
def test_empty_and_missing_reasoning_are_treated_alike(content):
    items = [user(), {**reasoning(), "content": content}, assistant("x"), user("more")]
    assert messages(items)[1] == ("assistant", "x", "", [])
    strict = OPTIONS.with_reasoning_content_behavior(recipe.ReasoningContentBehavior.Reject)
    assert refusal(items[:3], strict, tools=[function("f")]) == (
        "The `reasoning_text` in the thinking mode must be passed back to the API."
    )


def test_reasoning_after_text_begins_a_new_turn_of_the_assistant():
    items = [assistant("a"), assistant("b"), reasoning("r"), assistant("c")]
    assert messages(items) == [
        ("assistant", "a\n\nb", "", []),
        ("assistant", "c", "r", []),
    ]


def test_calls_of_a_group_are_sorted_by_id_and_outputs_follow_them():
    items = [call("b"), call("a"), output("b", "of b"), call("B"), output("a"), output("B")]
    assert messages(items) == [
        ("assistant", "", "", [("B", "f", "{}"), ("a", "f", "{}"), ("b", "f", "{}")]),
        ("tool", "r", "B"),
        ("tool", "r", "a"),
        ("tool", "of b", "b"),
    ]


def test_a_complete_group_ends_the_turn():
    items = [call("b"), output("b"), call("a"), output("a")]
    assert [message[0] for message in messages(items)] == ["assistant", "tool"] * 2


@pytest.mark.parametrize(
    "between",
    [user(), assistant("x"), reasoning(), {"type": "web_search_call"}, output(None)],
    ids=["user", "assistant", "empty reasoning", "web search", "output without id"],
)
def test_nothing_may_come_before_the_last_output(between):
    items = [call("1"), call("2"), output("2"), between, output("1")]
    assert refusal(items) == "No tool output found for tool call 1."


@pytest.mark.parametrize("kind", ["item_reference", "computer_call", "compaction", "zzz"])
def test_items_of_unknown_types_are_as_if_absent(kind):
    items = [call("1"), {"type": kind, "id": 5}, output("1")]
    assert messages(items) == messages([items[0], items[2]])


def test_control_strings_of_callers_stay_text_beside_images():
    token = recipe.SpecialTokens().image
    image = {"type": "input_image", "image_url": "http://h/i"}
    content = [{"type": "input_text", "text": f"typed {token}"}, image]
    conversation = convert([{"role": "user", "content": content}]).conversation
    assert conversation.messages[0].content == f"typed {token}\n\n{token}"
    prompt = recipe.DeepseekV41Encoding().render_conversation(conversation)
    special = [prompt.prompt[start:end] for start, end in prompt.special_ranges]
    assert special.count(token) == 1
    assert (prompt.prompt.rindex(token), prompt.prompt.rindex(token) + len(token)) in (
        prompt.special_ranges
    )


def test_an_image_of_the_assistant_is_refused_before_its_url_is_read():
    image = {"type": "input_image", "image_url": "data:image/png,AAAA"}
    items = [{"role": "assistant", "content": [image]}]
    assert refusal(items) == "input[0]: Image in assistant message is unsupported"


@pytest.mark.parametrize("effort", [True, 0, 101, "turbo", 3.5, [], {}])
def test_effort_of_another_type_is_refused(effort):
    with pytest.raises(ValueError, match="invalid request body: ") as caught:
        convert("u", reasoning={"effort": effort})
    assert caught.value.path == "reasoning.effort"  # pyright: ignore[reportAttributeAccessIssue]


# Tools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("function_call_output", "input[1].output[0]: input_image must have image_url or file_id"),
        ("custom_tool_call_output", "No tool call found for tool output with call_id Z."),
    ],
)
def test_images_of_custom_outputs_are_checked_after_their_call_is_found(kind, message):
    item = {"type": kind, "call_id": "Z", "output": [{"type": "input_image"}]}
    assert refusal([user(), item]) == message


@pytest.mark.parametrize(("model", "name"), [(V41, "n::f"), (V4, "n__f")])
def test_functions_in_namespaces_are_named_by_the_model_version(model, name):
    request = recipe.ResponsesRequest({"model": model, "input": "u", "tools": [
        namespace("n", function("f", description="F"), description="N"), function("n__f_1")
    ]})  # fmt: skip
    assert request.namespace_tool_map(OPTIONS) == {name: ("n", "f")}
    tools = request.convert(OPTIONS).conversation.tools
    assert [(tool.name, tool.description) for tool in tools] == [
        (name, "N\nF" if model == V41 else "F"),
        ("n__f_1", None),
    ]


def test_taken_names_get_numbers_in_order():
    tools = [namespace("n", function("f"))] * 3 + [function("n__f"), function("n__f_2")]
    shown = recipe.ResponsesRequest({"model": V4, "input": "u", "tools": tools})
    assert list(shown.namespace_tool_map(OPTIONS)) == ["n__f_1", "n__f_3", "n__f_4"]


def test_thousands_of_equal_names_take_linear_time():
    tools = [namespace("n", function("f"))] * 20_000
    request = recipe.ResponsesRequest({"model": V41, "input": "u", "tools": tools})
    assert len(request.namespace_tool_map(OPTIONS)) == 20_000


def test_calls_of_undeclared_namespaced_functions_are_named_alike():
    items = [call("1", "f", namespace="n"), output("1"), call("2", "f", namespace="n"), output("2")]
    shown = messages(items, model=V4, tools=[function("n__f")])
    assert [message[3][0][1] for message in shown if message[0] == "assistant"] == ["n__f_1"] * 2


def test_found_tools_are_announced_after_the_outputs_of_their_group():
    search = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}}
    found = {
        "type": "tool_search_output",
        "call_id": "s",
        "tools": [namespace("n", function("f")), {"type": "web_search"}],
    }
    items = [search, call("1"), found, output("1"), call("2", "f", namespace="n"), output("2")]
    conversation = convert(items).conversation
    assert [message.role for message in conversation.messages] == [
        *("assistant", "tool", "tool", "system"),
        *("assistant", "tool"),
    ]
    announced = conversation.messages[3]
    assert isinstance(announced, recipe.SystemMessage)
    assert announced.tools == conversation.tools
    assert [(tool.name, tool.defer_loading) for tool in conversation.tools] == [("n::f", True)]
    assert [message[0] for message in messages(items, tool_choice="none")].count("system") == 0


def test_tool_search_does_not_exist_for_v4():
    search = {"type": "tool_search_call", "call_id": "s", "arguments": {}}
    found = {"type": "tool_search_output", "call_id": "s", "tools": [function("not a name")]}
    tools = [{"type": "tool_search", "execution": "client"}]
    request = convert([call("1"), search, found, output("1")], model=V4, tools=tools)
    assert [message.role for message in request.conversation.messages] == ["assistant", "tool"]
    assert request.conversation.tools == []


# The request object --------------------------------------------------------------------------


def test_a_request_is_used_up_even_by_a_failure():
    request = recipe.ResponsesRequest({"model": "unknown", "input": "u"})
    with pytest.raises(recipe.ConversionError):
        request.convert(OPTIONS)
    for use in (
        lambda: request.model,
        request.echo,
        lambda: request.convert(OPTIONS),
        lambda: request.namespace_tool_map(OPTIONS),
    ):
        with pytest.raises(RuntimeError, match="protocol request has been consumed"):
            use()


def test_the_echo_holds_settings_as_they_were_given():
    echo = recipe.ResponsesRequest({
        "model": V41,
        "input": "u",
        "temperature": 0.3,
        "max_output_tokens": 7,
        "reasoning": {"effort": "ultra", "generate_summary": "auto"},
        "tools": [{"type": "mcp"}, function("f"), {"type": "custom", "name": "x", "format": 1}],
        "tool_choice": {"type": "function", "name": "f", "more": 1},
    }).echo()  # fmt: skip
    assert (echo.temperature, echo.top_p) == (0.30000001192092896, 1.0)
    assert (echo.max_output_tokens, echo.top_logprobs, echo.user) == (7, 0, None)
    assert echo.reasoning == {"effort": "ultra", "summary": "auto"}
    assert [tool["name"] for tool in echo.tools] == ["f", "x"]
    assert echo.tool_choice == {"type": "function", "name": "f"}


def test_an_echo_of_nothing_has_the_defaults():
    echo = recipe.ResponsesEcho()
    assert (echo.instructions, echo.max_output_tokens, echo.user) == (None, None, None)
    assert (echo.temperature, echo.top_p, echo.top_logprobs) == (1.0, 1.0, 0)


# Kept responses ------------------------------------------------------------------------------


def run_turn(options: recipe.ConversionOptions, id: str, text: str, **body: Any) -> str:
    """Converts a request and answers it; returns the prompt's messages as text."""
    request = recipe.ResponsesRequest({"model": V41, **body}).convert(options)
    generator = recipe.ResponsesRequest.chunk_generator(request, id, V41)
    processor = recipe.StreamProcessor(generator, request.parsing_options)
    processor.push(recipe.InferenceChunk.text(text))
    processor.push(recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Stop))
    return "|".join(message.content for message in request.conversation.messages)


def test_a_kept_response_can_be_continued():
    options = OPTIONS.with_response_store(recipe.MemoryResponseStore())
    run_turn(options, "r1", "why</think>first", input="one", instructions="I")
    run_turn(options, "r2", "</think>second", input=[user("two")], previous_response_id="r1")
    request = {"model": V41, "previous_response_id": "r2", "input": "three"}
    converted = recipe.ResponsesRequest(request).convert(options)
    assert [(m.role, m.content) for m in converted.conversation.messages] == [
        *(("user", "one"), ("assistant", "first")),
        *(("user", "two"), ("assistant", "second")),
        ("user", "three"),
    ]
    assert converted.conversation.messages[1].reasoning_content == "why"


def test_kept_calls_of_every_kind_can_be_answered():
    store = recipe.MemoryResponseStore()
    options = OPTIONS.with_response_store(store)
    tools = [
        namespace("n", function("f")),
        {"type": "custom", "name": "apply_patch"},
        {"type": "tool_search", "execution": "client"},
    ]
    markup = "</think>\n\n<｜DSML｜ calls>\n"
    for name in ("n::f", "apply_patch", "tool_search"):
        markup += (
            f'<｜DSML｜ invoke name="{name}">\n<｜DSML｜ parameter name="input" string="true">'
        )
        markup += "x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
    run_turn(options, "r1", markup + "</｜DSML｜ calls>", input="go", tools=tools)
    turn = store.get("r1")
    assert turn is not None
    calls = [item for item in turn.items if "call_id" in item]
    kinds = ["function_call", "custom_tool_call", "tool_search_call"]
    assert [item["type"] for item in calls] == kinds
    outputs = [
        output(calls[0]["call_id"]),
        {"type": "custom_tool_call_output", "call_id": calls[1]["call_id"], "output": "ok"},
        {"type": "tool_search_output", "call_id": calls[2]["call_id"], "tools": []},
    ]
    request = convert(outputs, options, tools=tools, previous_response_id="r1")
    assistant_turn = request.conversation.messages[1]
    assert [(made.name, made.arguments) for made in assistant_turn.tool_calls or []] == [
        ("n::f", '{"input": "x"}'),
        ("apply_patch", '{"input":"x"}'),
        ("tool_search", '{"input":"x"}'),
    ]


def test_a_call_that_was_cut_short_is_not_kept():
    store = recipe.MemoryResponseStore()
    options = OPTIONS.with_response_store(store)
    request = convert("go", options, tools=[function("f")])
    generator = recipe.ResponsesRequest.chunk_generator(request, "r1", V41)
    processor = recipe.StreamProcessor(generator, request.parsing_options)
    markup = (
        '</think>x\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="a"'
    )
    processor.push(recipe.InferenceChunk.text(markup))
    processor.push(recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Length))
    turn = store.get("r1")
    assert turn is not None
    assert [item["type"] for item in turn.items] == ["message", "message"]


def test_a_response_that_is_not_to_be_kept_cannot_be_continued():
    options = OPTIONS.with_response_store(recipe.MemoryResponseStore())
    run_turn(options, "r1", "</think>first", input="one", store=False)
    assert refusal("two", options, previous_response_id="r1").startswith(
        "Previous response with id 'r1' not found."
    )


def test_the_oldest_unused_response_makes_room():
    store = recipe.MemoryResponseStore(max_responses=2)
    for name in ("a", "b"):
        store.put(name, recipe.StoredResponse(None, ()))
    assert store.get("a") is not None
    store.put("c", recipe.StoredResponse(None, ()))
    assert [store.get(name) is not None for name in ("a", "b", "c")] == [True, False, True]


def test_a_chain_that_bites_its_own_tail_is_refused():
    store = recipe.MemoryResponseStore()
    store.put("a", recipe.StoredResponse("b", ()))
    store.put("b", recipe.StoredResponse("a", ()))
    options = OPTIONS.with_response_store(store)
    assert "'a' not found" in refusal("u", options, previous_response_id="a")


def test_errors_count_own_items_only():
    store = recipe.MemoryResponseStore()
    store.put("a", recipe.StoredResponse(None, (user(), assistant("x"))))
    options = OPTIONS.with_response_store(store)
    items = [user(), {"role": "user", "content": [{"type": "input_image"}]}]
    assert refusal(items, options, previous_response_id="a").startswith("input[1].content[0]: ")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("store", 5, "a boolean"), ("previous_response_id", 5, "a string")],
)
def test_a_store_makes_its_fields_count(field, value, text):
    convert("u", **{field: value})
    options = OPTIONS.with_response_store(recipe.MemoryResponseStore())
    assert refusal("u", options, **{field: value}) == (
        f"Invalid type for '{field}': expected {text}."
    )


def test_without_a_store_nothing_is_kept_or_looked_up():
    request = convert("u", store=True, previous_response_id="x")
    assert [message.content for message in request.conversation.messages] == ["u"]


def test_encrypted_content_is_refused_only_if_asked_for_and_only_without_text():
    strict = OPTIONS.with_encrypted_content(recipe.EncryptedContentBehavior.Reject)
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    assert refusal([user(), hidden], strict).startswith("input[1].encrypted_content: ")
    assert refusal([{"type": "compaction", "encrypted_content": "g"}], strict)
    convert([user(), hidden])
    convert([user(), reasoning("r", encrypted_content="gAAAA")], strict)

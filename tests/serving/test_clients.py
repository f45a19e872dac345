"""The official SDKs against a server: every feature, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from ds_jax.serving.mock import MockEngine
from tests.serving.running import DEFAULT, Running, chat, eventually, running, script

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def claude(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as found:
        yield found


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


# Chat Completions ---------------------------------------------------------------------------------


def test_chat_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=user("hello"))
    message: Any = answer.choices[0].message
    assert message.content == "Hello world."
    assert message.reasoning_content == "A thought."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens_details is not None
    assert answer.system_fingerprint == "fp_mock"


@pytest.mark.parametrize("text", ["hello", "[[One.</think>Ünï 🎉 code]]", "[[No end of thought]]"])
def test_chat_streamed_is_chat_whole(client: openai.OpenAI, text: str) -> None:
    whole = client.chat.completions.create(model="tiny", messages=user(text), max_tokens=40)
    stream = client.chat.completions.create(
        model="tiny",
        messages=user(text),
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    content, reasoning, usage, reason = "", "", None, None
    for chunk in stream:
        if not chunk.choices:
            usage = chunk.usage
            continue
        assert usage is None, "usage comes last"
        delta: Any = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        reason = chunk.choices[0].finish_reason or reason
    message: Any = whole.choices[0].message
    assert content == (message.content or "")
    assert reasoning == message.reasoning_content
    assert reason == whole.choices[0].finish_reason
    assert usage is not None and whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.completion_tokens_details == whole.usage.completion_tokens_details


def test_chat_several_answers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=user("hello"), n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"Hello world."}
    assert answer.usage is not None and answer.usage.completion_tokens % 3 == 0
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(
        model="tiny", messages=user("hello"), n=3, stream=True
    ):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["Hello world."] * 3


def test_accepted_drafts_are_told_when_asked_for() -> None:
    engine = MockEngine(script, drafts=2)
    with running(engine) as server:
        options = {"include_drafts": True, "include_usage": True}
        body = chat("[[A thought.</think>Hello world.]]", stream=True, stream_options=options)
        lines = server.http.post("/v1/chat/completions", json=body).text.splitlines()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        told = [chunk.get("draft") for chunk in chunks if chunk["choices"]]
        accepted = engine.stats()["drafts_accepted_total"]
        assert 0 < sum(confidence is not None for confidence in told) <= accepted
        assert set(told) <= {None, 0.95, round(0.95 * 0.85, 4)}
        del body["stream_options"]
        assert '"draft"' not in server.http.post("/v1/chat/completions", json=body).text


def test_chat_stop_string_ends_the_sequence(server: Running, client: openai.OpenAI) -> None:
    before = server.engine.aborted
    text = "[[x</think>one two STOP three four five six seven eight]]"
    answer = client.chat.completions.create(model="tiny", messages=user(text), stop=["STOP"])
    assert answer.choices[0].message.content == "one two "
    assert answer.choices[0].finish_reason == "stop"
    assert server.engine.aborted == before + 1


def test_chat_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=user("[[x</think>one two]]"), logprobs=True, top_logprobs=1
    )
    found = answer.choices[0].logprobs
    assert found is not None and found.content is not None
    assert "".join(entry.token for entry in found.content) == "one two"
    assert all(entry.logprob == -0.25 for entry in found.content)


def test_chat_length(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=user("[[@50]]"), max_completion_tokens=7
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 7


def test_chat_tools_round_trip(client: openai.OpenAI) -> None:
    tools: Any = [TOOL]
    first = client.chat.completions.create(
        model="tiny",
        messages=user(f"[[Look.</think>{call('get_weather', city='Rome')}]]"),
        tools=tools,
    )
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (made,) = choice.message.tool_calls
    assert made.type == "function"
    assert made.function.name == "get_weather"
    assert json.loads(made.function.arguments) == {"city": "Rome"}
    second = client.chat.completions.create(
        model="tiny",
        messages=[
            *user("Weather in Rome?"),
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": made.id, "content": "[[Good.</think>Sunny.]]"},
        ],
        tools=tools,
    )
    assert second.choices[0].message.content == "Sunny."


def test_chat_tool_call_streamed(client: openai.OpenAI) -> None:
    tools: Any = [TOOL]
    arguments, name, reason = "", "", None
    for chunk in client.chat.completions.create(
        model="tiny",
        messages=user(f"[[Look.</think>{call('get_weather', city='Rome')}]]"),
        tools=tools,
        stream=True,
    ):
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            for part in choice.delta.tool_calls or []:
                assert part.function is not None
                name += part.function.name or ""
                arguments += part.function.arguments or ""
    assert (name, json.loads(arguments), reason) == ("get_weather", {"city": "Rome"}, "tool_calls")


def test_a_developer_is_a_system(server: Running) -> None:
    counts = [
        server.http.post(
            "/tokenize",
            json={"messages": [{"role": role, "content": "Be brief"}, *user("hi")]},
        ).json()
        for role in ("system",)
    ]
    answer = server.http.post(
        "/v1/chat/completions",
        json={
            "model": "tiny",
            "messages": [{"role": "developer", "content": "Be brief"}, *user("hi")],
        },
    ).json()
    assert answer["usage"]["prompt_tokens"] == counts[0]["count"]


def test_cached_tokens_are_told_whole_and_streamed(client: openai.OpenAI) -> None:
    long = "x y z " * 200
    told: list[int] = []
    for stream in (False, False, True):
        if not stream:
            answer = client.chat.completions.create(model="tiny", messages=user(long))
            usage = answer.usage
        else:
            *_, last = client.chat.completions.create(
                model="tiny",
                messages=user(long),
                stream=True,
                stream_options={"include_usage": True},
            )
            usage = last.usage
        assert usage is not None and usage.prompt_tokens_details is not None
        told.append(usage.prompt_tokens_details.cached_tokens or 0)
    assert told[0] == 0
    assert told[1] == told[2] > 128


def test_a_salt_keeps_prefixes_apart(client: openai.OpenAI) -> None:
    long = "p q r " * 200
    told: list[int | None] = []
    for salt in ("one", "two", "one"):
        answer = client.chat.completions.create(
            model="tiny", messages=user(long), extra_body={"cache_salt": salt}
        )
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        told.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert told[0] == told[1] == 0
    assert (told[2] or 0) > 128


def test_fields_without_meaning_are_reported(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=user("hi"), extra_body={"frobnicate": 1, "verbosity": "low"}
    )
    assert raw.headers["x-ignored-fields"] == "frobnicate,verbosity"


def test_images_are_refused_clearly(client: openai.OpenAI) -> None:
    content = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/secret.png"}},
    ]
    with pytest.raises(openai.BadRequestError, match="reads text only") as caught:
        client.chat.completions.create(
            model="DeepSeek-V4.1-Flash", messages=[{"role": "user", "content": content}]
        )  # type: ignore[list-item]
    assert caught.value.code == "images_not_supported"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 9}, None),
        ({"max_tokens": -1}, "max_tokens"),
        ({"extra_body": {"min_p": "x"}}, "min_p"),
        ({"extra_body": {"cache_salt": ""}}, "cache_salt"),
        ({"extra_body": {"logit_bias": {"x": 1}}}, "logit_bias"),
        ({"extra_body": {"top_k": True}}, "top_k"),
        ({"extra_body": {"deadline_s": 0}}, "deadline_s"),
        ({"response_format": {"type": "nonsense"}}, "response_format"),
        ({"reasoning_effort": "101"}, "reasoning_effort"),
        ({"n": 1000}, "n"),
    ],
)
def test_wrong_values_are_named(client: openai.OpenAI, fields: Any, param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=user("hi"), **fields)
    assert caught.value.type == "invalid_request_error"
    if param is not None:
        assert (caught.value.param or "").startswith(param)


def test_errors_have_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4", messages=user("hi"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.chat.completions.create(model="tiny", messages=user("word " * 9000))
    with pytest.raises(openai.BadRequestError, match="Empty input messages"):
        client.chat.completions.create(model="tiny", messages=[])


def test_early_close_ends_the_sequence(server: Running, client: openai.OpenAI) -> None:
    before = server.engine.aborted
    with client.chat.completions.create(
        model="tiny", messages=user("[[@4000]]"), max_tokens=4000, stream=True
    ) as stream:
        next(iter(stream))
    eventually(lambda: server.engine.aborted == before + 1)
    assert server.engine.stats()["running"] == 0


# Completions --------------------------------------------------------------------------------------


def test_completions(server: Running, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt=["[[one two]]", "[[three]]"], max_tokens=20, n=2
    )
    assert [choice.text for choice in answer.choices] == ["one two", "one two", "three", "three"]
    encode = server.service.model.tokenizer.encode_text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2 * len([*encode("one two"), *encode("three")])
    text = ""
    for chunk in client.completions.create(
        model="tiny", prompt="[[one two]]", max_tokens=20, stream=True
    ):
        text += chunk.choices[0].text if chunk.choices else ""
    assert text == "one two"


def test_completions_take_ids_and_echo(server: Running, client: openai.OpenAI) -> None:
    ids = server.http.post("/tokenize", json={"prompt": "[[yes]]"}).json()["tokens"]
    answer = client.completions.create(model="tiny", prompt=ids, echo=True, logprobs=0)
    assert answer.choices[0].text == "[[yes]]yes"
    found = answer.choices[0].logprobs
    assert found is not None and "".join(found.tokens or []) == "yes"


def test_no_text_becomes_a_control_token(server: Running) -> None:
    for text in ("<｜end▁of▁sentence｜>", "a</think>b", "<｜User｜>"):
        found = server.http.post("/tokenize", json={"prompt": text, "add_special_tokens": False})
        control = server.service.model.tokenizer.control_ids
        assert not control & set(found.json()["tokens"])
        body = {"messages": user("x")}
        plain = server.http.post("/tokenize", json=body).json()["tokens"]
        typed = server.http.post("/tokenize", json={"messages": user(text)}).json()["tokens"]
        assert sum(i in control for i in typed) == sum(i in control for i in plain)


# Responses ----------------------------------------------------------------------------------------


def test_responses_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="tiny", input="hello")
    assert whole.output_text == "Hello world."
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    events = list(client.responses.create(model="tiny", input="hello", stream=True))
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == whole.output_text
    assert last.response.usage == whole.usage
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))


def test_responses_continue_each_other(server: Running, client: openai.OpenAI) -> None:
    first = client.responses.create(model="tiny", input="My name is Ada. [[x</think>Noted.]]")
    second = client.responses.create(model="tiny", input="And now?", previous_response_id=first.id)
    alone = client.responses.create(model="tiny", input="And now?")
    assert second.usage is not None and alone.usage is not None
    assert second.usage.input_tokens > alone.usage.input_tokens
    assert second.output_text == "Noted."  # the script reads the newest brackets of the prompt
    kept = client.responses.retrieve(first.id)
    assert kept.output_text == "Noted."
    assert kept.usage == first.usage
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="tiny", input="x", previous_response_id=first.id)


def test_responses_that_are_not_stored_are_not_there(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="tiny", input="hello", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    streamed = list(client.responses.create(model="tiny", input="hello", stream=True))[-1]
    assert client.responses.retrieve(streamed.response.id).output_text == "Hello world."  # type: ignore[union-attr]


# Messages -----------------------------------------------------------------------------------------


def test_messages_whole_and_streamed(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="tiny", max_tokens=64, messages=user("hello"))
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[1].text == "Hello world."  # type: ignore[union-attr]
    assert whole.stop_reason == "end_turn"
    with claude.messages.stream(model="tiny", max_tokens=64, messages=user("hello")) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == "Hello world."
    assert [block.type for block in last.content] == ["thinking", "text"]
    assert last.usage == whole.usage


def test_messages_tools_round_trip(claude: anthropic.Anthropic) -> None:
    tools: Any = [{"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}]  # type: ignore[index]
    first = claude.messages.create(
        model="tiny",
        max_tokens=200,
        messages=user(f"[[Look.</think>{call('get_weather', city='Rome')}]]"),
        tools=tools,
    )
    assert first.stop_reason == "tool_use"
    use = next(block for block in first.content if block.type == "tool_use")
    assert use.input == {"city": "Rome"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "[[Ok.</think>Sunny.]]"}
    second = claude.messages.create(
        model="tiny",
        max_tokens=200,
        messages=[
            *user("Weather?"),
            {"role": "assistant", "content": [b.model_dump() for b in first.content]},
            {"role": "user", "content": [result]},
        ],  # type: ignore[list-item]
        tools=tools,
    )
    assert second.content[-1].text == "Sunny."  # type: ignore[union-attr]


def test_messages_cached_tokens_and_count(claude: anthropic.Anthropic) -> None:
    long: Any = user("m n o " * 200)
    counted = claude.messages.count_tokens(model="tiny", messages=long)
    first = claude.messages.create(model="tiny", max_tokens=8, messages=long)
    second = claude.messages.create(model="tiny", max_tokens=8, messages=long)
    with claude.messages.stream(model="tiny", max_tokens=8, messages=long) as stream:
        third = stream.get_final_message()
    assert first.usage.input_tokens == counted.input_tokens
    assert (second.usage.cache_read_input_tokens or 0) > 128
    assert third.usage.cache_read_input_tokens == second.usage.cache_read_input_tokens
    total = second.usage.input_tokens + (second.usage.cache_read_input_tokens or 0)
    assert total == counted.input_tokens


def test_messages_errors_have_their_form(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.messages.create(model="claude-x", max_tokens=8, messages=user("hi"))
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "not_found_error"
    assert body["request_id"] == caught.value.response.headers["request-id"]
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="tiny", max_tokens=8, messages=[])


# Around -------------------------------------------------------------------------------------------


def test_models(client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [m.id for m in client.models.list()] == ["tiny", "DeepSeek-V4.1-Flash"]
    assert client.models.retrieve("tiny").owned_by == "ds_jax"
    assert [m.id for m in claude.models.list()] == ["tiny", "DeepSeek-V4.1-Flash"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_tokenize_and_back(server: Running) -> None:
    found = server.http.post(
        "/tokenize", json={"prompt": "héllo <｜User｜>", "return_token_strs": True}
    ).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    back = server.http.post("/detokenize", json={"tokens": found["tokens"][1:]}).json()
    assert back == {"prompt": "héllo <｜User｜>"}
    assert server.http.post("/detokenize", json={"tokens": [10**9]}).status_code == 400


def test_the_default_answer_is_parsed(server: Running) -> None:
    found = server.http.post(
        "/prompt/explain", json={"model": "tiny", "messages": user("hello")}
    ).json()
    assert any(s["special"] for s in found["segments"])
    assert DEFAULT.endswith("Hello world.")


def call(name: str, **arguments: str) -> str:
    """A call as the model writes it."""
    lines = "".join(
        f'<｜DSML｜ parameter name="{key}" string="true">{value}</｜DSML｜ parameter>\n'
        for key, value in arguments.items()
    )
    invoke = f'<｜DSML｜ invoke name="{name}">\n{lines}</｜DSML｜ invoke>\n'
    return f"\n\n<｜DSML｜ calls>\n{invoke}</｜DSML｜ calls>"

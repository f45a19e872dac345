"""The service over the real engine: one layer of random weights, the embedded model's tokenizer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.serving import launch
from ds_jax.testing import tiny_model, tiny_pipeline
from tests.serving.running import Running, chat, eventually, running, tokenizer

PATH = "/v1/chat/completions"
QUESTION = "What is 17 + 25?"
OFF = {"thinking": {"type": "disabled"}}


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    model = tiny_model(
        vocab_size=tokenizer().vocab_size,
        num_hidden_layers=1,
        compress_ratios=(0,),
        kv_source_layer_ids=(),
        index_source_layer_ids=(),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
        bos_token_id=tokenizer().bos_id,
        eos_token_id=tokenizer().eos_id,
        max_position_embeddings=256,
    )
    found = tiny_pipeline(
        model,
        tokenizer=tokenizer(),
        token_map=None,
        chunk_tokens=(64,),
        max_context=256,
        max_sequences=2,
        page_tokens=64,
    )
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(pipeline: Pipeline) -> Iterator[Running]:
    known = launch.of_pipeline(pipeline)
    with running(pipeline.engine, pipeline.restart, known=known) as found:
        found.http.timeout = httpx.Timeout(300)
        yield found


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300
    ) as found:
        yield found


def ask(client: openai.OpenAI, text: str = QUESTION, **fields: Any) -> Any:
    fields.setdefault("max_tokens", 24)
    extra = {**OFF, **fields.pop("extra_body", {})}
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": text}], extra_body=extra, **fields
    )


def test_the_answer_is_that_of_the_pipeline(pipeline: Pipeline, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="The end", max_tokens=12, temperature=0)
    expected = pipeline.generate("The end", SamplingParams(max_tokens=12, temperature=0))[0]
    assert answer.choices[0].text == expected.text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == expected.usage.completion_tokens
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens


def test_streamed_is_whole(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"seed": 5, "max_tokens": 20, "temperature": 1.2}
    whole = ask(client, **fields)
    parts = ask(client, stream=True, stream_options={"include_usage": True}, **fields)
    text, usage = "", None
    for chunk in parts:
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_seed_reproduces_and_answers_differ(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"seed": 11, "n": 2, "max_tokens": 12, "temperature": 2.0}
    first, second = (
        [choice.message.content for choice in ask(client, **fields).choices] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 2


def test_log_probabilities(client: openai.OpenAI) -> None:
    answer = ask(client, temperature=0, logprobs=True, top_logprobs=2, max_tokens=4)
    entries = answer.choices[0].logprobs.content
    assert entries
    for entry in entries:
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs) <= 0
        assert len(entry.top_logprobs) == 2


def test_stop_strings_end_text_ids_and_log_probabilities_alike(client: openai.OpenAI) -> None:
    def complete(**fields: Any) -> Any:
        return client.completions.create(
            model="tiny", prompt="The", max_tokens=24, temperature=1.0, seed=3, **fields
        ).choices[0]

    text = complete().text
    stop = text[len(text) // 2 :][:2]
    cut = complete(stop=stop, logprobs=1)
    assert cut.text == text[: text.index(stop)]
    assert cut.finish_reason == "stop"
    assert len(cut.logprobs.tokens) == len(cut.logprobs.token_logprobs)
    streamed = client.completions.create(
        model="tiny", prompt="The", max_tokens=24, temperature=1.0, seed=3, stop=stop, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == cut.text


def test_cached_tokens_are_told(client: openai.OpenAI) -> None:
    text = "one two three four five " * 10
    first, second = (ask(client, text, max_tokens=2, temperature=0) for _ in range(2))
    assert first.usage.prompt_tokens > 64
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == 64
    assert first.choices[0].message.content == second.choices[0].message.content
    salted = ask(client, text, max_tokens=2, extra_body={"cache_salt": "s"})
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


@pytest.fixture
def slow(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps take 10 ms at least, so that an answer lasts."""
    turn = pipeline.loop.turn

    def wait_and_turn(*arguments: Any) -> Any:
        time.sleep(0.01)
        return turn(*arguments)

    monkeypatch.setattr(pipeline.loop, "turn", wait_and_turn)


@pytest.mark.usefixtures("slow")
def test_a_client_that_leaves_frees_its_pages(server: Running) -> None:
    body = {"model": "tiny", "prompt": "Tell me a story", "stream": True, "ignore_eos": True}
    with server.http.stream("POST", "/v1/completions", json={**body, "max_tokens": 200}) as answer:
        next(answer.iter_lines())
        eventually(lambda: server.engine.stats()["running"] == 1)
    eventually(lambda: server.engine.stats()["running"] == 0, 120)  # a step may compile
    stats = server.engine.stats()
    assert stats["pages_held"] == 0
    assert server.service.metrics.cancelled._value.get() == 1


def test_values_only_the_engine_can_judge_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        ask(client, extra_body={"logit_bias": {"999999": 1}})


@pytest.mark.usefixtures("slow")
def test_a_deadline_ends_an_answer(server: Running) -> None:
    body = chat("story", max_tokens=150, ignore_eos=True, deadline_s=0.3, **OFF)
    answer = server.http.post(PATH, json=body)
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "timeout_error"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_thread_that_dies_is_replaced(server: Running, pipeline: Pipeline) -> None:
    expected = server.http.post(PATH, json=chat(QUESTION, temperature=0, max_tokens=8, **OFF))

    def die(*_: object) -> None:
        raise ZeroDivisionError("broken on purpose")

    broken = server.engine
    pipeline.loop.turn = die  # type: ignore[method-assign]
    answer = server.http.post(PATH, json=chat("hi", max_tokens=150, ignore_eos=True, **OFF))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "engine_error"
    assert "broken" not in answer.text
    eventually(lambda: server.http.get("/ready").status_code == 200, 120)
    assert server.engine is not broken
    again = server.http.post(PATH, json=chat(QUESTION, temperature=0, max_tokens=8, **OFF))
    assert again.json()["choices"] == expected.json()["choices"]
    assert re.search(r"ds_jax:engine_restarts_total\{.*\} 1.0", server.http.get("/metrics").text)


# Grammars -----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "enum": ["1", "2"]},
        "b": {"type": "string", "enum": ["x", "y"]},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_enforced(client: openai.OpenAI, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "t", "schema": SCHEMA, "strict": True}}
    answer = ask(
        client, "Say something", response_format=form, seed=1, max_tokens=60, stream=stream
    )
    if stream:
        text = "".join(c.delta.content or "" for chunk in answer for c in chunk.choices)
    else:
        text = answer.choices[0].message.content
    value = json.loads(text)
    assert value["a"] in ("1", "2") and value["b"] in ("x", "y")


def test_a_regex_and_an_ebnf_are_enforced(client: openai.OpenAI) -> None:
    form: Any = {"type": "regex", "regex": "[0-9]{3}-(up|down)"}
    text = ask(client, "Say something", response_format=form, max_tokens=30).choices[0].message
    assert re.fullmatch("[0-9]{3}-(up|down)", text.content)
    own = {"ebnf": 'root ::= "yes" | "no"'}
    text = ask(client, "Say something", extra_body=own, max_tokens=30).choices[0].message
    assert text.content in ("yes", "no")


def test_a_broken_regex_is_refused(client: openai.OpenAI) -> None:
    form: Any = {"type": "regex", "regex": "[a-"}
    with pytest.raises(openai.BadRequestError, match="regex"):
        ask(client, "Say something", response_format=form)


def test_a_forced_tool_is_called(client: openai.OpenAI) -> None:
    tool: Any = {
        "type": "function",
        "function": {"name": "run_sql", "strict": True, "parameters": SCHEMA},
    }
    choice: Any = {"type": "function", "function": {"name": "run_sql"}}
    answer = ask(client, "Say something", tools=[tool], tool_choice=choice, max_tokens=120, seed=2)
    message = answer.choices[0].message
    assert not message.content
    call = message.tool_calls[0]  # random weights may call it again
    assert call.function.name == "run_sql"
    assert json.loads(call.function.arguments)["b"] in ("x", "y")

"""What the command line shows of an answer with a reasoning part."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import ds_jax
from ds_jax import records, terminal
from ds_jax.errors import DsJaxError, StepError
from ds_jax.recipe import conversation, render
from ds_jax.recipe.tokenizer import Tokenizer

TINY = pathlib.Path(ds_jax.__file__).parent / "assets" / "tiny"


class _Pipeline:
    """Answers every request with the same text. Stands for a model."""

    programs = type("Programs", (), {"waited_s": 0.0})
    runner = type("Runner", (), {"programs": programs})

    def __init__(self, answer: str, errors: Mapping[str, DsJaxError] | None = None):
        self.tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
        self.answer = self.tokenizer.encode(answer)
        self.errors = errors or {}

    def chat_prompt(self, message: str, *, thinking: bool) -> list[int]:
        turn = conversation.Conversation(
            (conversation.UserMessage(message),), thinking_mode=thinking
        )
        return self.tokenizer.encode_segments(render.render(turn).segments)

    def requests(self, prompts: list[Any], params: records.SamplingParams) -> list[Any]:
        return [
            records.GenerateRequest(str(n), tuple(ids), params) for n, ids in enumerate(prompts)
        ]

    def events(self, requests: list[records.GenerateRequest]) -> Iterator[records.TokenEvent]:
        for request in requests:
            for index, token in enumerate(self.answer):
                yield records.TokenEvent(request.request_id, index, token, None)
            error = self.errors.get(request.request_id)
            reason = records.FinishReason.STOP if error is None else records.FinishReason.ERROR
            yield records.TokenEvent(
                request.request_id, len(self.answer), None, reason, error=error
            )


def shown(
    capsys: pytest.CaptureFixture[str], prompts: list[str], thinking: bool, output: str
) -> tuple[str, list[records.GenerateRequest]]:
    """Standard output of a session, and its requests."""
    pipeline: Any = _Pipeline("ones first</think>42")
    session = terminal.Session(
        pipeline,
        prompts,
        records.SamplingParams(),
        chat=True,
        thinking=thinking,
        clock=terminal.Clock(),
    )
    session.run(output)
    return capsys.readouterr().out, session.requests


@pytest.mark.parametrize("thinking", [True, False])
def test_the_end_of_reasoning_is_shown_where_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], thinking: bool
) -> None:
    text = "ones first</think>42" if thinking else "ones first42"
    out, (request,) = shown(capsys, ["What is 17 + 25?"], thinking, "text")
    assert out == text + "\n"
    out, _ = shown(capsys, ["one", "two"], thinking, "jsonl")
    assert [json.loads(line)["text"] for line in out.splitlines()] == [text, text]
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    prompt = tokenizer.decode(request.prompt_token_ids)
    assert prompt.endswith("<think>" if thinking else "</think>")


@pytest.mark.parametrize("prompts", [["one"], ["one", "two"]])
def test_an_error_ends_the_session_once_the_others_are_shown(
    capsys: pytest.CaptureFixture[str], prompts: list[str]
) -> None:
    pipeline: Any = _Pipeline("ones", {"0": StepError("the device is gone")})
    session = terminal.Session(
        pipeline, prompts, records.SamplingParams(), chat=True, clock=terminal.Clock()
    )
    with pytest.raises(StepError, match="the device is gone"):
        session.run("text")
    assert capsys.readouterr().out.count("ones") == len(prompts)


def test_only_tokens_count_as_tokens() -> None:
    pipeline: Any = _Pipeline("ones first")
    clock = terminal.Clock()
    session = terminal.Session(
        pipeline, ["one", "two"], records.SamplingParams(), chat=True, clock=clock
    )
    session.run("text")
    assert clock.tokens == 2 * len(pipeline.answer)

"""What the command line shows of an answer with a reasoning part."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import ds_jax
from ds_jax import records, terminal
from ds_jax.recipe import conversation, render
from ds_jax.recipe.tokenizer import Tokenizer

TINY = pathlib.Path(ds_jax.__file__).parent / "assets" / "tiny"


class _Pipeline:
    """Answers every request with the same text. Stands for a model."""

    runner = type("Runner", (), {"compile_s": 0.0})

    def __init__(self, answer: str):
        self.tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
        self.answer = self.tokenizer.encode(answer)

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
            stop = records.FinishReason.STOP
            yield records.TokenEvent(request.request_id, len(self.answer), None, stop)


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

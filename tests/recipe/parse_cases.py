"""Parse cases: options and backend chunks through a library, and what came out of each push.

`library` is `ds_jax.recipe` or any module with the same public names, so the same functions replay
recorded cases and compare two libraries with each other.
"""

from __future__ import annotations

import functools
import json
from types import ModuleType
from typing import Any

from tests.recipe import golden_cases, stream_cases

_STAGES = {
    None: None,
    "reasoning_start": "ReasoningStart",
    "reasoning_continuation": "ReasoningContinuation",
    "content_continuation": "ContentContinuation",
}


def run(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """What a case gives, as the recorded cases hold it: short forms of the chunks of each push."""
    shown: list[Any] = []
    for call, texts in calls(library, case):
        if call == "error":
            return {"pushes": [*shown, {"runtime_error": texts[0]}], "finished": False}
        events = list(map(_short, texts))
        shown.append(events if call == "push" else {"finish_call": events})
    return {"pushes": shown, "finished": True}


def calls(library: ModuleType, case: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What each call of the processor gave: chunks as JSON with numbered ids, or an error's text.

    The calls are `push` for each chunk, and `finish` if that did not end the stream.
    """
    processor = make_processor(library, case)
    made: list[tuple[str, list[str]]] = []
    for data in stream_cases.until_finished(processor, case["chunks"]):
        try:
            made.append(("push", _texts(processor.push(stream_cases.chunk(library, data)))))
        except RuntimeError as error:
            return [*made, ("error", [str(error)])]
    if not processor.finished:
        made.append(("finish", _texts(processor.finish())))
    return made


def make_processor(library: ModuleType, case: dict[str, Any]) -> Any:
    """A processor with the options of a case, before its first chunk."""
    converted = _converted(library, case.get("thinking", True))
    generator = library.ChatCompletionRequest.chunk_generator(converted, "id", "m")
    given = options(library, case["options"])
    return library.StreamProcessor(generator, given, tokenizer_of(library, case))


@functools.cache
def _converted(library: ModuleType, thinking: bool) -> Any:
    body = {
        "model": "DeepSeek-V4.1-Flash",
        "messages": [{"role": "user", "content": "x"}],
        "thinking": {"type": "enabled" if thinking else "disabled"},
    }
    return library.ChatCompletionRequest(body).convert(library.ConversionOptions())


def options(library: ModuleType, data: dict[str, Any]) -> Any:
    """Parsing options from their recorded form."""
    keywords = dict(data)
    stage = _STAGES[keywords.pop("thinking_initial_stage", None)]
    spellings = keywords.pop("special_tokens", None)
    if stage is not None:
        keywords["thinking_initial_stage"] = getattr(library.ThinkingInitialStage, stage)
    if spellings:
        keywords["special_tokens"] = library.SpecialTokens(**spellings)
    return library.ParsingOptions(**keywords)


def tokenizer_of(library: ModuleType, case: dict[str, Any]) -> Any:
    """The tokenizer a case names, else None."""
    return _tokenizer(library) if case.get("tokenizer") else None


@functools.cache
def _tokenizer(library: ModuleType) -> Any:
    return library.Tokenizer.from_file(str(golden_cases.GOLDEN / "tokenizer_514.json"))


def _texts(events: list[Any]) -> list[str]:
    return stream_cases.normal([event.to_json() for event in events])


def _short(text: str) -> list[Any]:
    chunk = json.loads(text)
    choice, usage = chunk["choices"][0], chunk.get("usage")
    delta = choice["delta"]
    if delta.get("role"):
        return ["role"]
    if delta.get("tool_calls"):
        call = delta["tool_calls"][0]
        function = call["function"]
        if "id" in call:
            early = "ET" if "_ET_" in call["id"] else ""
            return ["tool_call", call["index"], function["name"], early]
        return ["arguments", call["index"], function["arguments"]]
    if choice["finish_reason"]:
        details = usage.get("completion_tokens_details", {})
        reasoning_tokens = details.get("reasoning_tokens")
        return ["finish", choice["finish_reason"], usage["completion_tokens"], reasoning_tokens]
    if delta.get("reasoning_content") is not None:
        return ["reasoning", delta["reasoning_content"]]
    return ["content", delta["content"]]

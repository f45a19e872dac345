"""Random requests, model outputs and ways to cut them, as plain data for `stream_cases.run`.

The outputs are mostly well formed markup of both versions with broken places, cut anywhere.
"""

from __future__ import annotations

import random
from typing import Any

from ds_jax.recipe.tokenizer import Tokenizer

MODELS = ["DeepSeek-V4.1-Flash", "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"]
_TEXTS = [
    *("a", "b ", "\n", '"', "\\", "é", "😀", "\x01", "\t", "</", "<", "x", "{", "}", "[1]", "END"),
    *("\u2028", "\x7f", "think>", "</think>", "｜DSML｜", "```\n", "```json\n"),
]
_VALUES = [
    *("1", "1.50", "-0", "1e400", "1E5", "true", "null", "[1, 2]", '{"a":1,"a":2}', "bad", '"q"'),
    *('{"z":[1e-7,1e16,12345678901234567890123]}', '"\\ud800"', '"\\u0041"', "", "[", "1e-5"),
    *("0.1", " 5 ", "nan", '\t"a\\', '"\\ud83d', "\\ude00x", '"ab\\u00', '"x\\ud83d\\ude00"'),
    *('\f "q', '"\\u12\\nz"', '"\\/\\b\\f\\r\\t\\"\\\\"', '"\\x"', "[" * 126 + "]" * 126),
]
_NAMES = ["f", "g", "apply_patch", "tool_search", "ns::a", "ns__a", "zz", ""]
_OPENINGS = ["hello", "", 'json ```json\n{"a": 1}\n``` x', '{"k": [1]}', "[2] y"]


def case(rng: random.Random, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """A request, and the chunks of one answer to it."""
    thinking = rng.random() < 0.6
    protocol = rng.choice(["chat", "messages", "responses", "responses"])
    body = {"chat": _chat, "messages": _messages, "responses": _responses}[protocol](rng, thinking)
    tokens = tokenizer if rng.random() < 0.35 else None
    made: dict[str, Any] = {
        "protocol": protocol,
        "body": {"model": rng.choice(MODELS), **body},
        "chunks": chunks(rng, output(rng, thinking), tokens),
        "tokenizer": "tiny" if tokens else None,
    }
    if rng.random() < 0.2:
        made |= {"id": 'i"d\n', "model": "é\x7f\\"}
    if protocol == "messages" and rng.random() < 0.2:
        made["signature"] = "s\n"
    if protocol == "responses" and rng.random() < 0.2:
        made["namespace_tool_map"] = {"f": ["one", "two"], "apply_patch": ["p", "q"]}
    return made


def output(rng: random.Random, thinking: bool) -> str:
    """What a model might write."""
    text = ""
    if thinking and rng.random() < 0.8:
        text += rng.choice(["", "r", "\nrr", _text(rng)])
        text += rng.choice(["</think>", "\n\n</think>", "", "</think>\n\n"])
    text += rng.choice([*_OPENINGS, _text(rng)])
    if rng.random() < 0.6:
        text += _calls(rng)
    return text[: rng.randint(0, len(text))] if rng.random() < 0.3 else text


def chunks(rng: random.Random, text: str, tokenizer: Tokenizer | None) -> list[dict[str, Any]]:
    """The text cut into chunks, mostly between a ready and a finish chunk."""
    made: list[dict[str, Any]] = []
    if rng.random() < 0.9:
        ready = {"prompt_tokens": rng.choice([0, 1, 10, 500])}
        ready["prompt_cache_hit_tokens"] = rng.choice([0, 4, 10])
        made.append({"ready": ready | rng.choice([{}, {"system_fingerprint": 'fp"1'}])})
    longest = rng.choice([1, 3, 8, 40, 400])
    start = 0
    while start < len(text):
        piece = text[start : start + rng.randint(1, longest)]
        start += len(piece)
        if tokenizer is not None and rng.random() < 0.9:
            made.append(_tokens(rng, tokenizer.encode(piece)))
        else:
            made.append({"text": piece, "n": rng.randint(0, 3)})
            if rng.random() < 0.05:
                made.append({"text": "", "n": 0})
    if rng.random() < 0.85:
        made.append({"finish": rng.choice(["stop", "stop", "stop", "length", "content_filter"])})
    return made


def _tokens(rng: random.Random, ids: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = {"tokens": ids}
    if rng.random() < 0.6:
        value = rng.choice([-0.1, -1, 0, -1e-7, -1e-45, float("nan"), rng.uniform(-20, 0)])
        top = [[rng.randint(0, 515), rng.uniform(-20, 0)] for _ in range(rng.randint(0, 2))]
        made["logprobs"] = [[value, top] for _ in ids]
    return made


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(_TEXTS, k=rng.randint(0, 6)))


def _calls(rng: random.Random) -> str:
    space, block = rng.choice([(" ", "calls"), (" ", "calls"), ("", "tool_calls")])
    text = f"{rng.choice(['', chr(10) * 2])}<｜DSML｜{space}{block}>\n"
    for _ in range(rng.randint(0, 3)):
        text += f'<｜DSML｜{space}invoke name="{rng.choice(_NAMES)}">\n'
        for _ in range(rng.randint(0, 3)):
            text += f"<｜DSML｜{space}parameter name={_parameter(rng)}</｜DSML｜{space}parameter>\n"
        text += f"</｜DSML｜{space}invoke>\n"
    return f"{text}</｜DSML｜{space}{block}>{rng.choice(['', chr(10), 'tail'])}"


def _parameter(rng: random.Random) -> str:
    name = f'"{rng.choice(["input", "input", "a", "b"])}"'
    if rng.random() < 0.1:
        name = f"{rng.choice(['', chr(10)])}{name}{chr(9)}"
    if rng.random() < 0.4:
        return f'{name} string="true">{_text(rng)}'
    return f'{name} string="false">{rng.choice([*_VALUES, chr(34) + _text(rng) + chr(34)])}'


def _chat(rng: random.Random, thinking: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "json"}]
    body: dict[str, Any] = {"messages": messages, "stream": rng.random() < 0.7}
    if not thinking:
        body["thinking"] = {"type": "disabled"}
    if body["stream"] and rng.random() < 0.3:
        body["stream_options"] = {"include_usage": rng.random() < 0.7}
    if rng.random() < 0.3:
        body["stop"] = rng.choice(["END", ["x", "END"]])
    if rng.random() < 0.2:
        body["response_format"] = {"type": "json_object"}
    elif rng.random() < 0.8:
        names = ("f", "g", "apply_patch")
        body["tools"] = [{"type": "function", "function": {"name": name}} for name in names]
        if not thinking and rng.random() < 0.3:
            body["tool_choice"] = "required"
    elif rng.random() < 0.5:
        content, reasoning = rng.choice(["", "p"]), rng.choice(["", "q"])
        last = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        messages.append({**last, "prefix": True})
    return body


def _messages(rng: random.Random, thinking: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 50,
        "stream": rng.random() < 0.7,
        "thinking": {"type": "enabled" if thinking else "disabled"},
    }
    if rng.random() < 0.3:
        body["stop_sequences"] = ["x", "END"]
    if rng.random() < 0.7:
        body["tools"] = [{"name": "f", "input_schema": {"type": "object"}}]
    return body


def _responses(rng: random.Random, thinking: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"input": "json", "stream": True}
    if not thinking:
        body["reasoning"] = {"effort": "none"}
    tools: list[dict[str, Any]] = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "a"}]},
        {"type": "tool_search", "execution": "client"},
        {"type": "web_search"},
    ]
    tools[2]["description"] = "d"
    body["tools"] = [tool for tool in tools if rng.random() < 0.6]
    if rng.random() < 0.2:
        body["text"] = {"format": {"type": "json_object"}}
    if rng.random() < 0.3:
        body |= {"temperature": rng.choice([0.3, 1e-7, 2]), "top_p": 0.123456789, "user": "é\n"}
    return body

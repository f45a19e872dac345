"""Random Messages requests: mostly acceptable, with every kind of fault now and then.

`request(rng)` draws one conversion case; any object with the methods of `random.Random` will do, so
Hypothesis can drive it (and shrink) as well as a plain seeded generator.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

_TEXTS = [
    "",
    "a",
    "hello\nworld",
    "<｜image｜>",
    "x-anthropic-billing-header: q",
    'é"\\\x07',
    "json",
]
_IDS = ["1", "2", "3", "call_00_ET_x", "call_00_E_x", "é", ""]
_NAMES = ["f", "g", "d", "web_search", "zz"]
_URLS = ["http://h/i", "HTTPS://é", "httpx", "ftp://h", "zz\u200b\u0301", "http" + "x" * 9000]
_BASE64 = ["AAAA", "AA==", "AA=", "AAA=", "AB==", "!", "", "AAAA="]
_MEDIA = ["image/png", "image/jpg", "image/jpeg", "image/gif", "image/webp", "image/bmp"]
_SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1e-7, 1.0]}}},
    {"type": "string"},
    {},
    None,
    True,
    {"type": "object", "properties": 5},
]
_VALUES: list[Any] = [
    *(None, True, 0, -1, 5, 2**32, 2**63, 1.5, 1e-7, 1e16, "", "x", "auto", "none", [], [1], {}),
    *({"type": "text"}, {"type": "text", "text": "t"}, ["text", "t"], {"low": None}),
]


def request(rng: random.Random) -> Json:
    """One case for `conversion_cases.run`: a body, options, and what to look at."""
    body: Json = {
        "model": _often(rng, 0.97, ["DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"], ["claude"])
    }
    tools = _tools(rng) if rng.random() < 0.6 else None
    if tools is not None:
        body["tools"] = tools
    body["messages"] = _messages(rng)
    for name, draw in _PARAMETERS.items():
        if rng.random() < 0.25:
            body[name] = draw(rng)
    keys = list(body)
    rng.shuffle(keys)
    body = {key: body[key] for key in keys}
    body = json.loads(json.dumps(body))  # no values shared with the tables below
    if rng.random() < 0.12:
        _damage(rng, body)
    return {
        "protocol": "messages",
        "body": body,
        "options": _options(rng),
        "render": rng.random() < 0.5,
        "resolve_max_tokens": [[rng.choice([0, 5, 990]), 1000]],
    }


def _often(rng: random.Random, share: float, usual: list[Any], other: list[Any]) -> Any:
    return rng.choice(usual if rng.random() < share else other)


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)


def _image(rng: random.Random) -> Json:
    kind = rng.random()
    if kind < 0.5:
        source = {"type": "url", "url": _often(rng, 0.8, _URLS[:2], _URLS)}
    elif kind < 0.95:
        media, data = _often(rng, 0.95, _MEDIA[:5], _MEDIA), _often(rng, 0.8, _BASE64[:4], _BASE64)
        source = {"type": "base64", "media_type": media, "data": data}
    else:
        source = {"type": "file", "file_id": "f"}
    return {"type": "image", "source": source}


def _document(rng: random.Random) -> Json:
    return {"type": "document", "source": rng.choice([{}, {"type": "text", "media_type": "a/b"}])}


def _thinking(rng: random.Random) -> Json:
    block = {"type": "thinking", "thinking": _text(rng)}
    return block | ({"signature": "s"} if rng.random() < 0.5 else {})


def _tool_use(rng: random.Random) -> Json:
    value = rng.choice([{}, {"a": [1e-7, 1e16, -0.0, 3], "é": "\x01"}, "s", [1, 2], None])
    name = rng.choice(_NAMES)
    return {"type": "tool_use", "id": rng.choice(_IDS), "name": name, "input": value}


def _tool_result(rng: random.Random, tool_use_id: str | None = None) -> Json:
    block: Json = {
        "type": "tool_result",
        "tool_use_id": rng.choice(_IDS) if tool_use_id is None else tool_use_id,
    }
    content = rng.random()
    if content < 0.3:
        block["content"] = _text(rng)
    elif content < 0.9:
        block["content"] = [_result_part(rng) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.1:
        block["is_error"] = rng.choice([True, None])
    return block


def _result_part(rng: random.Random) -> Json:
    kind = rng.random()
    if kind < 0.5:
        return {"type": "text", "text": _text(rng)}
    if kind < 0.65:
        return _image(rng)
    if kind < 0.75:
        return _document(rng)
    return {"type": "tool_reference", "tool_name": _often(rng, 0.9, _NAMES[:3], _NAMES)}


def _server_block(rng: random.Random) -> Json:
    if rng.random() < 0.5:
        return {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    return {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


def _tool_addition(rng: random.Random) -> Json:
    name = _often(rng, 0.9, _NAMES[:3], _NAMES)
    return {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}


def _plain(rng: random.Random) -> Json:
    return {"type": "text", "text": _text(rng)}


_BLOCKS: list[Callable[[random.Random], Json]] = [
    *(_plain, _image, _document, _thinking, _tool_use, _tool_result, _server_block, _tool_addition)
]
_USUAL: dict[str, list[Callable[[random.Random], Json]]] = {
    "user": [_plain, _plain, _image, _document],
    "assistant": [_plain, _plain, _thinking, _document],
    "system": [_plain, _plain, _image, _tool_addition, _document],
}


def _blocks(rng: random.Random, role: str) -> list[Json]:
    count = rng.randint(0 if rng.random() < 0.05 else 1, 4)
    return [_often(rng, 0.96, _USUAL[role], _BLOCKS)(rng) for _ in range(count)]


def _messages(rng: random.Random) -> list[Json]:
    messages: list[Json] = []
    for _ in range(rng.randint(0 if rng.random() < 0.05 else 1, 5)):
        role = rng.choice(["user", "user", "assistant", "assistant", "system"])
        content: Any = _text(rng) if rng.random() < 0.3 else _blocks(rng, role)
        messages.append({"role": role, "content": content})
        if role == "assistant" and isinstance(content, list) and rng.random() < 0.6:
            messages.extend(_asked_and_answered(rng, content))
    if rng.random() < 0.05:
        rng.shuffle(messages)
    return messages


def _asked_and_answered(rng: random.Random, content: list[Json]) -> list[Json]:
    """Adds calls to an assistant's content; the user message that answers them, or not quite."""
    ids = rng.sample(_IDS, rng.randint(1, 3))
    content.extend(_tool_use(rng) | {"id": tool_use_id} for tool_use_id in ids)
    if rng.random() < 0.1:
        content.insert(rng.randint(0, len(content)), rng.choice(_BLOCKS)(rng))
    rng.shuffle(ids)
    results = [_tool_result(rng, tool_use_id) for tool_use_id in ids]
    fault = rng.random()
    if fault < 0.05:
        results.pop()
    elif fault < 0.1:
        results.insert(rng.randint(0, len(results)), rng.choice(_BLOCKS)(rng))
    elif fault < 0.12:
        return []
    results.extend(
        _often(rng, 0.95, _USUAL["user"], _BLOCKS)(rng) for _ in range(rng.randint(0, 2))
    )
    return [{"role": "user", "content": results}]


def _tools(rng: random.Random) -> list[Json]:
    names = rng.sample(_NAMES[:3], rng.randint(0, 3))
    tools: list[Json] = []
    for name in names:
        tool: Json = {"name": name, "input_schema": _often(rng, 0.97, _SCHEMAS[:2], _SCHEMAS)}
        if rng.random() < 0.3:
            tool["description"] = rng.choice(["D", None, "日本"])
        if rng.random() < 0.3:
            tool["defer_loading"] = rng.choice([True, True, False, None])
        if rng.random() < 0.2:
            tool["strict"] = True
        tools.append(tool)
    fault = rng.random()
    if fault < 0.1:
        kind = _often(rng, 0.8, ["web_search_20250305", "web_search"], ["custom", "bash_1"])
        tools.insert(rng.randint(0, len(tools)), {"type": kind, "name": "web_search"})
    elif fault < 0.14:
        name = rng.choice(["f", "", "bad name", "x" * 128, "x" * 129, "é"])
        tools.append({"name": name, "input_schema": {"type": "object"}})
    return tools


def _choice(rng: random.Random) -> Json:
    kind = rng.choice(["auto", "any", "tool", "none"])
    if kind == "tool":
        return {"type": kind, "name": _often(rng, 0.8, _NAMES[:2], _NAMES)}
    return {"type": kind} | ({"disable_parallel_tool_use": True} if rng.random() < 0.2 else {})


def _system(rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return _text(rng)
    return [_plain(rng) for _ in range(rng.randint(0, 3))]


def _stop(rng: random.Random) -> list[str]:
    if rng.random() < 0.05:
        return ["s"] * 17
    return [_often(rng, 0.95, ["a", "\n", "é"], [""]) for _ in range(rng.randint(0, 3))]


_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]
_PARAMETERS: dict[str, Callable[[random.Random], Any]] = {
    "max_tokens": lambda rng: _often(rng, 0.9, [1, 5, 50, 995, 400000], [0, None]),
    "system": _system,
    "stop_sequences": _stop,
    "stream": lambda rng: rng.choice([True, False, None]),
    "temperature": lambda rng: _often(rng, 0.9, [0, 0.3, 1, 2.0, None], [-0.1, 2.1, 1e39, -0.0]),
    "top_p": lambda rng: _often(rng, 0.9, [0.1, 0.96, 1, None], [0, 1.1, 1e-50, 1.00000001]),
    "tool_choice": _choice,
    "thinking": lambda rng: rng.choice(
        [
            {"type": "disabled"},
            {"type": "disabled"},
            {"type": "adaptive"},
            {"type": "enabled", "budget_tokens": 5},
        ]
    ),
    "output_config": lambda rng: rng.choice([{"effort": rng.choice(_EFFORTS)}, {}, None]),
    "metadata": lambda rng: rng.choice([{"user_id": "u"}, {}, None]),
    "top_k": lambda rng: 5,
}


def _options(rng: random.Random) -> Json:
    drawn: Json = {
        "default_thinking_mode": rng.random() < 0.5,
        "reasoning_content_behavior": rng.choice(["fill_empty", "reject"]),
        "messages_web_search": rng.choice(["drop", "reject"]),
        "thinking_max_tokens_upper_bound": rng.choice([100, 393216]),
        "non_thinking_max_tokens_upper_bound": rng.choice([40, 393216]),
        "special_tokens": {"image": "<IMG>"},
        "model_aliases": {"claude": "v4"},
    }
    return {name: value for name, value in drawn.items() if rng.random() < 0.25}


def _damage(rng: random.Random, body: Json) -> None:
    """Replaces, drops, adds or renames something somewhere. Mutates `body`."""
    spot: Any = body
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = spot[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.75:
            spot = inner
            continue
        what = rng.random()
        if what < 0.7:
            spot[key] = rng.choice(_VALUES)
        elif what < 0.85:
            del spot[key]
        elif isinstance(spot, dict):
            spot[rng.choice(["type", "name", "content", "role", "input", "id"])] = spot.pop(key)
        else:
            spot.append(rng.choice(_VALUES))
        return

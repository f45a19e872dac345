"""Random Responses requests: mostly acceptable, with every kind of fault now and then.

`request(rng)` draws one conversion case; any object with the methods of `random.Random` will do, so
Hypothesis can drive it (and shrink) as well as a plain seeded generator.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

_TEXTS = ["", "a", "hello\nworld", "<｜image｜>", 'é"\\\x07', "Json", "\n", "[Unsupported Image]"]
_IDS = ["1", "2", "3", "10", "call_00_ET_x", "call_00_E_x", "é", "Z", "a"]
_NAMES = ["f", "g", "h", "apply_patch", "tool_search", "a__f", "a__b__f", "f_1"]
_NAMESPACES = ["a", "b", "a__b", "f"]
_URLS = [
    *("http://h/i", "HTTPS://é", "data:image/png;base64,AAAA", "data:image/webp;base64,AA=="),
    *("httpx", "ftp://h", "zz", "", "data:image/bmp;base64,AAAA", "data:image/png;base64,A"),
    *("data:image/png,AAAA", " data:IMAGE/GIF ; base64,", "http" + "x" * 9000),
    *("data:image/png;base64,AA==\x00 ", "data:image/png;base64,A%41=#x"),
]
_SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1e-7, 1.0]}}},
    {"type": "object", "properties": {}},
    {"type": "string"},
    {},
    None,
    True,
    5,
]
_STRICT: list[Any] = [
    {"type": "object", "properties": {"b": {"type": "string", "x": 1}, "a": {"$ref": "#/q"}}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}},
    None,
    {"type": "object", "properties": {}},
    {"type": "object", "additionalProperties": True, "properties": {"a": {"type": "null"}}},
    {"anyOf": []},
    {},
]
_VALUES: list[Any] = [
    *(None, True, 0, -1, 5, 2**32, 2**63, 1.5, 1e-7, 1e16, "", "x", "auto", "none", [], [1], {}),
    *({"type": "text"}, {"type": "input_text", "text": "t"}, ["input_text", "t"], {"low": None}),
    *({"type": "message", "role": "user", "content": [{"type": 0, "text": "t"}]}, {"type": 3}),
    *({"type": "function", "name": "f"}, ["function", "f", None, None, None], {"role": "user"}),
]


def request(rng: random.Random) -> Json:
    """One case for `conversion_cases.run`: a body, options, and what to look at."""
    body: Json = {
        "model": _often(rng, 0.97, ["DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"], ["claude"])
    }
    if rng.random() < 0.6:
        body["tools"] = [_tool(rng) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.9:
        body["input"] = _text(rng) if rng.random() < 0.1 else _items(rng)
    for name, draw in _PARAMETERS.items():
        if rng.random() < 0.15:
            body[name] = draw(rng)
    keys = list(body)
    rng.shuffle(keys)
    body = json.loads(json.dumps({key: body[key] for key in keys}))  # shares nothing with tables
    if rng.random() < 0.12:
        _damage(rng, body)
    return {
        "protocol": "responses",
        "body": body,
        "options": _options(rng),
        "render": rng.random() < 0.2,
        "want_namespace_map": True,
        "resolve_max_tokens": [[rng.choice([0, 5, 990]), 1000]],
    }


def _often(rng: random.Random, share: float, usual: list[Any], other: list[Any]) -> Any:
    return rng.choice(usual if rng.random() < share else other)


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)


def _maybe(rng: random.Random, share: float, name: str, draw: Callable[[], Any]) -> Json:
    return {name: draw()} if rng.random() < share else {}


# Tools ---------------------------------------------------------------------------------------


def _function(rng: random.Random) -> Json:
    tool = {
        "type": "function",
        "name": _often(rng, 0.98, _NAMES, ["", "a b", "x" * 128, "x" * 129, "é"]),
    }
    if rng.random() < 0.1:
        tool |= {"strict": True, "parameters": _often(rng, 0.7, _STRICT[:4], _STRICT)}
    elif rng.random() < 0.5:
        tool["parameters"] = _often(rng, 0.9, _SCHEMAS[:3], _SCHEMAS)
    return {
        **tool,
        **_maybe(rng, 0.4, "description", lambda: rng.choice([None, "", "does it"])),
        **_maybe(rng, 0.2, "strict", lambda: rng.choice([None, False])),
        **_maybe(rng, 0.1, "defer_loading", lambda: True),
    }


def _namespace(rng: random.Random) -> Json:
    members = [_function(rng) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.02:
        members.insert(rng.randint(0, len(members)), {"type": "custom", "name": "apply_patch"})
    return {
        "type": "namespace",
        "name": _often(rng, 0.98, _NAMESPACES, ["", "a::b", "x" * 129]),
        "tools": members,
        **_maybe(rng, 0.4, "description", lambda: rng.choice([None, "", "about"])),
    }


def _tool(rng: random.Random) -> Json:
    kind = rng.random()
    if kind < 0.45:
        return _function(rng)
    if kind < 0.7:
        return _namespace(rng)
    if kind < 0.78:
        name = _often(rng, 0.95, ["apply_patch"], ["other", ""])
        return {"type": "custom", "name": name, "format": {"type": "text"}}
    if kind < 0.88:
        return {
            "type": "tool_search",
            **_maybe(rng, 0.8, "execution", lambda: rng.choice(["client"] * 4 + ["server", None])),
            **_maybe(rng, 0.3, "description", lambda: rng.choice([None, "", "find"])),
            **_maybe(rng, 0.3, "parameters", lambda: _often(rng, 0.8, _SCHEMAS[:3], _SCHEMAS)),
        }
    if kind < 0.95:
        return {
            "type": rng.choice(["web_search", "web_search_2025_08_26"]),
            **_maybe(rng, 0.3, "search_context_size", lambda: rng.choice(["low", None])),
            **_maybe(rng, 0.3, "user_location", lambda: rng.choice([None, {"city": "x", "q": 1}])),
        }
    return {"type": rng.choice(["web_search_preview", "mcp", ""])}


# Items ---------------------------------------------------------------------------------------


def _image(rng: random.Random) -> Json:
    image = {"type": "input_image", "image_url": _often(rng, 0.9, _URLS[:4], _URLS)}
    image |= _maybe(rng, 0.3, "detail", lambda: rng.choice(["low", "high", "original", "auto"]))
    image |= _maybe(rng, 0.03, "file_id", lambda: rng.choice(["f", ""]))
    if rng.random() < 0.03:
        del image["image_url"]
    return image


def _parts(rng: random.Random, kinds: list[str]) -> Any:
    if rng.random() < 0.4:
        return _text(rng)
    parts: list[Json] = []
    for _ in range(rng.randint(0, 3)):
        kind = rng.random()
        if kind < 0.6:
            parts.append({"type": rng.choice(kinds), "text": _text(rng)})
        else:
            parts.append(_image(rng) if kind < 0.85 else {"type": "input_file", "file_id": 5})
    return parts


def _message(rng: random.Random) -> Json:
    role = rng.choice(["user", "user", "assistant", "assistant", "system", "developer"])
    content = _parts(rng, ["input_text", "output_text"])
    if role == "assistant" and rng.random() < 0.9:
        content = _text(rng)
    return {**_maybe(rng, 0.5, "type", lambda: "message"), "role": role, "content": content}


def _reasoning(rng: random.Random) -> Json:
    texts = [{"type": "reasoning_text", "text": _text(rng)} for _ in range(rng.randint(0, 2))]
    return {
        "type": "reasoning",
        "summary": [],
        **_maybe(rng, 0.9, "content", lambda: texts),
        **_maybe(rng, 0.2, "encrypted_content", lambda: rng.choice(["e", None])),
    }


def _call(rng: random.Random, call_id: str) -> Json:
    kind = rng.random()
    if kind < 0.5:
        arguments = rng.choice(["{}", '{"a": 1e-7}', "", "no"])
        return {
            "type": "function_call",
            "call_id": call_id,
            "name": rng.choice([*_NAMES, ""]),
            "arguments": arguments,
            **_maybe(rng, 0.5, "namespace", lambda: rng.choice([*_NAMESPACES, "a::b", "", None])),
        }
    if kind < 0.7:
        name = rng.choice(["apply_patch", "x"])
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": _text(rng)}
    arguments = rng.choice([{}, {"b": [1e-7, 1e16, -0.0], "a": {"é": "\x01"}}])
    return {
        "type": "tool_search_call",
        "call_id": call_id,
        "execution": "client",
        "arguments": arguments,
    }


def _output(rng: random.Random, call_id: str, kind: str | None) -> Json:
    kind = kind or rng.choice(["function_call", "custom_tool_call", "tool_search_call"])
    if kind == "tool_search_call":
        tools = [_tool(rng) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.9:
            tools = [tool for tool in tools if tool["type"] not in ("web_search_preview", "mcp")]
        return {
            "type": "tool_search_output",
            "call_id": call_id,
            "execution": "client",
            "tools": tools,
        }
    output: Json = {"type": f"{kind}_output", "call_id": call_id}
    output["output"] = _parts(rng, ["input_text"])
    if kind == "function_call" and rng.random() < 0.03:
        output["call_id"] = None
    if kind == "custom_tool_call" and rng.random() < 0.1:
        output["output"] = None
    return output


def _group(rng: random.Random, ids: list[str]) -> list[Json]:
    """Calls and outputs, interleaved, each output after its call."""
    calls = [_call(rng, call_id) for call_id in ids]
    items: list[Json] = []
    waiting: list[Json] = []
    while calls or waiting:
        if calls and (not waiting or rng.random() < 0.6):
            waiting.append(calls.pop(0))
            items.append(waiting[-1])
        else:
            call = waiting.pop(rng.randrange(len(waiting)))
            kind = call["type"] if rng.random() < 0.85 else None
            items.append(_output(rng, call["call_id"], kind))
    return items


def _items(rng: random.Random) -> list[Json]:
    free = rng.sample(_IDS, len(_IDS))
    items: list[Json] = []
    for _ in range(rng.randint(1, 6) if rng.random() < 0.98 else 0):
        kind = rng.random()
        if kind < 0.45:
            items.append(_message(rng))
        elif kind < 0.6:
            items.append(_reasoning(rng))
        elif kind < 0.9:
            count = min(len(free), rng.randint(1, 3))
            items += _group(rng, [free.pop() for _ in range(count)])
        else:
            other = ["web_search_call", "item_reference", "computer_call", "compaction"]
            items.append({"type": rng.choice(other), "id": "x"})
    if items and rng.random() < 0.15:
        _disturb(rng, items)
    return items


def _disturb(rng: random.Random, items: list[Json]) -> None:
    """One fault in the order or the ids."""
    place = rng.randrange(len(items))
    kind = rng.random()
    if kind < 0.3:
        del items[place]
    elif kind < 0.5:
        items.insert(rng.randint(0, len(items)), dict(items[place]))
    elif kind < 0.7:
        draw = rng.choice([_message, _reasoning])
        items.insert(place, draw(rng))
    elif kind < 0.8:
        items.insert(place, {"type": "web_search_call"})
    elif "call_id" in items[place]:
        items[place]["call_id"] = rng.choice([*_IDS, ""])


# Settings ------------------------------------------------------------------------------------


def _format(rng: random.Random) -> Json:
    kind = rng.random()
    if kind < 0.3:
        return {"type": "text"}
    if kind < 0.6:
        return {"type": "json_object"}
    strict = rng.choice([None, True, False])
    schemas = _STRICT if strict else _SCHEMAS
    return {
        "type": "json_schema",
        "name": rng.choice(["n", ""]),
        "schema": rng.choice(schemas),
        **_maybe(rng, 0.5, "strict", lambda: strict),
        **_maybe(rng, 0.3, "description", lambda: "d"),
    }


def _choice(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(["none", "auto", "required", None])
    if kind < 0.9:
        name = rng.choice([*_NAMES, "a::f", "b::g"])
        return {"type": rng.choice(["function", "custom"]), "name": name}
    return {"type": rng.choice(["web_search", "web_search_2025_08_26", "allowed_tools"])}


_EFFORTS = ["none", "none", "none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]
_SUMMARIES = ["auto", "concise", "detailed", None]
_PARAMETERS: dict[str, Callable[[random.Random], Any]] = {
    "instructions": _text,
    "max_output_tokens": lambda rng: _often(rng, 0.8, [1, 300, None], [0, 393216, 393217]),
    "reasoning": lambda rng: {
        **_maybe(rng, 0.9, "effort", lambda: rng.choice(_EFFORTS)),
        **_maybe(rng, 0.2, "summary", lambda: rng.choice(_SUMMARIES)),
        **_maybe(rng, 0.2, "generate_summary", lambda: rng.choice(_SUMMARIES)),
    },
    "stream": lambda rng: rng.choice([True, False, None]),
    "temperature": lambda rng: _often(rng, 0.9, [0, 0.3, 1, 2, None], [-1, 2.1, 1e300]),
    "top_p": lambda rng: _often(rng, 0.9, [0.5, 0.96, 1, None], [0, 1.1]),
    "top_logprobs": lambda rng: _often(rng, 0.9, [0, 5, 20, None], [21]),
    "text": lambda rng: {
        **_maybe(rng, 0.9, "format", lambda: _format(rng)),
        **_maybe(rng, 0.3, "verbosity", lambda: rng.choice(["low", "medium", "high", None])),
    },
    "tool_choice": _choice,
    "user": _text,
    "store": lambda rng: rng.choice(_VALUES),
    "previous_response_id": lambda rng: rng.choice(_VALUES),
}


def _options(rng: random.Random) -> Json:
    return {
        **_maybe(rng, 0.2, "default_thinking_mode", lambda: False),
        **_maybe(rng, 0.2, "reasoning_content_behavior", lambda: "reject"),
        **_maybe(rng, 0.15, "responses_web_search", lambda: "reject"),
        **_maybe(rng, 0.1, "thinking_max_tokens_upper_bound", lambda: 200),
        **_maybe(rng, 0.1, "non_thinking_max_tokens_upper_bound", lambda: 0),
        **_maybe(rng, 0.1, "special_tokens", lambda: {"image": rng.choice(["[IMG]", "", "a"])}),
        **_maybe(rng, 0.1, "model_aliases", lambda: {"claude": "v4"}),
        **_maybe(rng, 0.05, "model_versions_by_name", lambda: {"DeepSeek-V4-Pro": "v41"}),
    }


def _damage(rng: random.Random, value: Any) -> None:
    """Mutates: puts a wrong value somewhere, or takes one away."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            value = inner
            continue
        if rng.random() < 0.2:
            del value[key]
        else:
            value[key] = json.loads(json.dumps(rng.choice(_VALUES)))
        return

"""Random Chat Completions requests: mostly sensible bodies, some of them damaged.

`request(rng)` is a case for `conversion_cases.run`.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

MODELS = ("DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro", "unknown")
WORDS = ("hi", "", "json", "JSON mode", "<｜image｜>", "é😀", "x\ny", "You are", "</think>")
HEADER = "x-anthropic-billing-header: a"
URLS = (
    "http://a/b.png",
    "HTTPS://a",
    "zzz",
    "http://" + "a" * 8186,
    "data:image/png;base64,AA==",
    "data:image/bmp;base64,AA==",
    "data:image/png;base64,A",
    "data:image/png,AA",
    " DATA:image/webp;x=base64,;base64,AA%3D#f",
)
SCALARS = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    300,
    2**33,
    2**63,
    0.5,
    1.0,
    -0.0,
    1e300,
    "",
    "x",
    "auto",
)
SCHEMAS = (
    None,
    {},
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1}}},
    {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "#/$def/b"}}, "$def": {"b": {"type": "null"}}},
    {"type": "object", "required": ["q"], "properties": {"a": {"type": "string"}}},
    {"type": "object", "additionalProperties": True, "properties": {"a": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1.5}}},
    {"type": "object", "properties": 5},
    {"type": "object", "required": "a"},
    {"type": "string"},
    {"type": "array", "items": {"$ref": "#/nope"}},
    {"properties": {}},
    True,
    5,
    [],
)


def request(rng: random.Random) -> dict[str, Any]:
    """A body as Python values, text or bytes, and conversion options."""
    maker = _Maker(rng)
    body = maker.body()
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        body = maker.damaged(body)
    case: dict[str, Any] = {"protocol": "chat", "options": maker.options()}
    form = rng.choice(("body", "body_text", "body_hex"))
    if form == "body":
        case["body"] = body
    elif form == "body_text":
        case["body_text"] = json.dumps(body)
    else:
        case["body_hex"] = json.dumps(body, ensure_ascii=False).encode().hex()
    case["render"] = rng.random() < 0.3
    case["resolve_max_tokens"] = [[rng.choice((0, 10, 9000)), rng.choice((5, 50, 10_000, 10**6))]]
    return case


class _Maker:
    """Makes the parts of a request from a source of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def options(self) -> dict[str, Any]:
        """Conversion options of a case."""
        options: dict[str, Any] = {}
        if self._maybe(0.3):
            options["default_thinking_mode"] = False
        if self._maybe(0.3):
            options["reasoning_content_behavior"] = self._rng.choice(("reject", "fill_empty"))
        if self._maybe(0.2):
            options["thinking_max_tokens_upper_bound"] = self._rng.choice((1, 100))
        if self._maybe(0.2):
            options["non_thinking_max_tokens_upper_bound"] = self._rng.choice((0, 50))
        if self._maybe(0.1):
            options["special_tokens"] = {"image": self._rng.choice(("I", "x", "<img>"))}
        if self._maybe(0.1):
            options["model_aliases"] = {"unknown": self._rng.choice(("v4", "v41"))}
        return options

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    def body(self) -> dict[str, Any]:
        """A sensible request body."""
        pick = self._rng.choice
        body: dict[str, Any] = {
            "model": self._rng.choices(MODELS, (60, 38, 2))[0],
            "messages": self._messages(),
        }
        optional: dict[str, Any] = {
            "frequency_penalty": pick((-2, 0, 1.5, 2.1)),
            "presence_penalty": pick((-2.5, 0, 2)),
            "logprobs": pick((True, True, False, None)),
            "top_logprobs": pick((0, 5, 20, 21)),
            "max_tokens": pick((0, 1, 40, 80, 393216, 393217)),
            "n": pick((0, 1, 1, 2)),
            "seed": pick((0, 5, 2**63 - 1, 2**63)),
            "stop": pick(("a", "", ["a", "b"], [], ["a", ""], ["a"] * 17, ["a"] * 16)),
            "stream": pick((True, False, None)),
            "stream_options": pick((None, {}, {"include_usage": True}, {"include_usage": False})),
            "temperature": pick((0, 0.7, 2, 2.5, -0.1)),
            "top_p": pick((0, 0.3, 0.95, 0.96, 1, 1.1)),
            "thinking": pick((None, {"type": "enabled"}, {"type": "disabled"}))
            or {"type": "adaptive", "budget_tokens": 5},
            "reasoning_effort": pick(
                ("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", None)
            ),
            "response_format": self._format(),
            "tools": [self._tool() for _ in range(pick((0, 1, 1, 2, 3)))],
            "tool_choice": pick(
                ("none", "auto", "required", None)
                + ({"type": "function", "function": {"name": pick(("f", "g", "zz"))}},) * 2
            ),
            "parallel_tool_calls": pick((True, False, None)),
            "user": 5,
            "max_completion_tokens": "x",
        }
        chance = pick((0.05, 0.15, 0.3))
        if pick((True, False)):
            optional["n"] = 1
            optional["seed"] = optional["max_tokens"] = 1
            optional["top_p"] = optional["temperature"] = 0.5
        body |= {key: value for key, value in optional.items() if self._maybe(chance)}
        return body

    def _tool(self) -> Any:
        pick = self._rng.choice
        names = ("f", "g", "h", "f", "g", "h", "f", "g", "", "a b", "n" * 128, "n" * 129, "é")
        function: dict[str, Any] = {"name": pick(names)}
        if self._maybe(0.7):
            function["parameters"] = pick(SCHEMAS[1:5] if self._maybe(0.7) else SCHEMAS)
        if self._maybe(0.3):
            function["description"] = pick(("d", "", None))
        if self._maybe(0.3):
            function["strict"] = pick((True, False, None))
        return {"type": "function", "function": function}

    def _format(self) -> Any:
        schema = self._rng.choice(SCHEMAS[2:6] if self._maybe(0.6) else SCHEMAS)
        inner = {"schema": schema, "name": "n", "strict": self._rng.choice((True, False, None))}
        return self._rng.choice(
            (
                None,
                {"type": "text"},
                {"type": "json_object"},
                {"type": "json_schema", "json_schema": inner},
                {"type": "regex", "regex": "[a-"},
            )
        )

    def _messages(self) -> list[Any]:
        messages: list[Any] = []
        for _ in range(self._rng.choice((0, 1, 1, 2, 3, 4))):
            role = self._rng.choice(("system", "user", "user", "assistant", "tools", "reminder"))
            if role == "tools":
                messages += self._tool_turn()
            elif role == "reminder":
                messages.append({"role": "latest_reminder", "content": self._word()})
            elif role == "assistant":
                messages.append(self._assistant())
            else:
                messages.append({"role": role, "content": self._content(role == "user")})
        if messages and self._maybe(0.7):
            messages.append({"role": "user", "content": self._content(True)})
        elif self._maybe(0.3):
            messages.append({**self._assistant(), "prefix": True})
        if self._maybe(0.05):
            self._rng.shuffle(messages)
        return messages

    def _assistant(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._content(False)}
        if self._maybe(0.5):
            message["reasoning_content"] = self._rng.choice(("r", "", None))
        if self._maybe(0.1):
            message["content"] = None
        if self._maybe(0.05):
            message["tool_calls"] = []
        if self._maybe(0.05):
            message["prefix"] = True
        return message

    def _tool_turn(self) -> list[Any]:
        ids = self._rng.sample(
            ("1", "2", "call_00_ET_x", "call_00_ET", ""), self._rng.choice((1, 2))
        )
        calls = [
            {"id": id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            for id in ids
        ]
        message = {**self._assistant(), "tool_calls": calls}
        results = [
            {"role": "tool", "tool_call_id": id, "content": self._content(True)} for id in ids
        ]
        if self._maybe(0.2):
            self._rng.shuffle(results)
        if self._maybe(0.1):
            results.pop()
        if self._maybe(0.1):
            results.append({"role": "tool", "tool_call_id": "9", "content": "x"})
        if self._maybe(0.05):
            calls.append(copy.deepcopy(calls[0]))
        return [message, *results]

    def _word(self) -> str:
        if self._maybe(0.1):
            return HEADER + self._rng.choice(("", " You are X", "\n\n y", "\nYou are\nz"))
        return self._rng.choice(WORDS)

    def _content(self, images: bool) -> Any:
        if self._maybe(0.6):
            return self._word()
        blocks: list[Any] = []
        for _ in range(self._rng.choice((0, 1, 2, 3))):
            if not self._maybe(0.35 if images else 0.03):
                blocks.append({"type": "text", "text": self._word()})
            elif self._maybe(0.7):
                url: dict[str, Any] = {"url": self._rng.choice(URLS)}
                if self._maybe(0.3):
                    url["detail"] = self._rng.choice(("low", "high", "original", "auto", None))
                blocks.append({"type": "image_url", "image_url": url})
            else:
                keys = self._rng.sample(
                    ("file_id", "file_data", "filename"), self._rng.choice((1, 2))
                )
                blocks.append({"type": "file", **{key: self._rng.choice(URLS) for key in keys}})
        return blocks

    # Damage ----------------------------------------------------------------------------------

    def damaged(self, body: Any) -> Any:
        """A copy with one place changed: dropped, replaced, renamed, added, or made an array."""
        body = copy.deepcopy(body)
        places = [place for place in _places(body) if place]
        if not places:
            return body
        *path, last = self._rng.choice(places)
        parent = body
        for step in path:
            parent = parent[step]
        kind = self._rng.choice(("drop", "replace", "replace", "swap", "array", "add", "word"))
        if kind == "drop":
            del parent[last]
        elif kind == "replace":
            parent[last] = self._rng.choice((*SCALARS, [], {}, [1], {"a": None}))
        elif kind == "swap":
            other: Any = body
            for step in self._rng.choice(places):
                other = other[step]
            parent[last] = copy.deepcopy(other)
        elif kind == "array" and isinstance(parent[last], dict):
            parent[last] = list(parent[last].values())
        elif kind == "add" and isinstance(parent, dict):
            key = self._rng.choice(
                ("name", "type", "content", "prefix", "strict", "extra", "tools")
            )
            parent[key] = self._rng.choice((*SCALARS, [], {}))
        elif kind == "word" and isinstance(parent[last], str):
            parent[last] = self._rng.choice(
                ({parent[last]: None}, {parent[last]: 1}, [parent[last]])
            )
        return body


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += _places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += _places(item, (*path, index))
    return found

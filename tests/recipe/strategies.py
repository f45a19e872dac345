"""Random texts, JSON values, tools, messages and conversations as plain data.

Every generator takes a `random.Random` and returns plain Python values; `build_conversation` makes
them objects of any module that offers the public names. `cases(generator)` is the same as a
hypothesis strategy, which shrinks; with an ordinary `random.Random` thousands of cases a second can
be made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from ds_jax.recipe.special_tokens import SpecialTokens

T = TypeVar("T")

CONTROLS = [spelling for _, spelling in SpecialTokens().items()]
MARKUP = [
    "<｜DSML｜ calls>",
    "</｜DSML｜ calls>",
    "<｜DSML｜tool_calls>",
    '<｜DSML｜ invoke name="f">',
    '<｜DSML｜invoke name="f">',
    '<｜DSML｜ parameter name="x" string="true">',
    "</｜DSML｜parameter>",
    "<tool_result>",
    "</tool_result>",
    "### Available Tool Schemas",
]
PLAIN = [
    *("", "", "a", "x", "hello world", " ", "\n", "\n\n", "line1\nline2", " lead", "trail "),
    *("é😀", "日本語", "e\u0301", "\u200b\u2028\x00\x7f", "\r\n", '"quoted"', "\\", "\\n", "{}"),
    *("[1]", '{"a": 1}', "json", "<", "<｜", "｜", "DSML", "<image>", "null", "0" * 30),
]
CALL_IDS = ["", "a", "b", "c", "call_00_ET_x", "é", "z", "B", "10", "9"]
NAMES = ["f", "g", "get_weather", "", "a b", 'q"uote', "｜DSML｜", "日本", "_1", "ns::f"]
NUMBERS: list[int | float] = [
    *(0, 1, -1, 7, 12345678901234567890, -9223372036854775808, 18446744073709551615),
    *(0.0, -0.0, 1.0, 0.1, 1e-4, 1e-5, 1.5e-5, 1e-6, 1e-7, 2.5e-10, 5e-324, -1e-5, 1e15, 1e16),
    *(1.5e16, 123456789012345680.0, 1e21, 1e22, 1e100, 1.7976931348623157e308, 3.14),
]
WRONG_ARGUMENTS = [
    *("", " ", "{", "[]", "null", "1", '"x"', "{}", " {} ", "\ufeff{}", '{"a":1}x', "not json"),
    *('{"a": 1, "a": 2, "b": 3}', '{"a":1e400}', '{"a":-0}', '{"a":-0.0}', '{"a":1E5}'),
    *('{"a":12345678901234567890123}', '{"a":"\\ud800"}', '{"a":"\\ud83d\\ude00"}', "{'a':1}"),
    *('{"a":NaN}', '{"a":Infinity}', '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":1,}', '{"a":"\t"}'),
    *('{"a":"\\u0000"}', '{"a":"\\/"}', '{"":{"":[]}}', '{"a":[1, 2.50, 1e-7, true]}', '{"a":tru}'),
    *('{"a":' + "[" * 126 + "]" * 126 + "}", '{"a":' + "[" * 127 + "]" * 127 + "}"),
    *('{"a":"[[[[{{{{"}', '{"a":5e-324}', '{"a":1e-400}', '{"a":-9223372036854775809}'),
]
DETAILS = ["low", "high", "original", "auto"]


def cases(generate: Callable[[random.Random], T]) -> st.SearchStrategy[T]:
    """A generator as a hypothesis strategy.

    Only the seed is drawn: drawing each choice (`st.randoms`) takes longer than the test, and large
    cases overflow the buffer of choices and are thrown away.
    """
    return st.integers(0, 2**64 - 1).map(lambda seed: generate(random.Random(seed)))


def some(rng: random.Random, values: list[T]) -> T:
    """One of the values."""
    return values[rng.randrange(len(values))]


def sometimes(rng: random.Random, one_in: int) -> bool:
    """True in one of so many cases."""
    return rng.randrange(one_in) == 0


def text(rng: random.Random) -> str:
    """Plain, marked up or mixed text; control spellings are frequent."""
    kind = rng.randrange(10)
    if kind < 4:
        return some(rng, PLAIN)
    if kind < 6:
        return some(rng, CONTROLS)
    if kind < 7:
        return some(rng, MARKUP)
    if kind < 8:
        return "".join(character(rng) for _ in range(rng.randrange(6)))
    return "".join(text(rng) for _ in range(rng.randrange(1, 4)))


def character(rng: random.Random) -> str:
    """One character of any plane; never a surrogate."""
    limit = some(rng, [0x80, 0x300, 0xD800, 0x110000])
    code = rng.randrange(limit)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"


def json_value(rng: random.Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = rng.randrange(9 if depth else 6)
    if kind < 2:
        return text(rng)
    if kind < 4:
        return some(rng, NUMBERS)
    if kind < 5:
        return some(rng, [None, True, False])
    if kind < 6:
        return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-12, 24)
    if kind < 7:
        return [json_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text(rng): json_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def schema(rng: random.Random) -> Any:
    """Mostly an object schema, sometimes any JSON value."""
    if sometimes(rng, 3):
        return json_value(rng)
    properties = {some(rng, NAMES): json_value(rng, 1) for _ in range(rng.randrange(4))}
    return {"type": "object", "properties": properties, "required": list(properties)}


def tool(rng: random.Random) -> dict[str, Any]:
    """Arguments of a `ToolDefinition`."""
    return {
        "name": text(rng) if sometimes(rng, 4) else some(rng, NAMES),
        "description": None if sometimes(rng, 3) else text(rng),
        "parameters": schema(rng),
        "strict": some(rng, [None, True, False]),
        "defer_loading": sometimes(rng, 4),
    }


def arguments(rng: random.Random) -> str:
    """Call arguments: JSON objects in several spellings, or text that is none."""
    if sometimes(rng, 3):
        return some(rng, WRONG_ARGUMENTS)
    if sometimes(rng, 6):
        return text(rng)
    record = {text(rng): json_value(rng, 2) for _ in range(rng.randrange(4))}
    separators = some(rng, [(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
    ascii_only = sometimes(rng, 2)
    return json.dumps(record, ensure_ascii=ascii_only, separators=separators)


def call(rng: random.Random) -> dict[str, Any]:
    """Arguments of a `ToolCall`."""
    name = text(rng) if sometimes(rng, 4) else some(rng, NAMES)
    return {"id": some(rng, CALL_IDS), "name": name, "arguments": arguments(rng)}


def image_source(rng: random.Random) -> dict[str, Any]:
    """Kind and arguments of an image source."""
    kind = some(rng, ["url", "data_url", "data"])
    value = b"bytes" if kind == "data" else some(rng, ["http://h/1", "data:image/png;base64,AA=="])
    path = some(rng, ["", "messages.0", "é"])
    return {kind: value, "detail": some(rng, DETAILS), "path": path}


def content_with_images(rng: random.Random) -> dict[str, Any]:
    """Content, image sources and image token of a system, user or tool message."""
    if not sometimes(rng, 4):
        return {"content": text(rng)}
    token = some(rng, [None, None, "<img>", "aa", "｜DSML｜"])
    spelled = token or SpecialTokens().image
    content = "".join(text(rng) + some(rng, [spelled, ""]) for _ in range(rng.randrange(4)))
    sources = [image_source(rng) for _ in range(rng.randrange(4))]
    return {"content": content, "image_sources": sources, "image_token": token}


def message(rng: random.Random, role: str | None = None) -> dict[str, Any]:
    """Role and arguments of a message."""
    roles = ["system", "user", "user", "assistant", "assistant", "tool", "tool", "latest_reminder"]
    role = role or some(rng, roles)
    if role == "assistant":
        calls = [call(rng) for _ in range(rng.randrange(4))]
        return {
            "role": role,
            "content": text(rng),
            "reasoning_content": None if sometimes(rng, 3) else text(rng),
            "tool_calls": calls if calls or sometimes(rng, 3) else None,
            "prefix": sometimes(rng, 6),
        }
    if role == "latest_reminder":
        return {"role": role, "content": text(rng)}
    fields = {"role": role, **content_with_images(rng)}
    if role == "system":
        tools = [tool(rng) for _ in range(rng.randrange(3))]
        fields["tools"] = tools if tools or sometimes(rng, 3) else None
    elif role == "tool":
        fields["tool_call_id"] = None if sometimes(rng, 5) else some(rng, CALL_IDS)
    return fields


def turns(rng: random.Random) -> list[dict[str, Any]]:
    """Calls followed by their results, in any order, among other messages."""
    messages = [message(rng, "user")]
    for _ in range(rng.randrange(1, 3)):
        assistant = message(rng, "assistant")
        results = [
            {**message(rng, "tool"), "tool_call_id": made["id"]}
            for made in assistant["tool_calls"] or []
        ]
        rng.shuffle(results)
        messages += [assistant, *results, *[message(rng) for _ in range(rng.randrange(2))]]
    return messages


def conversation(rng: random.Random) -> dict[str, Any]:
    """Arguments of a `Conversation`."""
    messages = [message(rng) for _ in range(rng.randrange(7))]
    if sometimes(rng, 2):
        messages = turns(rng)
    if sometimes(rng, 5):
        messages.append({**message(rng, "assistant"), "prefix": True})
    fields: dict[str, Any] = {
        "messages": messages,
        "thinking_mode": not sometimes(rng, 3),
        "tools": [tool(rng) for _ in range(rng.randrange(4))] if sometimes(rng, 2) else [],
        "tool_choice": some(rng, ["auto", "auto", "none", "required"]),
        "reasoning_effort": some(rng, [None, "low", "high", "xhigh", "max"]),
    }
    answer = rng.randrange(6)
    if answer == 0:
        fields["response_format"] = "json_object"
    elif answer == 1:
        fields["response_schema"] = schema(rng)
    elif answer == 2:
        fields["response_regex"] = text(rng)
    return fields


def special_tokens(rng: random.Random) -> dict[str, str]:
    """Other spellings of a few control tokens; some empty, some equal to others."""
    names = [name for name, _ in SpecialTokens().items()]
    spellings = ["", "<B>", "x", "\n", "<｜User｜>", "</s>", '"', "é"]
    return {some(rng, names): some(rng, spellings) for _ in range(rng.randrange(4))}


def build_conversation(library: Any, fields: dict[str, Any]) -> Any:
    """The conversation as objects of a library."""
    fields = dict(fields)
    messages = [build_message(library, record) for record in fields.pop("messages")]
    tools = [library.ToolDefinition(**record) for record in fields.pop("tools")]
    return library.Conversation(messages, tools=tools, **fields)


def build_message(library: Any, fields: dict[str, Any]) -> Any:
    """A message as an object of a library."""
    fields = dict(fields)
    role = fields.pop("role")
    if fields.get("image_sources") is not None:
        fields["image_sources"] = [build_source(library, one) for one in fields["image_sources"]]
    if fields.get("tool_calls") is not None:
        fields["tool_calls"] = [library.ToolCall(**record) for record in fields["tool_calls"]]
    if fields.get("tools") is not None:
        fields["tools"] = [library.ToolDefinition(**record) for record in fields["tools"]]
    classes = {
        "system": library.SystemMessage,
        "user": library.UserMessage,
        "assistant": library.AssistantMessage,
        "tool": library.ToolMessage,
        "latest_reminder": library.LatestReminderMessage,
    }
    return classes[role](**fields)


def build_source(library: Any, fields: dict[str, Any]) -> Any:
    """An image source as an object of a library."""
    if "url" in fields:
        return library.UrlImageSource(**fields)
    if "data_url" in fields:
        return library.DataUrlImageSource(**fields)
    return library.BytesImageSource(**fields)

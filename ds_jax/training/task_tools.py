"""The twelve small tools of the training dialogues.

Decides their schemas, how a user asks for them, and what they return. Never renders markup. In: a
source of words. Out: a `ToolRequest`: definition, sentence, arguments, result and the answer to it.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

from ds_jax.recipe import conversation as conv
from ds_jax.training import task_words
from ds_jax.training.task_words import Words

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}
_STRINGS = {"type": "array", "items": _STRING}
_INTEGERS = {"type": "array", "items": _INTEGER}


@dataclasses.dataclass(frozen=True)
class ToolRequest:
    """One sentence of a user and the call it asks for."""

    tool: conv.ToolDefinition
    sentence: str  # without a full stop at its end
    arguments: dict[str, Any]
    result: str
    answer: str


def _define(name: str, description: str, /, **parameters: Any) -> conv.ToolDefinition:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return conv.ToolDefinition(name, description, schema)


TOOLS = {
    tool.name: tool
    for tool in (
        _define("get_weather", "Weather in a city", city=_STRING),
        _define("set_timer", "Start a timer", minutes=_INTEGER, label=_STRING),
        _define("send_message", "Send a message", to=_STRING, text=_STRING),
        _define("add_event", "Add a calendar event", title=_STRING, day=_STRING, hour=_INTEGER),
        _define("search_notes", "Search the notes", query=_STRING),
        _define("play_song", "Play a song", title=_STRING, artist=_STRING),
        _define("convert", "Convert money", amount=_INTEGER, source=_STRING, target=_STRING),
        _define("add_items", "Add items to a list", list=_STRING, items=_STRINGS),
        _define("average", "Average of numbers", numbers=_INTEGERS),
        _define("book_table", "Book a table", name=_STRING, people=_INTEGER),
        _define("set_light", "Switch a light", room=_STRING, on=_BOOLEAN),
        _define("translate", "Translate a text", text=_STRING, language=_STRING),
    )
}


def request(name: str, rng: random.Random, words: Words) -> ToolRequest:
    """A random request for one tool, its arguments copied from the sentence."""
    sentences, arguments, result, answer = _MAKERS[name](rng, words)
    shown = {
        key: json.dumps(value)[1:-1] if isinstance(value, list) else value
        for key, value in arguments.items()
    }
    sentence = rng.choice(sentences).format(**shown)
    return ToolRequest(TOOLS[name], sentence, arguments, json.dumps(result), answer)


_Made = tuple[list[str], dict[str, Any], dict[str, Any], str]


def _get_weather(rng: random.Random, words: Words) -> _Made:
    degrees, sky = words.number(40), rng.choice(("sunny", "cloudy", "rainy", "windy"))
    return (
        ['What is the weather in "{city}"', 'How is the weather in "{city}"', 'Weather "{city}"'],
        {"city": words.name()},
        {"sky": sky, "degrees": degrees},
        f"It is {sky} with {degrees} degrees.",
    )


def _set_timer(rng: random.Random, words: Words) -> _Made:
    minutes, number = words.number(99), words.number()
    return (
        ['Set a timer "{label}" for {minutes} minutes', 'Start a {minutes} minute timer "{label}"'],
        {"minutes": minutes, "label": words.word()},
        {"timer": number},
        f"Timer {number} is running.",
    )


def _send_message(rng: random.Random, words: Words) -> _Made:
    number = words.number()
    return (
        ['Send "{text}" to "{to}"', 'Tell "{to}": "{text}"', 'Write to "{to}": "{text}"'],
        {"to": words.name(), "text": words.phrase()},
        {"message": number},
        f"Message {number} was sent.",
    )


def _add_event(rng: random.Random, words: Words) -> _Made:
    number = words.number()
    return (
        ['Add "{title}" on "{day}" at {hour}', 'Plan "{title}" for "{day}" at {hour}'],
        {
            "title": words.phrase(1, 2),
            "day": rng.choice(task_words.DAYS),
            "hour": rng.randint(1, 23),
        },
        {"event": number},
        f"Event {number} was added.",
    )


def _search_notes(rng: random.Random, words: Words) -> _Made:
    note = words.phrase(2, 3)
    return (
        ['Search my notes for "{query}"', 'Find my notes about "{query}"', 'Look up "{query}"'],
        {"query": words.phrase(1, 2)},
        {"note": note},
        f'I found "{note}".',
    )


def _play_song(rng: random.Random, words: Words) -> _Made:
    seconds = words.number()
    return (
        ['Play "{title}" by "{artist}"', 'I want to hear "{title}" by "{artist}"'],
        {"title": words.phrase(1, 2), "artist": words.name()},
        {"seconds": seconds},
        f"Playing for {seconds} seconds.",
    )


def _convert(rng: random.Random, words: Words) -> _Made:
    amount = words.number()
    return (
        [
            'Convert {amount} "{source}" to "{target}"',
            'How much is {amount} "{source}" in "{target}"',
        ],
        {"amount": words.number(), "source": words.word(), "target": words.word()},
        {"amount": amount},
        f"That is {amount}.",
    )


def _add_items(rng: random.Random, words: Words) -> _Made:
    count = words.number(99)
    return (
        ['Add {items} to the list "{list}"', 'Put {items} on my list "{list}"'],
        {"list": words.word(), "items": words.distinct(rng.randint(1, 3))},
        {"count": count},
        f"The list has {count} items.",
    )


def _average(rng: random.Random, words: Words) -> _Made:
    value = words.number()
    return (
        ["What is the average of {numbers}", "Take the average of {numbers}"],
        {"numbers": [words.number(99) for _ in range(rng.randint(2, 4))]},
        {"average": value},
        f"The average is {value}.",
    )


def _book_table(rng: random.Random, words: Words) -> _Made:
    table = words.number(99)
    return (
        ['Book a table for {people} people for "{name}"', 'Table for {people}, name "{name}"'],
        {"name": words.name(), "people": rng.randint(1, 12)},
        {"table": table},
        f"Table {table} is booked.",
    )


def _set_light(rng: random.Random, words: Words) -> _Made:
    on = rng.random() < 0.5
    switch = "on" if on else "off"
    return (
        [f'Turn {switch} the light in "{{room}}"', f'Switch the "{{room}}" light {switch}'],
        {"room": words.word(), "on": on},
        {"light": switch},
        f"The light is {switch}.",
    )


def _translate(rng: random.Random, words: Words) -> _Made:
    text = words.phrase(1, 3)
    return (
        ['Translate "{text}" to "{language}"', 'How do you say "{text}" in "{language}"'],
        {"text": words.phrase(1, 3), "language": rng.choice(task_words.LANGUAGES)},
        {"text": text},
        f'It means "{text}".',
    )


_MAKERS: dict[str, Callable[[random.Random, Words], _Made]] = {
    "get_weather": _get_weather,
    "set_timer": _set_timer,
    "send_message": _send_message,
    "add_event": _add_event,
    "search_notes": _search_notes,
    "play_song": _play_song,
    "convert": _convert,
    "add_items": _add_items,
    "average": _average,
    "book_table": _book_table,
    "set_light": _set_light,
    "translate": _translate,
}

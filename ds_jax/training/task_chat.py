"""Small talk with one right answer: greetings, echoes, lists, names, keeping a format.

Decides sentences and answers. Never renders. In: a seeded random source and words. Out: messages,
the answer, and a one-line reasoning for thinking mode.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ds_jax.recipe import conversation as conv
from ds_jax.training.task_words import Words

_Exchange = tuple[tuple[conv.Message, ...], str, str]
_GREETINGS = (
    ("Hello!", "Hello! How can I help you?"),
    ("Hi", "Hello! How can I help you?"),
    ("Good morning!", "Good morning! How can I help you?"),
    ("Good evening!", "Good evening! How can I help you?"),
    ("How are you?", "I am fine, thank you. How can I help you?"),
    ("Thank you!", "You are welcome."),
    ("Thanks", "You are welcome."),
    ("Goodbye!", "Goodbye! See you soon."),
    ("Bye", "Goodbye! See you soon."),
    ("Who are you?", "I am a small language model."),
    ("What are you?", "I am a small language model."),
    ("What can you do?", "I can add numbers, call tools and write JSON."),
)


def exchange(rng: random.Random, words: Words) -> _Exchange:
    """Messages up to the user's last turn, the answer, and the reasoning."""
    return rng.choice(_MAKERS)(rng, words)


def _greeting(rng: random.Random, words: Words) -> _Exchange:
    said, answer = rng.choice(_GREETINGS)
    return (conv.UserMessage(said),), answer, "A short answer."


def _echo(rng: random.Random, words: Words) -> _Exchange:
    text = words.phrase(1, 5)
    said = rng.choice(('Repeat: "{}"', 'Say "{}".', 'Echo "{}"')).format(text)
    return (conv.UserMessage(said),), f'"{text}"', "Copy the text."


def _list(rng: random.Random, words: Words) -> _Exchange:
    items = words.distinct(rng.randint(2, 4))
    said = rng.choice(("Make a list: {}.", "List these: {}.")).format(", ".join(items))
    return (
        (conv.UserMessage(said),),
        "\n".join(f"- {item}" for item in items),
        "One line for each item.",
    )


def _own_name(rng: random.Random, words: Words) -> _Exchange:
    name = words.name()
    return (
        (
            conv.SystemMessage(f"Your name is {name}."),
            conv.UserMessage(rng.choice(("Who are you?", "What is your name?"))),
        ),
        f"My name is {name}.",
        "The system text has my name.",
    )


def _user_name(rng: random.Random, words: Words) -> _Exchange:
    name = words.name()
    return (
        (
            conv.UserMessage(rng.choice(("My name is {}.", "I am {}.")).format(name)),
            conv.AssistantMessage(f"Nice to meet you, {name}."),
            conv.UserMessage(rng.choice(("What is my name?", "Do you know my name?"))),
        ),
        f"Your name is {name}.",
        "The user told the name.",
    )


def _meeting(rng: random.Random, words: Words) -> _Exchange:
    name = words.name()
    said = rng.choice(("My name is {}.", "I am {}.")).format(name)
    return (conv.UserMessage(said),), f"Nice to meet you, {name}.", "Greet the user by name."


def _larger(rng: random.Random, words: Words) -> _Exchange:
    first = second = 0
    while first == second:
        first, second = words.pair()
    said = rng.choice(("Which is larger, {} or {}?", "Larger number: {} or {}?"))
    return (
        (conv.UserMessage(said.format(first, second)),),
        str(max(first, second)),
        "Compare the tens first.",
    )


def _reminder(rng: random.Random, words: Words) -> _Exchange:
    word = words.word()
    return (
        (
            conv.UserMessage(rng.choice(("Hello!", "How are you?", "What can you do?"))),
            conv.LatestReminderMessage(f'Answer only "{word}".'),
        ),
        f'"{word}"',
        "Follow the reminder.",
    )


def _only_word(rng: random.Random, words: Words) -> _Exchange:
    word = words.word()
    return (
        (
            conv.SystemMessage(f'Answer every question with "{word}".'),
            conv.UserMessage(rng.choice(("Hello!", "How are you?", "Who are you?", "Bye"))),
        ),
        f'"{word}"',
        "Follow the system text.",
    )


_MAKERS: tuple[Callable[[random.Random, Words], _Exchange], ...] = (
    _greeting,
    _echo,
    _list,
    _own_name,
    _user_name,
    _meeting,
    _larger,
    _reminder,
    _only_word,
)

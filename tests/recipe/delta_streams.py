"""Deltas given to a generator directly, and what its events add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ds_jax.recipe.deltas import Delta, Finished
from ds_jax.recipe.stream import PromptUsage

PROMPT = PromptUsage(prompt_tokens=10, prompt_cache_hit_tokens=4)


def finished(
    reason: Any = "stop", stop_sequence: str | None = None, reasoning_tokens: int | None = None
) -> Finished:
    """The end of an output of 7 tokens."""
    return Finished(reason, stop_sequence, 7, reasoning_tokens)


def events(generator: Any, deltas: Iterable[Delta], end: Finished | None = None) -> list[Any]:
    """All events of a stream."""
    made = generator._start(PROMPT, "fp")
    for delta in deltas:
        made += generator._add(delta)
    return made + generator._finish(end or finished())


def bodies(made: Iterable[Any]) -> list[dict[str, Any]]:
    """The events' JSON as Python values."""
    return [json.loads(event.to_json()) for event in made]


def whole(response: Any, made: Iterable[Any]) -> dict[str, Any]:
    """The events' sum as Python values. Mutates: uses up the events."""
    for event in made:
        response.accumulate(event)
    return json.loads(response.to_json())

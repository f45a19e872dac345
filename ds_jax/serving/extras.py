"""Fields of a request beyond what the recipe reads.

Decides which further fields are obeyed, on every endpoint that generates, and which are reported as
ignored. Never reads messages or tools. In: a JSON object. Out: `Extras`, or a `Problem` that names
the field.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

from ds_jax.serving.problems import Problem

MAX_SALT = 1024  # characters
MAX_DEADLINE_S = 86400.0

_OWN = frozenset(
    {
        *("cache_salt", "priority", "min_p", "top_k", "repetition_penalty", "presence_penalty"),
        *("frequency_penalty", "logit_bias", "ignore_eos", "deadline_s", "seed", "ebnf"),
    }
)
_COMMON = frozenset(("model", "stream", "temperature", "top_p", "user", "metadata")) | _OWN
KNOWN = {
    "chat": _COMMON
    | {
        *("messages", "logprobs", "top_logprobs", "max_tokens", "max_completion_tokens", "n"),
        *("stop", "stream_options", "response_format", "tools", "tool_choice"),
        *("reasoning_effort", "thinking", "parallel_tool_calls"),
    },
    "completions": _COMMON
    | {"prompt", "max_tokens", "n", "stop", "stream_options", "logprobs", "echo"},
    "responses": _COMMON
    | {
        *("input", "instructions", "max_output_tokens", "top_logprobs", "tools", "tool_choice"),
        *("reasoning", "text", "previous_response_id", "store", "include", "truncation"),
        *("parallel_tool_calls",),
    },
    "messages": _COMMON
    | {
        *("messages", "max_tokens", "system", "stop_sequences", "thinking", "tools"),
        *("tool_choice", "output_config"),
    },
}
"""Fields that count for something, by endpoint; others are ignored and reported."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What was asked for.

    Attributes:
      cache_salt: prefixes are shared only among requests with the same salt.
      priority: a lower one goes first among the key's own requests; 0 is usual.
      deadline_s: the answer is of no use after these seconds.
      ebnf: a grammar in GBNF that the answer follows.
      others: as in `SamplingParams`.
    """

    cache_salt: str = ""
    priority: int = 0
    deadline_s: float | None = None
    ebnf: str | None = None
    seed: int | None = None
    min_p: float = 0.0
    top_k: int = -1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False


def read(body: dict[str, Any]) -> Extras:
    """The further fields of a body.

    Raises: Problem 400.
    """
    if _OWN.isdisjoint(body):
        return _NONE
    found: dict[str, Any] = {}
    for name in ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        _take(body, name, found, _number)
    _take(body, "deadline_s", found, _deadline)
    _take(body, "top_k", found, _top_k)
    _take(body, "seed", found, _whole)
    _take(body, "priority", found, _priority)
    _take(body, "cache_salt", found, _salt)
    _take(body, "ebnf", found, _text)
    _take(body, "ignore_eos", found, _flag)
    _take(body, "logit_bias", found, _bias)
    return Extras(**found)


def ignored(endpoint: str, body: dict[str, Any]) -> list[str]:
    """Top-level fields that count for nothing."""
    return sorted(body.keys() - KNOWN[endpoint])


_NONE = Extras()


def _take(body: dict[str, Any], name: str, found: dict[str, Any], reader: Any) -> None:
    value = body.get(name)
    if value is not None:
        found[name] = reader(name, value)


def _wrong(name: str, value: Any, allowed: str) -> Problem:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return Problem(400, f"{name}={shown}: {allowed}", param=name)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong(name, value, "must be a number")
    return float(value)


def _deadline(name: str, value: Any) -> float:
    number = _number(name, value)
    if not 0 < number <= MAX_DEADLINE_S:
        raise _wrong(name, value, f"must be above 0 and at most {MAX_DEADLINE_S:g} seconds")
    return number


def _whole(name: str, value: Any) -> int:
    if type(value) is not int:
        raise _wrong(name, value, "must be a whole number")
    return value


def _top_k(name: str, value: Any) -> int:
    return -1 if value == 0 else _whole(name, value)


def _priority(name: str, value: Any) -> int:
    return max(-1000, min(1000, _whole(name, value)))


def _salt(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_SALT:
        raise _wrong(name, value, f"must be a string of 1 to {MAX_SALT} characters")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "must be a string")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "must be true or false")
    return value


def _bias(name: str, value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        raise _wrong(name, value, "must be an object from token ids to numbers")
    pairs: list[tuple[int, float]] = []
    for token, bias in cast("dict[str, Any]", value).items():
        if not token.isdecimal() or len(token) > 9:
            raise _wrong(name, token, "must be a token id")
        pairs.append((int(token), _number(name, bias)))
    return tuple(pairs)

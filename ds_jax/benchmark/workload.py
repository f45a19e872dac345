"""Requests as they arrive at a service: at random, many with a common beginning.

Decides arrivals, prompts and what a perfect cache could have found of them. Never runs anything,
never imports jax. In: sizes and a seed. Out: a trace.

Arrivals are a Poisson process. Every prompt starts with one of some shared prefixes, chosen with
weights 1/1, 1/2, 1/3, ..., and goes on with ids of its own.
"""

from __future__ import annotations

import dataclasses
import random

from ds_jax.errors import ConfigError
from ds_jax.kvcache import replay

BEGIN, FIRST_ID = 0, 3  # ids below it are control tokens


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is asked for.

    Attributes:
      requests: of the trace.
      rate: requests a second, on average.
      prefixes: shared beginnings.
      shared_tokens: of each.
      own_tokens: behind it, at most; at least half of it.
      new_tokens: of the output, at most; at least half of it.
    """

    requests: int = 100
    rate: float = 2.0
    prefixes: int = 4
    shared_tokens: int = 512
    own_tokens: int = 64
    new_tokens: int = 32

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigError(f"{field.name}={getattr(self, field.name)}: must be above 0")

    @property
    def context(self) -> int:
        """Positions of the longest request."""
        return self.shared_tokens + self.own_tokens + self.new_tokens


@dataclasses.dataclass(frozen=True)
class Arrival:
    """One request: seconds after the start, its prompt, tokens to generate."""

    at_s: float
    prompt: tuple[int, ...]
    new_tokens: int


def poisson(sizes: Sizes, vocab: int, seed: int = 0) -> list[Arrival]:
    """The trace of a seed, in order of arrival."""
    draw = random.Random(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(FIRST_ID, vocab) for _ in range(count))

    prefixes = [(BEGIN, *ids(sizes.shared_tokens - 1)) for _ in range(sizes.prefixes)]
    weights = [1 / (1 + n) for n in range(sizes.prefixes)]
    now, trace = 0.0, list[Arrival]()
    for _ in range(sizes.requests):
        now += draw.expovariate(sizes.rate)
        (prefix,) = draw.choices(prefixes, weights)
        own = ids(draw.randint((sizes.own_tokens + 1) // 2, sizes.own_tokens))
        count = draw.randint((sizes.new_tokens + 1) // 2, sizes.new_tokens)
        trace.append(Arrival(now, prefix + own, count))
    return trace


def ideal_hit_tokens(trace: list[Arrival], page_tokens: int, rule: replay.Rule) -> int:
    """Prompt tokens that a cache without bounds finds: whole pages of any prompt before."""
    known, found = set[tuple[int, ...]](), 0
    for arrival in trace:
        prompt = arrival.prompt
        whole = range(page_tokens, len(prompt) + 1, page_tokens)
        longest = max((n for n in whole if prompt[:n] in known), default=0)
        found += replay.usable(rule, len(prompt), longest, page_tokens)
        known.update(prompt[:n] for n in whole)
    return found

"""Table sizes of the Engram hash heads.

Decides which primes the heads of a layer use. Never touches tables or tokens.
In: the Engram fields of a `config.Model`. Out: primes as nested tuples, in the order of table rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ds_jax.config import Model

PRIME_LIMIT = 1 << 24  # exclusive; hashing on device reduces byte by byte in uint32
_CHUNK = 4096  # numbers sieved at a time


def engram_primes(model: Model) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Returns primes[layer][order][head], the rows owned by each hash head.

    The walk starts at `engram_vocab_size - 1` and takes the next primes upward: for each Engram
    layer, for each n-gram order 2..`engram_max_ngram_size`, one prime a head, none used twice.

    Complexity: a sieve over the numbers walked, at most a few times 10,000 of them.
    """
    orders = max(0, model.engram_max_ngram_size - 1)
    layers = len(model.engram_layer_ids)
    count = layers * orders * model.engram_n_heads
    walk = iter(primes_from(model.engram_vocab_size - 1, count))
    return tuple(
        tuple(tuple(next(walk) for _ in range(model.engram_n_heads)) for _ in range(orders))
        for _ in range(layers)
    )


def primes_from(above: int, count: int) -> list[int]:
    """Returns the first `count` primes greater than `above`, ascending."""
    found: list[int] = []
    low = max(above + 1, 2)
    while len(found) < count:
        found.extend(_sieve(low, low + _CHUNK))
        low += _CHUNK
    return found[:count]


def _sieve(low: int, high: int) -> list[int]:
    """Returns the primes p with low <= p < high, for low >= 2."""
    is_prime = np.ones(high - low, dtype=bool)
    for divisor in range(2, math.isqrt(high - 1) + 1):
        first = max(divisor * divisor, -(-low // divisor) * divisor)
        is_prime[first - low :: divisor] = False
    return [low + int(p) for p in np.nonzero(is_prime)[0]]

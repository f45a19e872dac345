"""Many random cases, each through this package and deepseek-recipe 0.2.0.

Decides how a differential test is run from the command line: how many cases, from which seed, how
many differences are shown. Never makes or judges a case. In: a maker and a judge of cases. Out:
printed differences and their number.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any, TypeAlias

Maker: TypeAlias = Callable[[random.Random], Any]


def run(
    description: str | None,
    make: Maker,
    difference: Callable[[Any], str | None],
    *,
    strange: Maker | None = None,
) -> None:
    """Compares seeded cases; prints the first differences and a count.

    Args:
      description: what `--help` says.
      make: a case from a source of random numbers.
      difference: what the two libraries say where they disagree, else None.
      strange: another maker, chosen by `--strange`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5)
    parser.set_defaults(make=make)
    if strange is not None:
        parser.add_argument("--strange", dest="make", action="store_const", const=strange)
    given = parser.parse_args()
    rng, found = random.Random(given.seed), 0
    for _ in range(given.cases):
        text = difference(given.make(rng))
        if text is not None:
            found += 1
            if found <= given.show:
                print(text)
    print(f"{given.cases} cases, seed {given.seed}: {found} differences")

"""Packed launches: tables that follow the scheduler give what rows give one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ds_jax import config
from ds_jax.engine import batch as batches
from ds_jax.engine import launches, packing
from ds_jax.engine.buckets import Buckets
from tests.engine.driving import Driver, limits

CACHE = config.Cache(page_tokens=4)
SIZES = {"max_sequences": 6, "max_context": 64, "chunk_tokens": (2, 4, 16)}
BACK = 3


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_tables_give_the_words_of_rows(seed: int, ranks: int, canonical: bool) -> None:
    buckets = Buckets.plan(config.Engine(**SIZES, canonical=canonical, canonical_rows=5), CACHE)
    draw = random.Random(seed)
    # few pages: sequences are preempted and slots change hands
    driver = Driver(limits(ranks=ranks, slots=6, pages=16, chunk_tokens=16, step_tokens=24))
    packer = packing.Packer(ranks, 6, buckets.pages[-1], BACK)
    prompts = [[draw.randrange(1, 9) for _ in range(draw.randrange(1, 30))] for _ in range(4)]
    seen = 0
    for n in range(200):
        if n < 30:
            params = {
                "max_tokens": draw.randrange(1, 24),
                "temperature": draw.choice([0.0, 0.7]),
                "min_p": draw.choice([0.0, 0.1]),
                "prompt_logprobs": draw.choice([None, None, 2]),
            }
            driver.submit(f"r{n}", draw.choice(prompts), seed=draw.getrandbits(64), params=params)
        plan = driver.step()
        packer.update(plan.tables)
        for launch in launches.split(plan, buckets):
            rows = packing.rows_of(launch, BACK)
            wanted, places = batches.pack(rows, launch.key, ranks, BACK)
            assert places == packing.places([r.rank for r in rows], ranks, launch.key.sequences)
            got = packer.pack(launch)
            first = batches.HEADER + (0 if launch.key.feeds_back else BACK)
            for place, row in zip(places, rows, strict=True):
                words = slice(first + len(row.pages), first + launch.key.pages)
                got[place, words] = 0  # pages behind the last one may be anything
            np.testing.assert_array_equal(got, wanted)
            seen += len(rows)
    driver.run()
    driver.check_results()
    assert seen > 150 and driver.preempted

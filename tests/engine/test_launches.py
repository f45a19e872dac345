"""A plan's rows, grouped into compiled steps: nothing lost, every step exists."""

from __future__ import annotations

import random

import pytest

from ds_jax import config
from ds_jax.engine import launches
from ds_jax.engine.buckets import Buckets
from tests.engine.driving import Driver, limits

ENGINE = config.Engine(max_sequences=6, max_context=64, chunk_tokens=(2, 4, 16))
BUCKETS = Buckets.plan(ENGINE, config.Cache(page_tokens=4))


@pytest.mark.parametrize("seed", range(3))
def test_every_row_runs_once_in_a_step_that_exists(seed: int) -> None:
    draw = random.Random(seed)
    driver = Driver(limits(ranks=2, slots=6, pages=64, chunk_tokens=16, step_tokens=24))
    programs = set(BUCKETS.keys())
    for n in range(20):
        driver.submit(f"r{n}", [draw.randrange(1, 9) for _ in range(draw.randrange(1, 30))])
        plan = driver.step()
        steps = launches.split(plan, BUCKETS)
        assert [c for s in steps for c in s.chunks if c.start == 0] == [
            c for s in steps if s.key.fresh for c in s.chunks
        ]
        assert sorted(c.sequence.number for s in steps for c in s.chunks) == sorted(
            c.sequence.number for c in plan.prefill
        )
        assert [r for s in steps for r in s.rows] == plan.decode
        for step in steps:
            assert step.key in programs
            readers = [c.sequence for c in step.chunks if c.samples]
            readers += [r.sequence for r in step.rows]
            assert [plan.readers[place] for place in step.places] == readers
            assert all(c.stop - c.start <= step.key.tokens for c in step.chunks)
            for rank in range(2):
                rows = [r for r in [*step.chunks, *step.rows] if r.sequence.rank == rank]
                assert len(rows) <= step.key.sequences
    driver.run()
    driver.check_results()


def test_a_wide_context_means_one_program_for_decode() -> None:
    driver = Driver(limits())
    driver.submit("a", [1, 2], params={"max_tokens": 30, "ignore_eos": True})
    driver.step()
    keys = {launches.split(driver.step(), BUCKETS, context=64)[0].key for _ in range(20)}
    assert len(keys) == 1

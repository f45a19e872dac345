"""Host time of the loop: packing a decode step costs the host a gather, not a row at a time."""

from __future__ import annotations

import time

from ds_jax import config
from ds_jax.engine import launches, packing
from ds_jax.engine.buckets import Buckets
from tests.engine.driving import Driver, limits


def decode_step_s(sequences: int, steps: int = 60) -> float:
    """Thread seconds of planning and packing, the best of some steps."""
    engine = config.Engine(max_sequences=sequences, max_context=256, chunk_tokens=(64,))
    buckets = Buckets.plan(engine, config.Cache(page_tokens=16))
    sizes = {"slots": sequences, "pages": 16 * sequences, "page_tokens": 16, "max_context": 256}
    driver = Driver(limits(**sizes, step_tokens=8192, chunk_tokens=64), integrity=False)
    packer = packing.Packer(1, sequences, buckets.pages[-1], 3)
    for n in range(sequences):
        driver.submit(f"r{n}", [1 + n % 7, 2, 3], params={"max_tokens": 200, "ignore_eos": True})
    found = []
    real = driver.scheduler.schedule
    spent = [0.0]

    def timed(events, now_s):
        start = time.thread_time()
        plan = real(events, now_s)
        packer.update(plan.tables)
        for launch in launches.split(plan, buckets):
            packer.pack(launch)
        spent[0] = time.thread_time() - start
        return plan

    driver.scheduler.schedule = timed
    for _ in range(steps):
        plan = driver.step()
        if len(plan.decode) == sequences:
            found.append(spent[0])
    return min(found)


def test_a_decode_step_of_64_sequences_takes_the_host_under_a_millisecond() -> None:
    assert decode_step_s(64, steps=12) < 1e-3

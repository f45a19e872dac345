"""Measured times of compiled steps that verify drafts: the cost curve of `speculative.plan`.

Decides how a step is timed and how long times are kept. Never plans. In: a runner on which nothing
is under way. Out: milliseconds by step; a file of them for the next start.

Steps follow each other without a wait, as those of a loop do: awaiting each would add the time of
its launch, which weighs most where a step is short, so drafts would look cheaper than they are.

Every row holds a token and every sequence its drafts, so experts are as busy as in earnest. Pages
lie outside the cache: nothing is written into what is kept there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import pathlib
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ds_jax.engine import batch as batches
from ds_jax.engine import verify_step
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.runner import Runner

ROUNDS, RUNS = 3, 4  # rounds, of which the middle one counts; steps of a round
KEPT_S = 3600.0


def measure(runner: Runner, keys: Sequence[StepKey]) -> dict[StepKey, float]:
    """Milliseconds of each step, compiled before. Mutates slots, which have to be free."""
    return {key: _time(runner, key) for key in keys}


def _time(runner: Runner, key: StepKey) -> float:
    packed = _busy(runner, key)

    def steps(count: int) -> float:
        _fill_slots(runner)
        start = time.perf_counter()
        outputs = [runner.start(key, packed) for _ in range(count)]
        jax.block_until_ready(outputs[-1].newest)
        return (time.perf_counter() - start) * 1e3 / count

    steps(1)  # the first run of a program is slower
    return float(np.median([steps(RUNS) for _ in range(ROUNDS)]))


def _busy(runner: Runner, key: StepKey) -> np.ndarray:
    """Words of a step in which every row is taken."""
    packed = np.zeros((runner.ranks * key.sequences, batches.width(key, runner.back)), np.int32)
    slots = min(key.sequences, runner.layout.num_slots)
    for rank in range(runner.ranks):
        mine = packed[rank * key.sequences : (rank + 1) * key.sequences]
        mine[:, 0] = batches.NO_SLOT
        mine[:slots, 0] = np.arange(slots)
        mine[:, 2] = 1
        mine[:, verify_step.MOST] = runner.engine.max_context - 2
        mine[:, verify_step.BUDGET] = key.verify_rows - slots
        mine[:, batches.HEADER :] = runner.layout.num_pages  # outside
    return packed


def _fill_slots(runner: Runner) -> None:
    """Every slot stands at a window's end and has all drafts."""
    drafts = runner.state.drafts
    assert drafts is not None, "only steps that verify drafts are timed"
    middle = min(runner.context.model.sliding_window, runner.engine.max_context // 2)
    k = drafts.tokens.shape[1]

    def full(like: jax.Array, value: float) -> jax.Array:
        return jax.device_put(jnp.full(like.shape, value, like.dtype), like.sharding)

    drafts = dataclasses.replace(
        drafts,
        count=full(drafts.count, k),
        anchor=full(drafts.anchor, middle),
        confidence=full(drafts.confidence, 0.5),
    )
    runner.state = dataclasses.replace(runner.state, drafts=drafts)


def curve(
    runner: Runner, keys: Sequence[StepKey], folder: pathlib.Path | None = None
) -> dict[StepKey, float]:
    """`measure`, or what a file tells that is younger than an hour and of the same replica."""
    if folder is None:
        return measure(runner, keys)
    name = repr((runner.context, runner.layout, runner.engine, runner.mesh.shape_tuple))
    path = folder / f"times-{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
    known = _read(path)
    missing = [key for key in keys if repr(key) not in known]
    found = measure(runner, missing)
    times = {key: found[key] if key in found else known[repr(key)] for key in keys}
    if missing:
        _write(path, {repr(key): value for key, value in times.items()})
    return times


def _read(path: pathlib.Path) -> dict[str, float]:
    try:
        if time.time() - path.stat().st_mtime > KEPT_S:
            return {}
        return {str(k): float(v) for k, v in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(path: pathlib.Path, times: dict[str, float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(times))
    except OSError as error:
        logging.warning("%s: times of steps are not kept: %s", path, error)

"""A replica to be measured, and its steps as the loop saw them.

Decides how a model is found and that compiling lies outside of what is timed. Never decides what is
run. In: a checkpoint or a bare config, requests. Out: a pipeline, records of steps.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ds_jax import config
from ds_jax.engine import stats
from ds_jax.models import deepseek_v41
from ds_jax.pipeline import Pipeline
from ds_jax.records import GenerateRequest, SamplingParams, TokenEvent
from ds_jax.sharding import params as parameters

_NAMES = itertools.count()


def load(source: str, options: Mapping[str, Any]) -> Pipeline:
    """A pipeline of a checkpoint's folder ("tiny": the embedded one), or of a config file.

    Args:
      options: as for `Pipeline.from_checkpoint`; a bare config gets random float32 weights.
    """
    if source == "tiny" or pathlib.Path(source).is_dir():
        return Pipeline.from_checkpoint(source, **options)
    model = config.load_model(source)
    token_map = None
    if model.engram_layer_ids:
        ids = np.arange(model.vocab_size, dtype=np.int32)
        token_map = ids % model.engram_compressed_vocab_size
    rest = {name: value for name, value in options.items() if name != "program_cache"}
    weights = parameters.initialize(deepseek_v41.spec(model), 0)
    return Pipeline(model, weights, token_map=token_map, **rest)


def random_prompts(model: config.Model, count: int, length: int, seed: int = 0) -> list[list[int]]:
    """Random ids behind the begin token."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(3, model.vocab_size, (count, length))
    return [[model.bos_token_id, *row[1:].tolist()] for row in ids]


def requests(
    prompts: Sequence[Sequence[int]],
    new_tokens: Sequence[int],
    *,
    reuse_prefix: bool,
    to_end: bool = False,
) -> list[GenerateRequest]:
    """Greedy requests for exactly so many tokens; `to_end`: or until the model ends the answer."""
    return [
        GenerateRequest(
            f"benchmark-{next(_NAMES)}",
            tuple(ids),
            SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=not to_end),
            reuse_prefix=reuse_prefix,
        )
        for ids, count in zip(prompts, new_tokens, strict=True)
    ]


def run(pipeline: Pipeline, asked: Sequence[GenerateRequest]) -> list[stats.StepRecord]:
    """Runs requests to their end; the records of all steps, with the times of their ends."""
    with watched(pipeline) as records:
        for event in pipeline.engine.run(asked):
            refuse(event)
    return records


@contextlib.contextmanager
def watched(pipeline: Pipeline) -> Iterator[list[stats.StepRecord]]:
    """Collects the records of all steps until the engine has nothing to do."""
    loop, records = pipeline.loop, list[stats.StepRecord]()
    watcher = stats.Watcher()
    loop.log.records.clear()
    loop.watcher = watcher
    try:
        yield records
    finally:
        pipeline.engine.wait_until_drained()
        pipeline.engine.resume()
        loop.watcher = None
        watcher.close()
        records += loop.log.records


def refuse(event: TokenEvent) -> None:
    """Raises what ended a request early: a figure must not come from failed requests."""
    if event.error is not None:
        raise event.error


@contextlib.contextmanager
def profile(folder: str | None) -> Iterator[None]:
    """Writes a trace of everything inside, if a folder is given; Perfetto opens it."""
    if folder is None:
        yield
        return
    jax.profiler.start_trace(folder, create_perfetto_trace=True)
    try:
        yield
    finally:
        jax.profiler.stop_trace()


def trace_file(folder: str) -> pathlib.Path:
    """The newest trace that `profile` wrote there."""
    found = pathlib.Path(folder).rglob("perfetto_trace.json.gz")
    return max(found, key=lambda path: path.stat().st_mtime)

"""Tokens per second of the compiled steps: prefill of whole prompts, cached greedy decoding.

Decides the shape of the workload and what lies inside the clock: packing, launching, computing and
copying tokens to the host, as the loop of a replica does it; compiling lies outside.
Never decides the steps' form. In: a model. Out: seconds of every run.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from ds_jax import config, records
from ds_jax.engine import batch as batches
from ds_jax.engine import platforms
from ds_jax.engine.runner import Runner, place_params, scans_by_default
from ds_jax.models import deepseek_v41, engram
from ds_jax.sharding import params

GREEDY = records.SamplingParams(temperature=0.0, ignore_eos=True)
PAGE_TOKENS = 128


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of a run.

    Attributes:
      prompt_tokens: tokens of every prompt, random ids.
      new_tokens: decode steps.
      batches: sequences at once, each measured on its own.
      repeats: timed runs, after one that is not timed.
    """

    prompt_tokens: int = 512
    new_tokens: int = 32
    batches: tuple[int, ...] = (1, 8)
    repeats: int = 5


@dataclasses.dataclass(frozen=True)
class Timing:
    """One measured thing: tokens of a run and the seconds of every run."""

    phase: str  # "prefill, all logits" | "prefill" | "decode"
    batch: int
    tokens: int
    seconds: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float:
        """Of the median run."""
        return self.tokens / float(np.median(self.seconds))

    @property
    def best_tokens_per_s(self) -> float:
        """Of the fastest run."""
        return self.tokens / min(self.seconds)


def make_runner(
    model: config.Model, workload: Workload, numerics: str = "float32", seed: int = 0
) -> Runner:
    """A replica on one device with random float32 weights, just large enough for the workload."""
    _, mesh = platforms.open_mesh("ep1", None)
    choices = platforms.choose(mesh, numerics, "dequantized", "auto")
    weights = params.initialize(deepseek_v41.spec(model), seed)
    tables = None
    if model.engram_layer_ids:
        ids = np.arange(model.vocab_size, dtype=np.int32) % model.engram_compressed_vocab_size
        tables = engram.hash_tables(model, ids)
    pages = -(-(workload.prompt_tokens + workload.new_tokens) // PAGE_TOKENS)
    engine = config.Engine(
        max_sequences=max(workload.batches),
        max_context=pages * PAGE_TOKENS,
        chunk_tokens=(workload.prompt_tokens,),
    )
    cache = config.Cache(choices.cache_format, PAGE_TOKENS)
    placed = place_params(model, weights, mesh, stacked=scans_by_default(model))
    return Runner(model, choices.numerics, mesh, placed, tables, engine, cache)


def prefill(runner: Runner, workload: Workload, batch: int, *, all_logits: bool) -> Timing:
    """Prompts from nothing to their logits; the steps are those the engine would choose.

    Args:
      all_logits: logits of every position, left on the device; else of the last, with its token.
    Mutates the runner's state.
    """
    length = workload.prompt_tokens
    key = runner.buckets.prefill(batch, length, length, fresh=True, all_logits=all_logits)
    rows = [_row(runner, slot, 0, prompt(runner, workload, slot)) for slot in range(batch)]
    steps = [rows[i : i + key.sequences] for i in range(0, batch, key.sequences)]

    def run() -> None:
        outputs = [runner.launch(key, step)[0] for step in steps]
        for output in outputs:
            (output.logits if all_logits else output.tokens).block_until_ready()

    phase = "prefill, all logits" if all_logits else "prefill"
    return Timing(phase, batch, batch * length, _times(run, workload.repeats))


def decode(runner: Runner, workload: Workload, batch: int) -> Timing:
    """Greedy decoding behind prefilled prompts; tokens reach the host one step late.

    Mutates the runner's state.
    """
    length = workload.prompt_tokens
    fill = runner.buckets.prefill(1, length, length, fresh=True)
    for slot in range(batch):
        runner.launch(fill, [_row(runner, slot, 0, prompt(runner, workload, slot))])
    key = runner.buckets.decode(batch, length + workload.new_tokens)

    def run() -> None:
        waiting = None
        for number in range(workload.new_tokens):
            rows = [_row(runner, slot, length + number, [0]) for slot in range(batch)]
            tokens = runner.launch(key, rows)[0].tokens
            tokens.copy_to_host_async()
            if waiting is not None:
                np.asarray(waiting)
            waiting = tokens
        np.asarray(waiting)

    count = batch * workload.new_tokens
    return Timing("decode", batch, count, _times(run, workload.repeats))


def prompt(runner: Runner, workload: Workload, slot: int) -> list[int]:
    """Random ids of one sequence."""
    vocab = runner.context.model.vocab_size
    ids = np.random.default_rng(slot).integers(3, vocab, workload.prompt_tokens)
    return [int(i) for i in ids]


def _row(runner: Runner, slot: int, start: int, ids: list[int]) -> batches.Row:
    return batches.Row(0, slot, start, ids, (), runner.pages_of(slot), GREEDY, 0)


def _times(run, repeats: int) -> tuple[float, ...]:
    run()  # compiles
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return tuple(times)

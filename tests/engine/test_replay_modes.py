"""Skipped decoder rows on a device: the numbers of the definition, and the work that is saved."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine import step
from ds_jax.engine.buckets import StepKey
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, memory
from ds_jax.testing import drafting_model, prompt, tiny_pipeline
from tests.engine import replicas

KEEP = 12  # a window of 8 and room
# kept rows in one chunk, over two chunks, behind whole chunks, and more than there are
PROMPTS = [prompt(n, seed=n) for n in (20, 30, 55, 9)]
PARAMS = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, top_logprobs=0)


def replica(mode: str, **options: Any) -> Pipeline:
    """Ratio 2, and two decoder layers of which one reads the other's rows; a drafter reads both."""
    model = drafting_model(
        num_hidden_layers=3,
        compress_ratios=(2, 1, 1, 0),
        kv_source_layer_ids=(0, 1),
        index_source_layer_ids=(0, 1),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
        num_nextn_predict_layers=1,
        dspark_target_layer_ids=(1, 2),
    )
    cache = {"replay": mode, "keep_tokens": KEEP if mode != "off" else 0}
    cache |= options.pop("cache", {})
    sizes = {"max_context": 80, "page_tokens": 16, "chunk_tokens": (24,), "max_sequences": 2}
    return tiny_pipeline(model, cache=cache, token_map=None, **sizes | options)


@pytest.fixture(scope="module")
def masked() -> Iterator[Pipeline]:
    pipeline = replica("mask")
    yield pipeline
    pipeline.close()


@pytest.fixture(scope="module")
def compact() -> Iterator[Pipeline]:
    """Pages for less than two whole sequences: some are computed again."""
    pipeline = replica("compact", cache={"pages": 6})
    yield pipeline
    pipeline.close()


def by_definition(pipeline: Pipeline, ids: list[int], prompt_tokens: int) -> np.ndarray:
    """Logits [T V] of all rows at once without a cache: no decoder window key below N - K."""
    runner = pipeline.runner
    back = jnp.zeros((1, runner.back), jnp.int32)
    batch = caches.Batch(
        token_ids=jnp.asarray([ids], jnp.int32),
        lookback_ids=back,
        start=jnp.zeros(1, jnp.int32),
        lens=jnp.full(1, len(ids), jnp.int32),
        slots=jnp.zeros(1, jnp.int32),
        page_table=jnp.zeros((1, 1), jnp.int32),
        floor=jnp.zeros(1, jnp.int32),
        decoder_floor=jnp.full(1, max(0, prompt_tokens - KEEP), jnp.int32),
    )
    return np.asarray(run_at_once(runner.context, runner.params, runner.tables, batch))


@functools.partial(jax.jit, static_argnums=0)
def run_at_once(ctx, params, tables, batch: caches.Batch) -> jax.Array:
    access = memory.Access(None, fresh=True)
    _, out, _ = deepseek_v41.forward(ctx, access, params, tables, batch)
    return deepseek_v41.logits(ctx, params, out.hidden[0])


def check(pipeline: Pipeline, ids: list[int], events: list) -> None:
    """Tokens are the likeliest by the definition, with its log probabilities."""
    tokens = replicas.tokens(events)
    padded = [*ids, *tokens, *[3] * (64 - len(ids) - len(tokens))]  # one shape for all
    logits = by_definition(pipeline, padded, len(ids))[len(ids) - 1 :][: len(tokens)]
    assert logits.argmax(axis=-1).tolist() == tokens
    wanted = logits.max(axis=-1) - np.log(np.exp(logits.astype(np.float64)).sum(axis=-1))
    found = [event.logprob.logprob for event in events if event.logprob is not None]
    if found:
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("mode", ["masked", "compact"])
def test_kept_rows_are_those_of_the_definition(mode: str, request: pytest.FixtureRequest) -> None:
    pipeline = request.getfixturevalue(mode)
    for ids in PROMPTS:
        (cold,) = replicas.run(pipeline, replicas.requests([ids], PARAMS, reuse_prefix=False))
        check(pipeline, ids, cold)
    for ids in PROMPTS[:3] * 2:
        (cached,) = replicas.run(pipeline, replicas.requests([ids], PARAMS))
        check(pipeline, ids, cached)
    assert cached[-1].usage is not None and cached[-1].usage.cached_tokens > 0


def test_a_sequence_that_is_computed_again_keeps_its_rows(compact: Pipeline) -> None:
    longer = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True, top_logprobs=0)
    before = compact.stats()["preemptions_total"]
    asked = replicas.requests([PROMPTS[1], PROMPTS[0]], longer, reuse_prefix=False)
    found = replicas.run(compact, asked)
    assert compact.stats()["preemptions_total"] > before
    for ids, events in zip((PROMPTS[1], PROMPTS[0]), found, strict=True):
        assert len(replicas.tokens(events)) == 30
        check(compact, ids, events)


def test_drafts_read_the_kept_rows(compact: Pipeline) -> None:
    """Verified tokens are those of the definition, whatever the drafter makes of its rows."""
    drafting = replica("compact", nextn=2)
    longer = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    for ids in PROMPTS[1:3]:
        (events,) = replicas.run(drafting, replicas.requests([ids], longer))
        check(drafting, ids, events)
    assert drafting.stats()["mean_verified_length"] > 0
    drafting.close()


def test_rows_that_are_left_out_are_not_computed(masked: Pipeline, compact: Pipeline) -> None:
    """Of 24 rows two of four layers compute 12."""
    key = StepKey(1, 24, 2, fresh=True)
    work = [lowered_flops(pipeline, key) for pipeline in (masked, compact)]
    assert work[1] < 0.8 * work[0]
    short = StepKey(1, KEEP, 2, fresh=True)
    work = [lowered_flops(pipeline, short) for pipeline in (masked, compact)]
    assert work[0] == work[1]


def lowered_flops(pipeline: Pipeline, key: StepKey) -> float:
    runner = pipeline.runner
    jitted: Any = step.build(runner.context, runner.layout, key, runner.mesh, runner.specs)
    packed = jax.ShapeDtypeStruct((1, step.batches.width(key, runner.back)), jnp.int32)
    state = jax.eval_shape(runner._make_state)
    return jitted.lower(runner.params, runner.tables, state, packed).cost_analysis()["flops"]

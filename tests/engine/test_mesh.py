"""Steps over 8 virtual devices: the tokens of one device, by the collectives that were written."""

from __future__ import annotations

import collections
import pathlib
import re
from typing import Any

import jax
import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine.buckets import StepKey
from ds_jax.testing import largest_difference, prompt, tiny_model, tiny_pipeline

PROMPTS = [prompt(n, seed=n) for n in (5, 21, 13, 8, 1, 17, 24, 3, 11)]
PARAMS = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
SMALL: dict[str, Any] = {
    "num_hidden_layers": 1,
    "compress_ratios": (2,),
    "kv_source_layer_ids": (0,),
    "index_source_layer_ids": (0,),
    "candidate_source_layer_id": None,
    "engram_layer_ids": (0,),
}
MESHES = ("ep8", "ep2,dp8", "ep4")


def small(mesh: str, **options: Any) -> Pipeline:
    """One layer with every part; contexts and chunks of one size each."""
    sizes = {"max_context": 32, "page_tokens": 32, "chunk_tokens": (24,), "max_sequences": 2}
    return tiny_pipeline(tiny_model(**SMALL), mesh=mesh, **sizes | options)


@pytest.fixture(scope="module")
def tokens() -> list[tuple[int, ...]]:
    """Tokens of one device."""
    return [r.token_ids for r in small("ep1").generate(PROMPTS, PARAMS)]


@pytest.fixture(scope="module", params=MESHES)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return small(request.param)


def test_meshes_give_the_tokens_of_one_device(
    pipeline: Pipeline, tokens: list[tuple[int, ...]]
) -> None:
    got = [r.token_ids for r in pipeline.generate(PROMPTS, PARAMS)]
    assert got == tokens


def test_state_and_experts_are_split_over_the_devices(pipeline: Pipeline) -> None:
    runner = pipeline.runner
    devices, experts = runner.ranks, runner.mesh.shape["ep"]
    window = runner.state.cache.window
    assert window.sharding.shard_shape(window.shape)[1] == runner.layout.num_slots
    (w13,) = jax.tree.leaves(runner.params.layers[0].ffn.w13)
    assert w13.sharding.shard_shape(w13.shape)[0] == 8 // experts
    engram = runner.params.layers[0].engram
    assert engram is not None
    table = engram.table
    assert table.sharding.shard_shape(table.shape)[0] == -(-434 // devices)


def collectives(pipeline: Pipeline, key: StepKey) -> collections.Counter[str]:
    """How often each collective stands in the compiled text of a step."""
    names = "all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute"
    found = re.findall(rf" ({names})(?:-start)?\(", pipeline.runner.programs.get(key).as_text())
    return collections.Counter(found)


@pytest.mark.parametrize("pipeline", ["ep8"], indirect=True)
def test_a_decode_step_gathers_tokens_and_scatters_sums(pipeline: Pipeline) -> None:
    found = collectives(pipeline, pipeline.runner.buckets.decode(2, 32))
    layers, engrams = 1, 1
    assert found["reduce-scatter"] == layers + engrams
    # tokens, experts and weights of each layer, and row numbers: the compiler may join some
    assert layers + engrams <= found["all-gather"] <= 3 * layers + engrams
    assert not found["all-to-all"] and not found["all-reduce"] and not found["collective-permute"]


@pytest.mark.parametrize("pipeline", ["ep8"], indirect=True)
def test_a_long_chunk_sends_tokens_to_their_experts(pipeline: Pipeline) -> None:
    key = pipeline.runner.buckets.prefill(1, 24, 32, fresh=True)
    found = collectives(pipeline, key)
    layers, engrams = 1, 1
    assert found["all-to-all"] >= layers
    assert found["all-reduce"] == layers  # the number of rounds
    assert found["reduce-scatter"] == engrams


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["ep4", "ep2,dp8"])
def test_quantised_weights_give_the_logits_of_one_device(golden: pathlib.Path, mesh: str) -> None:
    ids = prompt(25, vocab=380)
    options: dict[str, Any] = {
        "weights": "quantized",
        "numerics": "float32",
        "program_cache": None,
        "max_sequences": 1,
        "chunk_tokens": (32,),
    }
    case = golden / "model" / "quant_fp8_fp4"
    one = Pipeline.from_checkpoint(case, **options)
    many = Pipeline.from_checkpoint(case, mesh=mesh, **options)
    assert largest_difference(many.score(ids), one.score(ids)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
def test_every_kind_of_layer_gives_the_logits_of_one_device(mesh: str) -> None:
    ids = prompt(45)
    options: dict[str, Any] = {"max_sequences": 1, "chunk_tokens": (24,)}
    one, many = tiny_pipeline(**options), tiny_pipeline(mesh=mesh, **options)
    assert largest_difference(many.score(ids), one.score(ids)) < 1e-5
    wanted, got = one.trace(ids), many.trace(ids)
    for name, value in wanted.items():
        assert largest_difference(np.asarray(got[name]), np.asarray(value)) < 1e-5, name
    generated = [p.generate([ids], PARAMS)[0].token_ids for p in (one, many)]
    assert generated[0] == generated[1]

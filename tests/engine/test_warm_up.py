"""After warm-up nothing is traced or compiled again."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.testing import prompt, tiny_model, tiny_pipeline


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names of jax's compilation events from here on."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event.startswith("/jax/core/compile/"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """One window layer: few sizes, short compilations."""
    model = tiny_model(
        num_hidden_layers=1,
        compress_ratios=(0,),
        kv_source_layer_ids=(),
        index_source_layer_ids=(),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )
    return tiny_pipeline(
        model, token_map=None, max_sequences=2, max_context=32, chunk_tokens=(16,), page_tokens=32
    )


def test_no_compilation_after_warm_up(pipeline: Pipeline, compilations: list[str]) -> None:
    assert pipeline.warm_up() == len(pipeline.runner.buckets.keys()) == 5
    assert compilations
    compilations.clear()
    params = SamplingParams(max_tokens=5, temperature=0.9, top_p=0.8, seq_seed=1, ignore_eos=True)
    for lengths in ((1,), (16, 3), (20, 27, 5, 9, 2)):
        results = pipeline.generate([prompt(n, seed=n) for n in lengths], params)
        assert [len(r.token_ids) for r in results] == [5] * len(lengths)
    assert not compilations

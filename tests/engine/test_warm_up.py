"""After warm-up nothing is traced or compiled again."""

from __future__ import annotations

import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.testing import prompt
from tests.engine import replicas


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return replicas.one_layer(max_sequences=2, max_context=32, page_tokens=32)


def test_no_compilation_after_warm_up(pipeline: Pipeline, compilations: list[str]) -> None:
    told: list[tuple[int, int]] = []
    count = pipeline.warm_up(lambda done, total: told.append((done, total)))
    assert count == len(pipeline.runner.buckets.keys()) == 5
    assert told == [(done, 5) for done in range(1, 6)]
    assert compilations
    compilations.clear()
    params = SamplingParams(max_tokens=5, temperature=0.9, top_p=0.8, seq_seed=1, ignore_eos=True)
    for lengths in ((1,), (16, 3), (20, 27, 5, 9, 2)):
        results = pipeline.generate([prompt(n, seed=n) for n in lengths], params)
        assert [len(r.token_ids) for r in results] == [5] * len(lengths)
    assert not compilations

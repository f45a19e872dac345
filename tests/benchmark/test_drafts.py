"""What drafts gain: ratios of neighbouring runs, and three ways to the same answers."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ds_jax import Pipeline
from ds_jax.benchmark import drafts, replica
from ds_jax.testing import prompt, smallest_drafting_model, tiny_params


def test_gain_is_the_median_over_neighbouring_runs() -> None:
    modes = {
        drafts.NONE: drafts.Mode((10.0, 20.0, 40.0)),
        drafts.ALL: drafts.Mode((20.0, 20.0, 40.0), 5.0, 4.0, {6: 3}),
        drafts.PAYING: drafts.Mode(
            (30.0, 60.0, 60.0), 2.5, 3.0, {2: 2, 6: 1}, 0, (1.0, 0.5), (0.75, 0.25)
        ),
    }
    found = drafts.Comparison(1, 40, modes)
    assert found.gain(drafts.ALL, drafts.NONE) == 1.0
    assert found.gain(drafts.PAYING, drafts.NONE) == 3.0
    table = drafts.table([found])
    assert "| 1 | 20 | 20 | 60 | 1.00x | 3.00x | 1.50x | 5.00 -> 2.50 | 4.00 -> 3.00 |" in table
    assert drafts.points([found])[drafts.PAYING] == [(60.0, 60.0, "1")]
    assert drafts.positions([found]).count("<circle") == 4


@pytest.mark.slow
def test_all_modes_answer_alike_and_are_timed() -> None:
    model = smallest_drafting_model()
    sizes = {"max_sequences": 2, "max_context": 32, "page_tokens": 32, "chunk_tokens": (32,)}
    params = tiny_params(model)
    plain = Pipeline(model, params, numerics="float32", **sizes)
    quick = Pipeline(model, params, numerics="float32", nextn=2, varlen_verify=True, **sizes)
    drafts.learn(quick, 2)
    prompts = [prompt(5), prompt(9, seed=1)]
    found = drafts.compare(plain, quick, prompts, 2, 12, 2)
    assert set(found.modes) == {drafts.NONE, drafts.ALL, drafts.PAYING}
    for mode in found.modes.values():
        assert len(mode.tokens_per_s) == 2 and all(math.isfinite(s) for s in mode.tokens_per_s)
    assert json.dumps(dataclasses.asdict(found))
    every = found.modes[drafts.ALL]
    assert set(every.sizes) == {6} and 1.0 <= every.accepted <= 3.0
    assert sum(every.verified_at) == pytest.approx(every.verified)
    assert 1.0 + sum(every.accepted_at) == pytest.approx(every.accepted)
    asked = replica.requests(prompts, [12, 12], reuse_prefix=True, to_end=True)
    assert not any(request.params.ignore_eos for request in asked)
    plain.close()
    quick.close()

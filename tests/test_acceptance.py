"""The embedded drafter is as good as when it was trained: only acceptance shows a fault of it."""

from __future__ import annotations

import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.training import evaluate

FIRST = 0.82  # of the first drafts; it was 0.92 on 96 dialogues
LENGTH = 3.3  # tokens a step; it was 4.58


@pytest.mark.slow
def test_acceptance_of_the_embedded_drafter_has_not_fallen() -> None:
    pipeline = Pipeline.from_checkpoint(
        "tiny", nextn=5, program_cache=None, max_sequences=16, max_context=512, chunk_tokens=(320,)
    )
    prompts = evaluate.prompt_ids(pipeline, evaluate.held_out_dialogues(16))
    pipeline.generate(prompts, SamplingParams(max_tokens=64, temperature=0.0))
    stats = pipeline.stats()
    assert stats["accepted_at_1"] / stats["verified_at_1"] >= FIRST
    assert stats["mean_accepted_length"] >= LENGTH

"""The embedded model at temperature 1 under grammars of every kind, in one batch with free ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds_jax import Pipeline
from tests.structured import sampled_outputs

EACH = 24


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """Canonical: one program runs all steps."""
    made = Pipeline.from_checkpoint(
        "tiny",
        max_sequences=16,
        max_context=256,
        canonical=True,
        engine={"canonical_rows": 16},
        program_cache=None,
    )
    yield made
    made.close()


def test_outputs_are_valid_and_free_ones_do_not_notice(pipeline: Pipeline) -> None:
    asked = list(sampled_outputs.requests(pipeline, range(EACH), max_tokens=64))
    tallies, tokens = sampled_outputs.run(pipeline, asked)
    assert set(tallies) == {name for name, _ in asked}
    for name, tally in tallies.items():
        assert not tally.invalid and not tally.failed, name
        assert tally.ended + tally.cut >= EACH
        assert name == "free" or tally.ended, name
    free = [pair for pair in asked if pair[0] == "free"]
    alone = sampled_outputs.run(pipeline, free)[1]
    assert {name: tokens[name] for name in alone} == alone

"""After warm-up nothing is traced or compiled again, whatever a request asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine.engine import Engine
from ds_jax.testing import prompt
from tests.engine import constrained, replicas

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.9, "top_p": 0.8, "top_k": 20},
    "min-p": {"min_p": 0.1},
    "penalties": {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.3,
    },
    "bias": {"logit_bias": ((5, 2.0), (9, -100.0))},
    "logprobs": {"top_logprobs": 3},
    "prompt logprobs": {"prompt_logprobs": 1},
    "stop strings": {"stop": ("never said",)},
    "constrained": {"grammar": constrained.KINDS["lark"][0]},
    "constrained, shaped": {
        "grammar": constrained.KINDS["regex"][0],
        "presence_penalty": 0.5,
        "top_logprobs": 1,
    },
}


class Pieces:
    """Bytes as text, one at a time."""

    def push(self, token_ids: list[int]) -> str:
        return "".join(chr(i) for i in token_ids)

    def finish(self) -> str:
        return ""


@pytest.fixture(scope="module", params=[False, True], ids=["usual", "canonical"])
def pipeline(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    """Two slots that share the pages of one and a half contexts."""
    made = constrained.speaker(
        canonical=request.param,
        engine={"canonical_rows": 8},
        max_sequences=2,
        max_context=32,
        cache={"pages": 3},
    )
    made.engine = Engine(made.loop, Pieces, made.grammars)
    yield made
    made.close()


def test_nothing_compiles_after_warm_up(
    pipeline: Pipeline, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of request alone, behind its own prefix, and all of them together."""
    told: list[tuple[int, int]] = []
    count = pipeline.warm_up(lambda done, total: told.append((done, total)))
    assert count == len(pipeline.runner.buckets.keys())
    assert told == [(done, count) for done in range(1, count + 1)]
    assert compilations
    compilations.clear()
    restored = []
    load = pipeline.runner.states.load
    monkeypatch.setattr(
        pipeline.runner.states, "load", lambda *given: restored.append(given) or load(*given)
    )
    late: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        params = SamplingParams(max_tokens=10, seq_seed=1, ignore_eos="grammar" not in kind, **kind)
        for length in (20, 9, 20):
            (events,) = replicas.run(
                pipeline, replicas.requests([prompt(length, seed=length)], params)
            )
            assert events[-1].error is None
            if compilations:
                late.setdefault(name, []).extend(compilations)
                compilations.clear()
    assert not late
    mixed = [
        request
        for kind in KINDS.values()
        for request in replicas.requests(
            [prompt(n, seed=n) for n in (20, 9, 12)],
            SamplingParams(max_tokens=10, seq_seed=1, ignore_eos="grammar" not in kind, **kind),
        )
    ]
    for asked in (
        mixed,
        [dataclasses.replace(m, request_id=f"again {m.request_id}") for m in mixed],
    ):
        replicas.run(pipeline, asked)
    stats = pipeline.stats()
    assert stats["prefix_hit_tokens_total"] > 0 and stats["preemptions_total"] > 0
    assert restored and not compilations

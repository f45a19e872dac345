"""Time of a decode step of 32 sequences, 8 of them constrained, against 32 free ones.

    python -m tests.structured.step_cost --rounds=5
    python -m tests.structured.step_cost --vocabulary=released

Rounds of both kinds follow each other in one process, so that whatever else the machine does falls
on both. `tiny` is the embedded model with its 3,072 ids; `released` is one random layer over the
released 129,280 ids, where nearly all of a step is the head and the draws, so that what is drawn
again weighs as much as it can.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

from ds_jax import Pipeline, SamplingParams
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import GenerateRequest
from ds_jax.testing import tiny_model, tiny_pipeline
from tests.structured import grammar_cost

SIZES: dict[str, Any] = {"max_sequences": 32, "max_context": 256, "chunk_tokens": (64,)}
ENDLESS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["name", "n"],
        "additionalProperties": False,
    },
    "minItems": 100,
}


def released() -> Pipeline:
    """One window layer over the released vocabulary."""
    model = tiny_model(
        vocab_size=129280,
        num_hidden_layers=1,
        compress_ratios=(0,),
        kv_source_layer_ids=(),
        index_source_layer_ids=(),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )
    tokenizer = Tokenizer.from_file(grammar_cost.tokenizer_file())
    return tiny_pipeline(model, tokenizer=tokenizer, token_map=None, **SIZES)


def step_ms(pipeline: Pipeline, constrained: int, tokens: int, seed: int) -> list[float]:
    """Times between the launches of full decode steps."""
    free = SamplingParams(tokens, ignore_eos=True, seq_seed=seed)
    held = SamplingParams(tokens, json_schema=ENDLESS, seq_seed=seed)
    requests = [
        GenerateRequest(str(n), (0, 5 + n, 9), held if n < constrained else free) for n in range(32)
    ]
    pipeline.loop.log.records.clear()
    for event in pipeline.events(requests):
        assert event.error is None, event.error
    records = list(pipeline.loop.log.records)
    return [
        1e3 * (after.launched_at - before.launched_at)
        for before, after in itertools.pairwise(records)
        if before.decode_rows == after.decode_rows == 32
        and not before.prefill_tokens + after.prefill_tokens
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", choices=["tiny", "released"], default="tiny")
    given = parser.parse_args()
    tiny = given.vocabulary == "tiny"
    pipeline = Pipeline.from_checkpoint("tiny", **SIZES) if tiny else released()
    times: dict[int, list[float]] = {0: [], 8: []}
    for constrained in times:
        step_ms(pipeline, constrained, 8, 0)  # programs, vocabulary and grammar are there then
    ratios: list[float] = []
    for number in range(given.rounds):
        medians = {}
        for constrained, found in times.items():
            mine = step_ms(pipeline, constrained, given.tokens, number)
            found += mine
            medians[constrained] = statistics.median(mine)
        ratios.append(medians[8] / medians[0])
        print(f"round {number}: {medians[0]:.1f} ms, {medians[8]:.1f} ms", flush=True)
    free, held = (statistics.median(times[n]) for n in (0, 8))
    print(f"\nmedian step: free {free:.2f} ms, with 8 constrained {held:.2f} ms: {held / free:.3f}")
    print("ratio of each round:", ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios)))


if __name__ == "__main__":
    main()

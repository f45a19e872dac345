"""Teacher-forced logits of a sequence of any length, through the cache like a real request.

Decides how the sequence is cut into chunks. Never samples. In: token ids. Out: float32 logits
[T V].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ds_jax import records
from ds_jax.engine import batch as batches
from ds_jax.engine.runner import Runner


def score(
    runner: Runner, token_ids: Sequence[int], cuts: Sequence[int] = ()
) -> Float[np.ndarray, "T V"]:
    """Logits of every position. Mutates the runner's state: slot 0 of rank 0 is used.

    Args:
      cuts: positions at which a chunk must end besides those the buckets ask for.
    """
    params = records.SamplingParams(temperature=0)
    if runner.buckets.flat_rows:
        return _flat(runner, token_ids, params)
    pieces = []
    ends = sorted({*cuts, len(token_ids)})
    start = 0
    while start < len(token_ids):
        end = min(next(e for e in ends if e > start), start + runner.buckets.chunks[-1])
        key = runner.buckets.prefill(
            1, end - start, len(token_ids), fresh=start == 0, all_logits=True
        )
        before = token_ids[max(0, start - runner.back) : start]
        pages = runner.pages_of(0)
        row = batches.Row(0, 0, start, token_ids[start:end], before, pages, params, 0)
        output, (place,) = runner.launch(key, [row])
        pieces.append(np.asarray(output.logits)[place, : end - start])
        start = end
    return np.concatenate(pieces)


def _flat(
    runner: Runner, token_ids: Sequence[int], params: records.SamplingParams
) -> Float[np.ndarray, "T V"]:
    """By the program that everything else is computed with: every token is a row."""
    key, pages, pieces = runner.buckets.flat, runner.pages_of(0), []
    for first in range(0, len(token_ids), key.sequences):
        rows = [
            batches.Row(
                *(0, 0, at, token_ids[at : at + 1], token_ids[max(0, at - runner.back) : at]),
                *(pages, params, 0),
            )
            for at in range(first, min(first + key.sequences, len(token_ids)))
        ]
        output, places = runner.launch(key, rows)
        pieces.append(np.asarray(output.logits)[places])
    return np.concatenate(pieces)

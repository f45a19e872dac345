"""One step's metadata as one packed int32 array, a row for each sequence.

Decides the words of a row. Never plans. In: `Row`s on the host. Out: the array; on the device,
inside the compiled step, the same words as `Batch` and `Controls`.

| words | meaning |
|---|---|
| 0-2 | slot, start, number of tokens |
| 3-7 | how it is sampled (`controls`) |
| back | ids before the first token (prefill only) |
| Z | page table |
| U | token ids (prefill only) |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ds_jax import records
from ds_jax.engine import controls
from ds_jax.engine.buckets import StepKey
from ds_jax.models import cache as caches
from ds_jax.sampling import sample

HEADER = 3 + controls.WORDS
NO_SLOT = 2**30  # a row that only pads the batch


@dataclasses.dataclass(frozen=True)
class Row:
    """One sequence's part in a step.

    Attributes:
      rank: data-parallel rank that holds the sequence.
      slot: its slot there.
      start: position of the first token.
      token_ids: the tokens; in a decode step only their number counts, the device knows the token.
      lookback_ids: ids just before `start`, oldest first (prefill only).
      pages: page numbers in order of position.
      params: how it is sampled.
      seed: its seed, drawn if `params` holds none.
    """

    rank: int
    slot: int
    start: int
    token_ids: Sequence[int]
    lookback_ids: Sequence[int]
    pages: Sequence[int]
    params: records.SamplingParams
    seed: int


def width(key: StepKey, back: int) -> int:
    """Words of a row."""
    return HEADER + key.pages + (0 if key.feeds_back else back + key.tokens)


def pack(rows: Sequence[Row], key: StepKey, ranks: int, back: int) -> tuple[np.ndarray, list[int]]:
    """The array int32 [ranks * B, words] and where each row went."""
    out = np.zeros((ranks * key.sequences, width(key, back)), np.int32)
    out[:, 0] = NO_SLOT
    used = [0] * ranks
    places = []
    for row in rows:
        assert used[row.rank] < key.sequences, f"rank {row.rank} has more rows than the step"
        place = row.rank * key.sequences + used[row.rank]
        used[row.rank] += 1
        places.append(place)
        _fill(out[place], row, key, back)
    if rows:
        words = controls.pack([row.params for row in rows], [row.seed for row in rows])
        out[places, 3:HEADER] = words
    return out, places


def _fill(words: np.ndarray, row: Row, key: StepKey, back: int) -> None:
    words[:3] = row.slot, row.start, len(row.token_ids)
    at = HEADER
    if not key.feeds_back:
        if row.lookback_ids:
            words[at + back - len(row.lookback_ids) : at + back] = row.lookback_ids
        at += back
    pages = row.pages[: key.pages]
    words[at : at + len(pages)] = pages
    if not key.feeds_back:
        at += key.pages
        words[at : at + len(row.token_ids)] = row.token_ids


def unpack(
    packed: Int[Array, "B words"], key: StepKey, back: int, recent: Int[Array, "slots recent"]
) -> tuple[caches.Batch, sample.Controls]:
    """Inside the step: addresses and controls. `recent`: the last back + 1 ids of every slot."""
    slots, start, lens = packed[:, 0], packed[:, 1], packed[:, 2]
    at = HEADER
    if key.feeds_back:
        ids = recent[jnp.minimum(slots, recent.shape[0] - 1)]
        lookback, tokens = ids[:, :back], ids[:, back:]
    else:
        lookback = packed[:, at : at + back]
        at += back
        tokens = packed[:, at + key.pages :]
    batch = caches.Batch(
        token_ids=tokens,
        lookback_ids=lookback,
        start=start,
        lens=lens,
        slots=slots,
        page_table=packed[:, at : at + key.pages],
    )
    return batch, controls.unpack(packed[:, 3:HEADER], start + lens)

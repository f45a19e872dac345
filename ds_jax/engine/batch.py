"""One step's metadata as one packed int32 array, a row for each sequence.

Decides the words of a row. Never plans. In: `Row`s on the host. Out: the array; on the device,
inside the compiled step, the same words as `Batch` and `Controls`.

| words | meaning |
|---|---|
| 0-2 | slot, start, number of tokens |
| 3-5 | first position whose compressed rows are written; window floors of both sides |
| 6 | newest position that the step writes for the slot (flat steps only) |
| 7 | 1: the token comes from the device (flat steps only; decode steps always do that) |
| 8-12 | how it is sampled (`controls`) |
| back | ids before the first token (prefill only) |
| Z | page table |
| U | token ids (prefill only) |
| 1 | room for the id behind a full chunk (scores only) |
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

NEWEST, FROM_DEVICE, ADDRESS = 6, 7, 8
HEADER = ADDRESS + controls.WORDS
NO_SLOT = controls.NOWHERE  # of a row that only pads the batch


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
      history: in a prefill step whose sample is read: all tokens up to its end, and how many of
        them are the prompt. Penalties count from it.
      next_id: the id behind the last token (scores only; any id where there is none yet).
      write_from: compressed rows of positions below it are found, not written.
      floor, decoder_floor: no window row below exists, in front of the decoder side and in it.
      from_device: in a flat step, the token is the newest of the slot; a decode row.
      samples: somebody reads the token that is drawn behind the row.
    """

    rank: int
    slot: int
    start: int
    token_ids: Sequence[int]
    lookback_ids: Sequence[int]
    pages: Sequence[int]
    params: records.SamplingParams
    seed: int
    history: tuple[Sequence[int], int] | None = None
    next_id: int = 0
    write_from: int = 0
    floor: int = 0
    decoder_floor: int = 0
    from_device: bool = False
    samples: bool = True


def width(key: StepKey, back: int) -> int:
    """Words of a row."""
    return HEADER + key.pages + (0 if key.feeds_back else back + key.tokens) + key.scores


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
        words = plain_words([row.params for row in rows], [row.seed for row in rows])
        out[places, ADDRESS:HEADER] = words
        if key.flat:
            newest: dict[tuple[int, int], int] = {}
            for row in rows:
                newest[row.rank, row.slot] = max(row.start, newest.get((row.rank, row.slot), 0))
            out[places, NEWEST] = [newest[row.rank, row.slot] for row in rows]
    return out, places


def plain_words(params: Sequence[records.SamplingParams], seeds: Sequence[int]) -> np.ndarray:
    """Sampling words for the step; rows that a sampling program draws behind it are greedy here."""
    words = controls.pack(params, seeds)
    words[[p.needs_full_sampling for p in params], controls.TEMPERATURE] = 0
    return words


def _fill(words: np.ndarray, row: Row, key: StepKey, back: int) -> None:
    words[:3] = row.slot, row.start, len(row.token_ids)
    words[3:NEWEST] = row.write_from, row.floor, row.decoder_floor
    words[FROM_DEVICE] = row.from_device and key.flat
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
        if key.scores:
            words[at + len(row.token_ids)] = row.next_id


def unpack(
    packed: Int[Array, "B words"], key: StepKey, back: int, recent: Int[Array, "slots recent"]
) -> tuple[caches.Batch, sample.Controls]:
    """Inside the step: addresses and controls. `recent`: the last back + 1 ids of every slot."""
    slots, start, lens = packed[:, 0], packed[:, 1], packed[:, 2]
    at = HEADER
    known = recent[jnp.minimum(slots, recent.shape[0] - 1)]
    lookback, tokens = known[:, :back], known[:, back:]
    if not key.feeds_back:
        given = packed[:, at : at + back]
        at += back
        ids = packed[:, at + key.pages : at + key.pages + key.tokens]
        if key.flat:
            on_device = packed[:, FROM_DEVICE, None] > 0
            given, ids = jnp.where(on_device, lookback, given), jnp.where(on_device, tokens, ids)
        lookback, tokens = given, ids
    batch = caches.Batch(
        token_ids=tokens,
        lookback_ids=lookback,
        start=start,
        lens=lens,
        slots=slots,
        page_table=packed[:, at : at + key.pages],
        # decode rows write all they compute, and their window never reaches down to a floor
        write_from=None if key.feeds_back else packed[:, 3],
        floor=None if key.feeds_back else packed[:, 4],
        decoder_floor=None if key.feeds_back else packed[:, 5],
        newest=packed[:, NEWEST] if key.flat else None,
    )
    return batch, controls.unpack(packed[:, ADDRESS:HEADER], start + lens)


def following(packed: Int[Array, "B words"], key: StepKey) -> Int[Array, "B U"]:
    """Inside a step that scores: the id behind every row."""
    return packed[:, -key.tokens :]

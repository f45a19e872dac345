"""Launches as packed arrays, from tables that follow the scheduler.

Decides what is kept between steps: a row of words a slot, written when a sequence gets the slot or
another page. So a decode step costs the host one gather. Never decides what runs, never calls jax.
In: plans and launches. Out: int32 arrays as `batch.pack` makes them (its fast twin).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ds_jax.engine import batch as batches
from ds_jax.engine import controls, launches
from ds_jax.engine.batch import ADDRESS, HEADER, NO_SLOT
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.launches import Launch
from ds_jax.engine.plan import Chunk
from ds_jax.engine.sequence import Sequence, State


class Packer:
    """Words of every slot. `update` mutates it.

    Args:
      ranks: data-parallel ranks.
      slots: slots of a rank.
      pages: widest page table.
      back: ids in front of a token that its rows depend on.
    """

    def __init__(self, ranks: int, slots: int, pages: int, back: int):
        self.ranks = ranks
        self.slots = slots
        self.back = back
        self._table = np.zeros((ranks * slots, controls.WORDS + pages), np.int32)
        self._owners: list[Sequence | None] = [None] * (ranks * slots)

    def place(self, sequence: Sequence) -> int:
        """Number of a sequence's slot among those of all ranks."""
        return sequence.rank * self.slots + sequence.slot

    def update(self, changed: Iterable[Sequence]) -> None:
        """Follows the lists of pages that a plan has changed."""
        for sequence in changed:
            if sequence.slot < 0 or sequence.state is State.ENDED:
                continue
            place = self.place(sequence)
            row = self._table[place]
            if self._owners[place] is not sequence:
                self._owners[place] = sequence
                row[: controls.WORDS] = batches.plain_words(
                    [sequence.request.params], [sequence.seed]
                )[0]
            room = len(row) - controls.WORDS  # pages beyond it are for drafts without a place
            pages = sequence.pages[:room]
            row[controls.WORDS : controls.WORDS + len(pages)] = pages

    def pack(self, launch: Launch) -> np.ndarray:
        """The array of a launch, int32 [ranks * B, words]."""
        key = launch.key
        out = np.zeros((self.ranks * key.sequences, batches.width(key, self.back)), np.int32)
        out[:, 0] = NO_SLOT
        if key.flat:
            self._flat(out, launch)
        elif key.feeds_back:
            self._decode(out, launch)
        else:
            self._prefill(out, launch)
        return out

    def _decode(self, out: np.ndarray, launch: Launch) -> None:
        key, rows = launch.key, launch.rows
        slots = [row.sequence.slot for row in rows]
        if self.ranks == 1:
            at, held = np.arange(len(rows)), slots
        else:
            ranks = [row.sequence.rank for row in rows]
            at = places(ranks, self.ranks, key.sequences)
            held = [r * self.slots + s for r, s in zip(ranks, slots, strict=True)]
        out[at, 0] = slots
        out[at, 1] = [row.start for row in rows]
        out[at, 2] = 1
        out[at, ADDRESS:] = self._table[held, : controls.WORDS + key.pages]
        if key.verify_rows:
            out[at, 3 : batches.NEWEST] = [
                (*_draft_words(row.sequence), launch.budgets[row.sequence.rank]) for row in rows
            ]

    def _prefill(self, out: np.ndarray, launch: Launch) -> None:
        key, back = launch.key, self.back
        ranks = [chunk.sequence.rank for chunk in launch.chunks]
        first = HEADER + back
        found = places(ranks, self.ranks, key.sequences)
        for place, chunk in zip(found, launch.chunks, strict=True):
            words, known = out[place], self._table[self.place(chunk.sequence)]
            words[: batches.NEWEST] = _address(chunk)
            words[ADDRESS:HEADER] = known[: controls.WORDS]
            before = chunk.lookback_ids(back)
            words[first - len(before) : first] = before
            words[first : first + key.pages] = known[controls.WORDS : controls.WORDS + key.pages]
            ids = chunk.token_ids
            words[first + key.pages : first + key.pages + len(ids)] = ids
            if key.scores:
                words[first + key.pages + len(ids)] = _next_id(chunk)

    def _flat(self, out: np.ndarray, launch: Launch) -> None:
        """Every token a row: chunks first, then decode rows, in order within a rank."""
        key, back = launch.key, self.back
        used = [rank * key.sequences for rank in range(self.ranks)]
        first = HEADER + back
        for chunk in launch.chunks:
            sequence, count = chunk.sequence, chunk.stop - chunk.start
            rows = out[used[sequence.rank] : used[sequence.rank] + count]
            used[sequence.rank] += count
            known = self._table[self.place(sequence)]
            rows[:, : batches.NEWEST] = _address(chunk)
            rows[:, 1] += np.arange(count, dtype=np.int32)
            rows[:, 2] = 1
            rows[:, batches.NEWEST] = chunk.stop - 1
            rows[:, ADDRESS:HEADER] = known[: controls.WORDS]
            line = np.zeros(back + count, np.int32)
            before = chunk.lookback_ids(back)
            line[back - len(before) : back] = before
            line[back:] = chunk.token_ids
            for number in range(back + 1):  # a look-back of `back` ids, then the token itself
                at = HEADER + number if number < back else first + key.pages
                rows[:, at] = line[number : number + count]
            rows[:, first : first + key.pages] = known[controls.WORDS : controls.WORDS + key.pages]
        for row in launch.rows:
            sequence = row.sequence
            words, known = out[used[sequence.rank]], self._table[self.place(sequence)]
            used[sequence.rank] += 1
            words[:3] = sequence.slot, row.start, 1
            words[batches.NEWEST], words[batches.FROM_DEVICE] = row.start, 1
            words[ADDRESS:HEADER] = known[: controls.WORDS]
            words[first : first + key.pages] = known[controls.WORDS : controls.WORDS + key.pages]


def _draft_words(sequence: Sequence) -> tuple[int, int]:
    """Words of a sequence whose drafts are verified (`verify_step`): its last place, coupled."""
    params = sequence.request.params
    alone = params.needs_full_sampling  # each token by itself
    most = -1 if alone else sequence.most_positions - 2
    return most, params.seq_seed is not None or params.grammar is not None


def rows_of(launch: Launch, back: int) -> list[batches.Row]:
    """The same launch as rows for `batch.pack`: the slow twin, and what full sampling asks for."""
    rows = [_chunk_row(part, back) for chunk in launch.chunks for part in _parts(launch.key, chunk)]
    for row in launch.rows:
        s = row.sequence
        start = launches.position(launch, row)
        rows.append(
            batches.Row(
                *(s.rank, s.slot, start, (0,), (), s.pages, s.request.params, s.seed),
                from_device=True,
            )
        )
    return rows


def _parts(key: StepKey, chunk: Chunk) -> list[Chunk]:
    if not key.flat:
        return [chunk]
    last = chunk.stop - 1
    return [
        Chunk(chunk.sequence, at, at + 1, chunk.samples and at == last)
        for at in range(chunk.start, chunk.stop)
    ]


def _chunk_row(chunk: Chunk, back: int) -> batches.Row:
    s = chunk.sequence
    slot, start, _, write_from, floor, decoder_floor = _address(chunk)
    return batches.Row(
        *(s.rank, slot, start, chunk.token_ids, chunk.lookback_ids(back)),
        *(s.pages, s.request.params, s.seed),
        write_from=write_from,
        floor=floor,
        decoder_floor=decoder_floor,
        samples=chunk.samples,
        history=(s.tokens[: chunk.stop], s.prompt_tokens) if chunk.samples else None,
        next_id=_next_id(chunk),
    )


def _next_id(chunk: Chunk) -> int:
    tokens = chunk.sequence.tokens
    return tokens[chunk.stop] if chunk.stop < len(tokens) else 0


def _address(chunk: Chunk) -> tuple[int, int, int, int, int, int]:
    """The words in front of `batch.NEWEST`."""
    sequence, replay = chunk.sequence, chunk.sequence.replay
    assert replay is not None, "a chunk belongs to an admitted sequence"
    return (
        sequence.slot,
        chunk.start,
        chunk.stop - chunk.start,
        chunk.write_from,
        replay.floor,
        replay.decoder_floor,
    )


def places(ranks: list[int], count: int, sequences: int) -> list[int]:
    """Where rows of these ranks stand in a batch: a rank's follow each other."""
    used = [rank * sequences for rank in range(count)]
    found: list[int] = []
    for rank in ranks:
        found.append(used[rank])
        used[rank] += 1
    return found

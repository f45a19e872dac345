"""Which compiled steps a plan becomes.

Decides how rows are grouped into rectangles that exist. Never changes what runs. In: a `Plan`.
Out: `Launch`es, in the order they run.

A step's rectangle is as long as its longest chunk, so chunks of one length are put together; and
chunks at position 0 have programs of their own, which read no page.
"""

from __future__ import annotations

import collections
import dataclasses

from ds_jax.engine.buckets import Buckets, StepKey
from ds_jax.engine.plan import Chunk, DecodeRow, Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One run of a compiled step.

    Attributes:
      key: its sizes.
      chunks: of prefill, or none.
      rows: of decode, or none.
      places: place of each reader of this launch among the readers of the plan.
      budgets: drafts that each rank verifies, where it does.
    """

    key: StepKey
    chunks: tuple[Chunk, ...] = ()
    rows: tuple[DecodeRow, ...] = ()
    places: tuple[int, ...] = ()
    budgets: tuple[int, ...] = ()


def split(plan: Plan, buckets: Buckets, context: int = 0, sequences: int = 0) -> list[Launch]:
    """The steps of a plan.

    Args:
      context: page tables are at least as wide as this needs; a large one means fewer programs.
      sequences: decode steps have at least so many rows a rank; again, for fewer programs.
    """
    if buckets.flat_rows:
        return _flat(plan, buckets.flat)
    launches: list[Launch] = []
    places = {id(chunk): n for n, chunk in enumerate(c for c in plan.prefill if c.samples)}
    for chunk in (c for c in plan.prefill if is_scored(c)):
        launches.append(
            Launch(
                buckets.scores(chunk.stop - chunk.start),
                chunks=(chunk,),
                places=(places[id(chunk)],) if chunk.samples else (),
            )
        )
    for fresh, chunks in _alike([c for c in plan.prefill if not is_scored(c)], buckets):
        tokens = max(c.stop - c.start for c in chunks)
        most = max(collections.Counter(c.sequence.rank for c in chunks).values())
        end = max(context, *(c.stop for c in chunks))
        launches.append(
            Launch(
                buckets.prefill(most, tokens, end, fresh=fresh),
                chunks=tuple(chunks),
                places=tuple(places[id(c)] for c in chunks if c.samples),
            )
        )
    if plan.decode:
        most = max(collections.Counter([r.sequence.rank for r in plan.decode]).values())
        most = max(most, sequences)
        end = max(context, max([r.start for r in plan.decode]) + 1 + buckets.drafts)
        first = len(places)
        launches.append(
            Launch(
                buckets.decode(most, end),
                rows=tuple(plan.decode),
                places=tuple(range(first, first + len(plan.decode))),
            )
        )
    return launches


def position(step: Launch, row: DecodeRow) -> int:
    """Position of the newest token of a decode row that is served without drafts.

    Where others have drafts, `row.start` counts drafts in flight; this row gets one token a step.
    """
    if not step.key.verify_rows:
        return row.start
    return len(row.sequence.tokens) + row.sequence.in_flight - 2


def is_scored(chunk: Chunk) -> bool:
    """Log probabilities of its tokens are asked for."""
    return chunk.sequence.request.params.prompt_logprobs is not None


def _flat(plan: Plan, key: StepKey) -> list[Launch]:
    """Runs of the one program that takes any rows: as many tokens of the plan as fit, in order."""
    chunks: list[list[Chunk]] = []
    rows: list[list[DecodeRow]] = []
    used: dict[int, int] = {}

    def run(rank: int) -> int:
        number = used.get(rank, 0) // key.sequences
        if number == len(chunks):
            chunks.append([])
            rows.append([])
        return number

    for chunk in plan.prefill:
        rank, at = chunk.sequence.rank, chunk.start
        while at < chunk.stop:
            number = run(rank)
            room = key.sequences - used.get(rank, 0) % key.sequences
            stop = min(chunk.stop, at + room)
            samples = chunk.samples and stop == chunk.stop
            chunks[number].append(Chunk(chunk.sequence, at, stop, samples))
            used[rank] = used.get(rank, 0) + stop - at
            at = stop
    for row in plan.decode:
        rank = row.sequence.rank
        rows[run(rank)].append(row)
        used[rank] = used.get(rank, 0) + 1
    place = {s: n for n, s in enumerate(plan.readers)}
    return [
        Launch(
            key,
            tuple(mine),
            tuple(others),
            tuple(place[part.sequence] for part in [*(c for c in mine if c.samples), *others]),
        )
        for mine, others in zip(chunks, rows, strict=True)
    ]


def _alike(chunks: list[Chunk], buckets: Buckets) -> list[tuple[bool, list[Chunk]]]:
    """Chunks of one bucket, all fresh or none, at most as many a rank as a step holds."""
    groups: dict[tuple[bool, int], list[list[Chunk]]] = {}
    for chunk in chunks:
        fresh, tokens = chunk.start == 0, chunk.stop - chunk.start
        room, rank = buckets.group(tokens), chunk.sequence.rank
        bucket = min(b for b in buckets.chunks if b >= tokens)
        steps = groups.setdefault((fresh, bucket), [])
        for step in steps:
            if sum(c.sequence.rank == rank for c in step) < room:
                step.append(chunk)
                break
        else:
            steps.append([chunk])
    return [(fresh, step) for (fresh, _), steps in groups.items() for step in steps]

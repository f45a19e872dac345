"""Which data-parallel rank takes the next sequence.

Decides between even load and known prefixes. Never changes anything. In: ranks and a waiting
sequence. Out: one rank and its offer.

All ranks run the same program, so a step costs what its fullest rank costs: even load comes first.
Among ranks that are nearly even, the one that has to compute least wins.
"""

from __future__ import annotations

from collections.abc import Iterable

from ds_jax.engine.rank import Offer, Rank
from ds_jax.engine.sequence import Sequence

UNEVENNESS = 2  # sequences a rank may have more than another, to use a longer prefix


def choose(ranks: Iterable[Rank], sequence: Sequence) -> tuple[Rank, Offer] | None:
    """The rank that takes a sequence; None: it fits nowhere."""
    offers: list[tuple[Rank, Offer]] = []
    for rank in ranks:
        offer = rank.offer(sequence)
        if offer is not None:
            offers.append((rank, offer))
    if not offers:
        return None
    most = min(len(rank.running) for rank, _ in offers) + UNEVENNESS - 1
    return max((o for o in offers if len(o[0].running) <= most), key=_preference)


def _preference(choice: tuple[Rank, Offer]) -> tuple[int, int, int, int]:
    rank, offer = choice
    return offer.replay.start, -len(rank.running), rank.pool.available, -rank.number

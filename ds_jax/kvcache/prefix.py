"""The prefix index of one rank: which page holds which tokens, for every sequence to come.

Decides what is found, what is kept and what is evicted. Never computes a key, never copies a page.
In: keys of pages (`keys.KeyChain`). Out: page numbers, lengths of stored states, causes of misses.

A page is found only through the page in front of it. So a page is never evicted before those that
follow it: sequences hold whole prefixes and give them back last page first.

Verbs: match looks, lock takes references, insert makes a page findable, unlock gives back, evict
makes room.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ds_jax.kvcache import explain
from ds_jax.kvcache.keys import KeyChain, root
from ds_jax.kvcache.pages import PagePool
from ds_jax.kvcache.snapshots import SnapshotStore
from ds_jax.records import ImageSpan


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """What is known of a prefix: its pages, and after how many pages a state is stored."""

    pages: tuple[int, ...] = ()
    states: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Statistics:
    """Counters since the start; tokens count once a request, at its first admission."""

    requests: int = 0
    hits: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    inserted_pages: int = 0
    joined_pages: int = 0  # computed twice at the same time, held once
    evicted_pages: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were not computed again."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A findable page: its place in the prefix and the key in front of it."""

    page: int
    number: int
    parent: bytes


class PrefixIndex:
    """Keys to pages. Methods mutate it, and the pool and the store it is given.

    Args:
      pool: the rank's pages.
      snapshots: the rank's stored states.
      page_tokens: tokens of a page.
      fingerprint: see `keys.root`.
    """

    def __init__(
        self, pool: PagePool, snapshots: SnapshotStore, page_tokens: int, fingerprint: bytes = b""
    ):
        self.pool = pool
        self.snapshots = snapshots
        self.page_tokens = page_tokens
        self.statistics = Statistics()
        self._fingerprint = fingerprint
        self._nodes: dict[bytes, Node] = {}
        self._key_of: dict[int, bytes] = {}
        self._history = explain.History(4 * pool.num_pages + 16)

    def __len__(self) -> int:
        """Findable pages."""
        return len(self._nodes)

    def chain(self, tenant: str, images: Sequence[ImageSpan] = ()) -> KeyChain:
        """The empty key chain of a new sequence. Changes nothing."""
        return KeyChain(root(self._fingerprint, tenant, self.page_tokens), self.page_tokens, images)

    def match(self, keys: Sequence[bytes]) -> Match:
        """The longest known prefix of a chain. Changes nothing."""
        pages: list[int] = []
        states: list[int] = []
        for key in keys:
            node = self._nodes.get(key)
            if node is None:
                break
            pages.append(node.page)
            if self.snapshots.find(key) is not None:
                states.append(len(pages))
        return Match(tuple(pages), tuple(states))

    def idle(self, pages: Sequence[int]) -> int:
        """How many of these pages could be evicted: locking takes them from what is available."""
        return sum(self.pool.is_evictable(page) for page in pages)

    def lock(self, pages: Sequence[int]) -> list[int]:
        """Takes a reference to matched pages; locked pages are never evicted."""
        for page in pages:
            self.pool.share(page)
        return list(pages)

    def unlock(self, pages: Sequence[int]) -> None:
        """Gives a sequence's pages back, last page first."""
        for page in reversed(pages):
            self.pool.release(page)

    def acquire(self, count: int) -> list[int] | None:
        """New pages for a sequence, evicting cached ones if need be; None if there are too few."""
        if count > self.pool.available:
            return None
        self.evict(count - self.pool.free)
        return self.pool.acquire(count)

    def evict(self, count: int) -> int:
        """Frees up to `count` cached pages, those used longest ago; returns how many."""
        for freed in range(count):
            page = self.pool.evict()
            if page is None:
                return freed
            self._forget(page)
        return max(count, 0)

    def insert(self, chain: KeyChain, number: int, page: int, token_ids: Sequence[int]) -> int:
        """Makes a sequence's page findable, unless the page in front has been forgotten.

        Args:
          chain: the sequence's keys.
          number: place of the page in the sequence.
          page: the page it holds.
          token_ids: the page's tokens.

        Returns: the page the sequence holds from now on. It is another one if the same rows are
        already known; the reference to the given page is then given back.
        """
        key, parent = chain.keys[number], chain.parent(number)
        node = self._nodes.get(key)
        if node is None:
            if number == 0 or parent in self._nodes:
                self._nodes[key] = Node(page, number, parent)
                self._key_of[page] = key
                self.pool.keep(page)
                self._history.insert(parent, key, token_ids, chain.blank_key(number))
                self.statistics.inserted_pages += 1
            return page
        if node.page != page:
            self.pool.share(node.page)
            self.pool.release(page)
            self.statistics.joined_pages += 1
        return node.page

    def pin(self, keys: Sequence[bytes]) -> int:
        """Keeps a known prefix until it is unpinned as often; returns how many pages that are.

        Returns: 0 also where that would pin more than the pool allows.
        """
        pages = self.match(keys).pages
        if not self.pool.can_pin(pages):
            return 0
        for page in pages:
            self.pool.pin(page)
        return len(pages)

    def unpin(self, keys: Sequence[bytes], count: int) -> None:
        """Takes a pin away from the first `count` pages, as many as `pin` returned; last first."""
        for page in reversed(self.match(keys[:count]).pages):
            self.pool.unpin(page)

    def bind(self, handle: int, key: bytes, *, likely: bool) -> None:
        """Makes a reserved state findable behind the page of a key, if that page is."""
        if key in self._nodes:
            self.snapshots.bind(handle, key, likely=likely)
        else:
            self.snapshots.cancel(handle)

    def count(self, tenant: str, prompt_tokens: int, cached_tokens: int) -> None:
        """Counts a request's first admission."""
        self._history.visit(self._fingerprint, tenant)
        self.statistics.requests += 1
        self.statistics.hits += cached_tokens > 0
        self.statistics.query_tokens += prompt_tokens
        self.statistics.hit_tokens += cached_tokens

    def clear(self) -> None:
        """Forgets every page and state, after the device has lost them."""
        for page in list(self._key_of):
            self.pool.forget(page)
            self._forget(page)

    def change_model(self, fingerprint: bytes) -> None:
        """From now on nothing cached so far is found; sequences hold what they have."""
        self.clear()
        self._fingerprint = fingerprint

    def explain_miss(
        self, token_ids: Sequence[int], tenant: str = "", images: Sequence[ImageSpan] = ()
    ) -> explain.Miss:
        """Names the first page of a prompt that is not found, and why. Changes nothing.

        For operators: the answer tells whether another tenant has sent the same tokens.
        """
        query = explain.Query(
            tuple(token_ids), tenant, tuple(images), self._fingerprint, self.page_tokens
        )
        match = self.match(query.chain().keys)
        return self._history.explain(
            query, self._nodes.__contains__, len(match.pages), match.states
        )

    def check_integrity(self) -> None:
        """Asserts that keys, pages and states belong together."""
        self.pool.check_integrity()
        self.snapshots.check_integrity()
        assert len(self._nodes) == len(self._key_of), "a page has two keys"
        for key, node in self._nodes.items():
            assert self._key_of.get(node.page) == key, f"page {node.page} has another key"
        orphans = [n for n in self._nodes.values() if n.number and n.parent not in self._nodes]
        assert not orphans, f"{orphans} are kept but cannot be found"

    def _forget(self, page: int) -> None:
        key = self._key_of.pop(page)
        node = self._nodes.pop(key)
        self.snapshots.forget(key)
        self._history.evict(node.parent, key)
        self.statistics.evicted_pages += 1

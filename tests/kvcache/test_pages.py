"""Pages of a rank: each is in one place, and what is held or pinned is never evicted."""

from __future__ import annotations

import collections

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ds_jax.kvcache.pages import PagePool

SIZE = 6


class Pages(RuleBasedStateMachine):
    """Random holders against a simple model of who holds what."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(SIZE, most_pinned=3)
        self.holders: list[list[int]] = []
        self.cached: set[int] = set()
        self.pins: collections.Counter[int] = collections.Counter()
        self.order: list[int] = []  # idle cached pages, oldest use first

    def held(self) -> set[int]:
        return {page for pages in self.holders for page in pages}

    def settle(self, page: int) -> None:
        idle = page in self.cached and page not in self.held() and not self.pins[page]
        if page in self.order:
            self.order.remove(page)
        if idle:
            self.order.append(page)

    @rule(count=st.integers(0, SIZE))
    def acquire(self, count: int) -> None:
        while self.pool.free < count:
            page = self.pool.evict()
            if page is None:
                return
            assert page == self.order.pop(0), "not the one used longest ago"
            self.cached.discard(page)
        pages = self.pool.acquire(count)
        assert not set(pages) & (self.held() | self.cached)
        self.holders.append(pages)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        while pages:
            page = pages.pop()
            still = page in pages or page in self.held()
            self.pool.release(page)
            if not still:
                self.settle(page)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.held())))
        self.pool.keep(page)
        self.cached.add(page)

    @precondition(lambda self: self.cached | self.held())
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.cached | self.held())))
        self.pool.share(page)
        self.holders.append([page])
        self.settle(page)

    @precondition(lambda self: self.cached)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.cached)))
        if self.pool.can_pin([page]):
            self.pool.pin(page)
            self.pins[page] += 1
            self.settle(page)

    @precondition(lambda self: +self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(+self.pins)))
        self.pool.unpin(page)
        self.pins[page] -= 1
        if not self.pins[page]:
            self.settle(page)

    @precondition(lambda self: self.cached)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.cached)))
        self.pool.forget(page)
        self.cached.discard(page)
        self.pins[page] = 0
        self.settle(page)

    @invariant()
    def counts_agree(self) -> None:
        self.pool.check_integrity(self.holders)
        assert self.pool.held == len(self.held())
        assert self.pool.evictable == len(self.order)
        assert self.pool.pinned == len(+self.pins) <= 3
        idle_pinned = {p for p in +self.pins if p not in self.held()}
        assert self.pool.available == SIZE - len(self.held()) - len(idle_pinned)


Pages.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
test_every_page_is_in_one_place = Pages.TestCase


def test_the_page_used_longest_ago_is_evicted_first() -> None:
    pool = PagePool(3)
    pages = pool.acquire(3)
    for page in pages:
        pool.keep(page)
    for page in (pages[1], pages[0], pages[2]):
        pool.release(page)
    pool.share(pages[1])
    pool.release(pages[1])  # used again: now the youngest
    assert [pool.evict() for _ in range(4)] == [pages[0], pages[2], pages[1], None]


def test_misuse_is_refused() -> None:
    pool = PagePool(2, most_pinned=0)
    (page,) = pool.acquire(1)
    with pytest.raises(AssertionError, match="2 pages wanted, 1 are free"):
        pool.acquire(2)
    with pytest.raises(AssertionError, match="is free"):
        pool.share(1 - page)
    pool.keep(page)
    with pytest.raises(AssertionError, match="more than 0 pages are pinned"):
        pool.pin(page)

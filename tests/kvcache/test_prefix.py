"""The prefix index: what was computed is found, what is held stays, and misses have a cause."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ds_jax.kvcache.explain import Cause
from ds_jax.kvcache.keys import KeyChain
from ds_jax.kvcache.pages import PagePool
from ds_jax.kvcache.prefix import PrefixIndex
from ds_jax.kvcache.snapshots import SnapshotStore
from ds_jax.records import ImageSpan

PAGE = 2
CAT, DOG = ImageSpan(1, b"cat"), ImageSpan(1, b"dog")


def make_index(pages: int = 8, states: int = 4, pinned: int | None = None) -> PrefixIndex:
    return PrefixIndex(PagePool(pages, pinned), SnapshotStore(states), PAGE, b"model")


@dataclasses.dataclass
class Holder:
    """A sequence: it locks what is known, acquires the rest, and may publish what it computes."""

    index: PrefixIndex
    chain: KeyChain
    ids: tuple[int, ...]
    pages: list[int]
    found: int
    published: int

    def publish(self, count: int) -> None:
        while self.published < min(count, len(self.chain.keys)):
            n = self.published
            ids = self.ids[n * PAGE : (n + 1) * PAGE]
            self.pages[n] = self.index.insert(self.chain, n, self.pages[n], ids)
            self.published += 1


def hold(
    index: PrefixIndex,
    ids: tuple[int, ...],
    tenant: str = "",
    images: tuple[ImageSpan, ...] = (),
) -> Holder | None:
    chain = index.chain(tenant, images)
    shared = index.match(chain.extend(ids)).pages
    pages = index.lock(shared)
    more = index.acquire(-(-len(ids) // PAGE) - len(shared))
    if more is None:
        index.unlock(pages)
        return None
    index.count(tenant, len(ids), len(shared) * PAGE)
    return Holder(index, chain, ids, pages + more, len(shared), len(shared))


def cache(
    index: PrefixIndex,
    ids: tuple[int, ...],
    tenant: str = "",
    images: tuple[ImageSpan, ...] = (),
    *,
    state: bool = True,
) -> None:
    """A sequence that came and went."""
    holder = hold(index, ids, tenant, images)
    assert holder is not None
    holder.publish(99)
    if state:
        handle = index.snapshots.reserve()
        assert handle is not None
        index.bind(handle, holder.chain.keys[-1], likely=True)
    index.unlock(holder.pages)


class Prefixes(RuleBasedStateMachine):
    """Sequences over two tokens and two tenants, so that prefixes meet all the time."""

    def __init__(self):
        super().__init__()
        self.index = make_index()
        self.holders: list[Holder] = []
        self.pins: list[tuple[list[bytes], int]] = []

    @rule(
        ids=st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple),
        tenant=st.sampled_from("ab"),
    )
    def arrive(self, ids: tuple[int, ...], tenant: str) -> None:
        before = self.index.match(self.index.chain(tenant).extend(ids)).pages
        holder = hold(self.index, ids, tenant)
        if holder is not None:
            assert tuple(holder.pages[: holder.found]) == before, "a locked page was evicted"
            self.holders.append(holder)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.integers(1, 5))
    def publish(self, data: st.DataObject, count: int) -> None:
        data.draw(st.sampled_from(self.holders)).publish(count)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        holder = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.index.unlock(holder.pages)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        handle = self.index.snapshots.reserve()
        if handle is not None and holder.chain.keys:
            self.index.bind(handle, holder.chain.keys[0], likely=True)
        elif handle is not None:
            self.index.snapshots.cancel(handle)

    @rule(count=st.integers(1, 4))
    def evict(self, count: int) -> None:
        free = self.index.pool.free
        evicted = self.index.evict(count)
        assert self.index.pool.free == free + evicted

    @precondition(lambda self: self.holders and len(self.pins) < 2)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        keys = list(data.draw(st.sampled_from(self.holders)).chain.keys)
        self.pins.append((keys, self.index.pin(keys)))

    @precondition(lambda self: self.pins)
    @rule()
    def unpin(self) -> None:
        self.index.unpin(*self.pins.pop())

    @invariant()
    def nothing_is_lost(self) -> None:
        self.index.check_integrity()
        self.index.pool.check_integrity([h.pages for h in self.holders])
        for holder in self.holders:
            known = self.index.match(holder.chain.keys).pages
            assert known[: holder.published] == tuple(holder.pages[: holder.published])
        for keys, count in self.pins:
            assert len(self.index.match(keys).pages) >= count, "a pinned page was evicted"

    def teardown(self) -> None:
        for holder in self.holders:
            self.index.unlock(holder.pages)
        for keys, count in self.pins:
            self.index.unpin(keys, count)
        assert self.index.pool.available == self.index.pool.num_pages


Prefixes.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
test_held_and_pinned_prefixes_stay = Prefixes.TestCase


def test_a_page_computed_twice_is_held_once() -> None:
    index = make_index()
    a, b = hold(index, (1, 2, 3, 4)), hold(index, (1, 2, 3, 4))
    assert a is not None
    assert b is not None
    a.publish(2)
    b.publish(2)
    assert a.pages == b.pages
    assert index.pool.free == 6
    assert index.statistics.joined_pages == 2


def test_the_end_of_a_prefix_is_evicted_before_its_start() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4, 5, 6))
    index.evict(1)
    assert len(index.match(index.chain("").extend((1, 2, 3, 4, 5, 6))).pages) == 2


def test_a_state_goes_with_its_page() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    assert index.match(index.chain("").extend((1, 2, 3, 4))).states == (2,)
    index.evict(1)
    assert len(index.snapshots) == 0


def test_pins_leave_room_for_sequences() -> None:
    index = make_index(pages=4, pinned=1)
    cache(index, (1, 2, 3, 4))
    keys = index.chain("").extend((1, 2, 3, 4))
    assert index.pin(keys) == 0
    assert index.pin(keys[:1]) == 1
    assert index.evict(9) == 1
    index.unpin(keys, 1)
    assert index.evict(9) == 1


def test_counters_count_tokens() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    cache(index, (1, 2, 3, 4, 5, 6), state=False)
    seen = index.statistics
    assert (seen.requests, seen.hits, seen.query_tokens, seen.hit_tokens) == (2, 1, 10, 4)
    assert seen.hit_rate == 0.4
    assert seen.inserted_pages == 3


def test_after_a_loss_nothing_is_found_and_nothing_is_continued() -> None:
    index = make_index()
    holder = hold(index, (1, 2, 3, 4))
    assert holder is not None
    holder.publish(1)
    index.clear()
    holder.publish(2)
    assert len(index) == 0
    index.unlock(holder.pages)
    assert index.pool.free == 8


def test_a_known_prompt_has_no_miss() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    miss = index.explain_miss((1, 2, 3, 4, 5))
    assert (miss.cause, miss.page, miss.found_tokens, miss.state_tokens) == (Cause.NONE, 2, 4, 4)


def test_a_missing_state_is_named() -> None:
    index = make_index()
    cache(index, (1, 2))
    cache(index, (1, 2, 3, 4), state=False)
    miss = index.explain_miss((1, 2, 3, 4))
    assert (miss.cause, miss.page, miss.position) == (Cause.NO_STATE, 1, 2)
    assert (miss.found_tokens, miss.state_tokens) == (4, 2)


def test_the_first_token_that_differs_is_named() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    miss = index.explain_miss((1, 2, 3, 9, 5, 6))
    assert (miss.cause, miss.page, miss.position) == (Cause.NEVER_SEEN, 1, 3)


@pytest.mark.parametrize(
    ("tenant", "images", "cause"),
    [
        ("b", (CAT,), Cause.OTHER_TENANT),
        ("", (DOG,), Cause.OTHER_IMAGE),
        ("", (), Cause.NEVER_SEEN),
    ],
)
def test_the_cause_of_a_miss_is_named(
    tenant: str, images: tuple[ImageSpan, ...], cause: Cause
) -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4), images=(CAT,))
    miss = index.explain_miss((1, 2, 3, 4), tenant, images)
    assert (miss.cause, miss.page) == (cause, 0)


def test_an_evicted_page_is_told_from_one_never_seen() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    index.evict(1)
    assert index.explain_miss((1, 2, 3, 4)).cause is Cause.EVICTED
    assert index.explain_miss((1, 2, 3, 5)).cause is Cause.NEVER_SEEN
    cache(index, (1, 2, 3, 4))
    assert index.explain_miss((1, 2, 3, 4)).cause is Cause.NONE


def test_pages_of_another_model_are_named() -> None:
    index = make_index()
    cache(index, (1, 2, 3, 4))
    index.change_model(b"other")
    assert index.explain_miss((1, 2, 3, 4)).cause is Cause.OTHER_MODEL
    assert index.match(index.chain("").extend((1, 2, 3, 4))).pages == ()

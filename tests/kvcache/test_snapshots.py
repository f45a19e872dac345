"""Handles of stored states: a budget, and the order in which states are overwritten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ds_jax.kvcache.snapshots import SnapshotStore

KEYS = [bytes([k]) for k in range(6)]


def stored(store: SnapshotStore, key: bytes, *, likely: bool = True) -> int:
    handle = store.reserve()
    assert handle is not None
    store.bind(handle, key, likely=likely)
    return handle


def test_the_state_used_longest_ago_is_overwritten_first() -> None:
    store = SnapshotStore(2)
    stored(store, KEYS[0])
    stored(store, KEYS[1])
    store.use(KEYS[0])
    stored(store, KEYS[2])
    assert store.find(KEYS[1]) is None
    assert store.find(KEYS[0]) is not None
    assert store.evictions == 1


def test_states_that_nobody_starts_from_give_way_to_each_other() -> None:
    store = SnapshotStore(4)
    for key in KEYS[:2]:
        stored(store, key)
        store.use(key)
    for key in KEYS[2:]:
        stored(store, key)
    assert [store.find(key) is not None for key in KEYS] == [True, True, False, False, True, True]
    store.use(KEYS[5])  # half of them are kept apart, no more
    stored(store, KEYS[2])
    stored(store, KEYS[3])
    assert store.find(KEYS[0]) is None and store.find(KEYS[1]) is not None


def test_an_unlikely_state_gives_way_first() -> None:
    store = SnapshotStore(2)
    stored(store, KEYS[0])
    stored(store, KEYS[1], likely=False)
    stored(store, KEYS[2])
    assert store.find(KEYS[1]) is None


def test_a_state_is_stored_once() -> None:
    store = SnapshotStore(2)
    first = stored(store, KEYS[0])
    stored(store, KEYS[0])
    assert store.find(KEYS[0]) == first
    assert len(store) == 1


def test_nothing_is_promised_twice() -> None:
    store = SnapshotStore(1)
    assert store.reserve() == 0
    assert store.reserve() is None
    assert SnapshotStore(0).reserve() is None


class Handles(RuleBasedStateMachine):
    """Every handle stays in one place, whatever happens."""

    def __init__(self):
        super().__init__()
        self.store = SnapshotStore(3)
        self.promised: list[int] = []

    @rule()
    def reserve(self) -> None:
        handle = self.store.reserve()
        if handle is not None:
            self.promised.append(handle)

    @precondition(lambda self: self.promised)
    @rule(key=st.sampled_from(KEYS), likely=st.booleans())
    def bind(self, key: bytes, likely: bool) -> None:
        self.store.bind(self.promised.pop(), key, likely=likely)
        assert self.store.find(key) is not None

    @precondition(lambda self: self.promised)
    @rule()
    def cancel(self) -> None:
        self.store.cancel(self.promised.pop(0))

    @rule(key=st.sampled_from(KEYS))
    def forget(self, key: bytes) -> None:
        self.store.forget(key)
        assert self.store.find(key) is None

    @rule(key=st.sampled_from(KEYS))
    def use(self, key: bytes) -> None:
        if self.store.find(key) is not None:
            self.store.use(key)
            assert self.store.find(key) is not None
        self.store.keep(key)

    @invariant()
    def in_one_place(self) -> None:
        self.store.check_integrity()
        assert self.store.reserved == len(self.promised)


Handles.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
test_every_handle_is_in_one_place = Handles.TestCase

"""Kept responses: age, number, tenants, files."""

from __future__ import annotations

import pathlib

import pytest

from ds_jax.errors import ConfigError
from ds_jax.recipe.response_store import StoredResponse, earlier_items
from ds_jax.serving.store import SWEEP, ResponseDatabase


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_comes_back_as_it_was() -> None:
    store = ResponseDatabase(None, ttl_s=60, most=10)
    turns = store.of("t")
    first = StoredResponse(None, ({"type": "message", "content": "ünï"},))
    second = StoredResponse("r1", ({"x": [1, None, True]},))
    turns.put("r1", first)
    turns.put("r2", second)
    assert turns.get("r1") == first
    assert earlier_items(turns, "r2") == [*first.items, *second.items]
    assert store.of("other").get("r1") is None
    store.finish("t", "r1", '{"id":"r1"}')
    assert store.get("t", "r1") == (None, '[{"type": "message", "content": "ünï"}]', '{"id":"r1"}')
    assert store.delete("t", "r1") and not store.delete("t", "r1")
    assert earlier_items(turns, "r2") is None


def test_old_turns_are_gone_at_once_and_swept_later() -> None:
    clock = Clock()
    store = ResponseDatabase(None, ttl_s=60, most=10_000, clock=clock)
    turns = store.of("t")
    turns.put("old", StoredResponse(None, ()))
    clock.now += 61
    assert turns.get("old") is None
    for number in range(SWEEP + 1):
        turns.put(f"r{number}", StoredResponse(None, ()))
    (count,) = store._db.execute("SELECT count(*) FROM responses").fetchone()
    assert count == SWEEP + 1


def test_the_oldest_go_when_there_are_too_many() -> None:
    clock = Clock()
    store = ResponseDatabase(None, ttl_s=1e9, most=5)
    store._clock = clock
    turns = store.of("t")
    for number in range(SWEEP + 1):
        clock.now += 1
        turns.put(f"r{number}", StoredResponse(None, ()))
    assert turns.get(f"r{SWEEP}") is not None
    assert turns.get("r0") is None
    (count,) = store._db.execute("SELECT count(*) FROM responses").fetchone()
    assert count == 5


def test_a_file_outlives_the_process(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "responses.sqlite")
    store = ResponseDatabase(path, ttl_s=60, most=10)
    store.of("t").put("r", StoredResponse(None, ({"a": 1},)))
    store.close()
    again = ResponseDatabase(path, ttl_s=60, most=10)
    assert again.of("t").get("r") == StoredResponse(None, ({"a": 1},))
    again.close()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="cannot keep responses"):
        ResponseDatabase(str(tmp_path / "no" / "such" / "folder.db"), ttl_s=60, most=10)

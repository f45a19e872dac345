"""Who goes first, who waits, who is sent away; with a clock of its own."""

from __future__ import annotations

import random

import pytest

from ds_jax.serving.admission import Admission, Limits, Overloaded, Waiter
from ds_jax.serving.keys import Principal
from ds_jax.serving.quota import Bucket

A, B = Principal(name="a"), Principal(name="b")


def admission(running: int = 1, waiting: int = 100, wait_s: float = 1e6) -> Admission:
    return Admission(Limits(running, waiting, wait_s))


def test_places_are_given_until_there_are_none() -> None:
    gate = admission(running=2)
    first, second, third = (gate.offer(A, 1, 10, 0.0) for _ in range(3))
    assert (first.admitted, second.admitted, third.admitted) == (True, True, False)
    assert gate.leave(first, 1.0) == [third]
    assert gate.running == 2


def test_a_request_of_many_answers_waits_for_all_its_places() -> None:
    gate = admission(running=4)
    small = gate.offer(A, 1, 10, 0.0)
    big = gate.offer(A, 4, 10, 0.0)
    behind = gate.offer(A, 1, 10, 0.0)
    assert not big.admitted and not behind.admitted
    assert gate.leave(small, 1.0) == [big]
    assert gate.leave(big, 2.0) == [behind]
    everything = admission(running=2).offer(A, 7, 10, 0.0)
    assert everything.admitted and everything.sequences == 2


def test_keys_share_fairly_however_many_requests_one_has() -> None:
    gate = admission()
    running = gate.offer(A, 1, 100, 0.0)
    flood = [gate.offer(A, 1, 100, 0.0) for _ in range(20)]
    few = [gate.offer(B, 1, 100, 0.1) for _ in range(3)]
    order: list[Waiter] = []
    for step in range(12):
        (running,) = gate.leave(running, 1.0 + step)
        order.append(running)
    places = [order.index(waiter) for waiter in few]
    assert places == [0, 2, 4], "they alternate"
    assert [w for w in order if w.principal is A] == flood[:9], "in order of arrival"


def test_weight_and_cost_decide_the_share() -> None:
    gate = admission()
    heavy = Principal(name="heavy", weight=3.0)
    running = gate.offer(A, 1, 1, 0.0)
    for _ in range(40):
        gate.offer(heavy, 1, 30, 0.0)
        gate.offer(B, 1, 30, 0.0)
    names: list[str] = []
    for step in range(20):
        (running,) = gate.leave(running, float(step))
        names.append(running.principal.name)
    assert names.count("heavy") == 15


def test_what_was_really_used_counts() -> None:
    gate = admission()
    running = gate.offer(A, 1, 10, 0.0)
    for _ in range(3):
        gate.offer(A, 1, 10, 0.0)
        gate.offer(B, 1, 10, 0.0)
    names: list[str] = []
    for step in range(6):
        used = 1000.0 if running.principal is A else 10.0
        (running,) = gate.leave(running, float(step), used)
        names.append(running.principal.name)
    assert names == ["b", "b", "b", "a", "a", "a"]


def test_a_higher_class_goes_first() -> None:
    gate = admission()
    running = gate.offer(A, 1, 10, 0.0)
    low = gate.offer(Principal(name="low", priority=-1), 1, 10, 0.0)
    usual = gate.offer(B, 1, 10, 0.0)
    high = gate.offer(Principal(name="high", priority=1), 1, 10, 0.0)
    for expected in (high, usual, low):
        (running,) = gate.leave(running, 1.0)
        assert running is expected


def test_a_full_queue_says_when_to_come_back() -> None:
    gate = admission(running=2, waiting=3)
    held = [gate.offer(A, 1, 10, 0.0) for _ in range(2)]
    for waiter in held:
        gate.leave(waiter, 41.0)
    assert gate.hold_s == pytest.approx(1 + (1 - 0.9**2) * 40)
    for _ in range(5):
        gate.offer(A, 1, 10, 50.0)
    with pytest.raises(Overloaded) as caught:
        gate.offer(B, 1, 10, 50.0)
    assert caught.value.reason == "queue_full"
    assert caught.value.retry_after_s == pytest.approx(4 * gate.hold_s / 2)


def test_a_wait_that_would_be_too_long_is_refused_at_once() -> None:
    gate = admission(wait_s=5.0)
    gate.hold_s = 4.0
    gate.offer(A, 1, 10, 0.0)
    gate.offer(A, 1, 10, 0.0)
    with pytest.raises(Overloaded) as caught:
        gate.offer(A, 1, 10, 0.0)
    assert (caught.value.reason, caught.value.retry_after_s) == ("deadline", 3.0)
    assert not gate.offer(Principal(name="high", priority=1), 1, 10, 0.0).admitted


def test_a_key_has_so_many_requests_at_once() -> None:
    gate = admission(running=10)
    key = Principal(name="k", max_concurrent=2)
    first = gate.offer(key, 1, 10, 0.0)
    gate.offer(key, 1, 10, 0.0)
    with pytest.raises(Overloaded, match="2 requests under way") as caught:
        gate.offer(key, 1, 10, 0.0)
    assert caught.value.reason == "concurrency"
    gate.leave(first, 1.0)
    assert gate.offer(key, 1, 10, 1.0).admitted


def test_quotas_refill_and_are_corrected() -> None:
    gate = admission(running=10)
    key = Principal(name="k", requests_per_minute=60, uncached_tokens_per_minute=600)
    waiter = gate.offer(key, 1, 500, 0.0)
    with pytest.raises(Overloaded) as caught:
        gate.offer(key, 1, 500, 0.0)
    assert (caught.value.reason, caught.value.retry_after_s) == ("quota_tokens", 40.0)
    gate.leave(waiter, 0.0, used=100)  # 400 of the prompt were cached
    assert gate.offer(key, 1, 500, 0.0).admitted
    headers = dict(gate.account(key, 0.0).headers(0.0))
    assert headers[b"x-ratelimit-limit-requests"] == b"60"
    assert headers[b"x-ratelimit-remaining-requests"] == b"58"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-reset-tokens"] == b"60.000s"


def test_requests_a_minute() -> None:
    gate = admission(running=100)
    key = Principal(name="k", requests_per_minute=2)
    for _ in range(2):
        gate.offer(key, 1, 1, 0.0)
    with pytest.raises(Overloaded) as caught:
        gate.offer(key, 1, 1, 6.0)
    assert (caught.value.reason, caught.value.retry_after_s) == ("quota_requests", 24.0)
    assert gate.offer(key, 1, 1, 30.0).admitted


def test_a_refusal_costs_nothing() -> None:
    gate = admission(running=1, waiting=1)
    key = Principal(name="k", requests_per_minute=100)
    gate.offer(A, 1, 1, 0.0)
    gate.offer(A, 1, 1, 0.0)
    for _ in range(10):
        with pytest.raises(Overloaded):
            gate.offer(key, 1, 1, 0.0)
    account = gate.account(key, 0.0)
    assert account.requests is not None and account.requests.level == 100


def test_a_bucket_waits_for_what_it_can_hold() -> None:
    bucket = Bucket.full(60, 0.0)
    bucket.take(90, 0.0)
    assert bucket.wait_s(1, 0.0) == 31.0
    assert bucket.wait_s(1000, 0.0) == 90.0
    assert bucket.wait_s(1, 31.0) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_keep_the_books(seed: int) -> None:
    rng = random.Random(seed)
    gate = admission(running=5, waiting=12)
    keys = [Principal(name=f"k{n}", priority=rng.choice((-1, 0, 1))) for n in range(6)]
    live: list[Waiter] = []
    for step in range(400):
        now = step * 0.1
        if rng.random() < 0.6:
            try:
                live.append(gate.offer(rng.choice(keys), rng.randint(1, 7), rng.random(), now))
            except Overloaded as refusal:
                assert refusal.retry_after_s >= 0
        elif live:
            gate.leave(live.pop(rng.randrange(len(live))), now, rng.choice((None, 0.5)))
        assert gate.running == sum(w.sequences for w in live if w.admitted) <= 5
        assert gate.num_waiting == sum(not w.admitted for w in live) <= 12
        if gate.num_waiting:
            waiting = [w for w in live if not w.admitted]
            top = max(w.principal.priority for w in waiting)
            smallest = max(w.sequences for w in waiting if w.principal.priority == top)
            assert gate.running + smallest > 5, "a place stays free although the next would fit"
    for waiter in live:
        gate.leave(waiter, 100.0)
    assert (gate.running, gate.num_waiting, gate.foreseen_wait_s(0)) == (0, 0, 0.0)

"""Random histories: whatever comes when, every request ends once, with the tokens it has alone."""

from __future__ import annotations

import dataclasses
import gc
import random
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ds_jax.engine import stats
from ds_jax.kvcache.replay import Rule
from ds_jax.records import FinishReason
from tests.engine.driving import RULE, Driver, limits

RULES = [
    RULE,
    Rule(window=2, ratios=(0, 1)),
    Rule(window=3, ratios=(2, 1, 1), backtrack=1),
    Rule(window=2, ratios=(0, 2, 1), mode="compact", keep_tokens=4),
]


class Histories(RuleBasedStateMachine):
    """Requests over three tokens and two tenants, on pools down to a single sequence's size."""

    @initialize(
        rule=st.sampled_from(RULES),
        ranks=st.sampled_from([1, 1, 2]),
        slots=st.integers(1, 4),
        pages=st.integers(4, 14),
        snapshots=st.integers(0, 4),
        drafts=st.sampled_from([0, 0, 2]),
        grid=st.sampled_from([0, 0, 2]),
        overlap=st.booleans(),
        prefix=st.sampled_from([True, True, False]),
    )
    def start(
        self,
        rule: Rule,
        ranks: int,
        slots: int,
        pages: int,
        snapshots: int,
        drafts: int,
        grid: int,
        overlap: bool,
        prefix: bool,
    ) -> None:
        sizes = limits(rule=rule, ranks=ranks, slots=slots, pages=pages, max_context=40)
        sizes = dataclasses.replace(
            sizes,
            snapshots=snapshots,
            drafts=drafts,
            chunk_grid=grid,
            prefix=prefix,
            step_tokens=12,
        )
        self.driver = Driver(sizes, overlap=overlap)
        self.lost: set[str] = set()

    @rule(
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=20),
        most=st.integers(1, 12),
        seed=st.integers(0, 2),
        priority=st.sampled_from([0, 0, 0, 1, -3]),
        tenant=st.sampled_from(["", "b"]),
        deadline=st.sampled_from([None, None, None, 2.0, 20.0]),
    )
    def submit(
        self,
        prompt: list[int],
        most: int,
        seed: int,
        priority: int,
        tenant: str,
        deadline: float | None,
    ) -> None:
        self.driver.submit(
            f"r{len(self.driver.submitted)}",
            prompt,
            seed=seed,
            params={"max_tokens": most},
            priority=priority,
            tenant=tenant,
            deadline_s=deadline,
        )

    @precondition(lambda self: self.driver.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.driver.submitted)))
        known = self.driver.submitted[name] not in self.driver.inbox
        self.driver.cancel(name)
        self.driver.step()
        if known:
            assert name in self.driver.final, "a cancelled request lives on"

    @rule(count=st.integers(1, 6))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.driver.step()

    @precondition(lambda self: self.driver.flights)
    @rule()
    def fail(self) -> None:
        self.lost |= self.driver.fail()
        self.driver.step()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.run(3000)
        self.driver.check_results()
        self.driver.check_empty()
        for name, event in self.driver.final.items():
            refused = len(self.driver.submitted[name].request.prompt_token_ids) >= (
                self.driver.limits.context
            )
            failed = event.finish_reason is FinishReason.ERROR
            assert not failed or refused or name in self.lost
            assert not refused or failed or event.finish_reason is FinishReason.CANCELLED


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_random_histories = Histories.TestCase


def soak(requests: int, seed: int) -> Driver:
    """Short requests, some aborted, some with a common prefix, on a pool that is always full."""
    draw = random.Random(seed)
    sizes = limits(ranks=2, slots=6, pages=12, max_context=32, step_tokens=32, chunk_tokens=16)
    driver = Driver(dataclasses.replace(sizes, snapshots=8), integrity=False)
    prefixes = [[draw.randrange(1, 40) for _ in range(8)] for _ in range(4)]
    live = list[str]()
    for number in range(requests):
        prompt = draw.choice(prefixes)[: draw.randrange(9)]
        prompt = [*prompt, *(draw.randrange(1, 40) for _ in range(draw.randrange(1, 6)))]
        name = f"r{number}"
        most = draw.randrange(1, 13)
        driver.submit(name, prompt, seed=number, params={"max_tokens": most})
        live.append(name)
        if draw.random() < 0.1:
            driver.cancel(draw.choice(live[-8:]))
        if driver.scheduler.num_waiting > 12 or draw.random() < 0.3:
            driver.step()
        if number % 1000 == 0:
            driver.scheduler.check_integrity()
    driver.run()
    return driver


def check_soak(driver: Driver) -> None:
    driver.check_empty()
    driver.check_results()
    counted = stats.read(driver.scheduler)
    assert counted["requests_total"] == len(driver.final)
    assert counted["running"] == counted["waiting"] == counted["pages_held"] == 0
    assert counted["preemptions_total"] > 0
    assert counted["prefix_hit_tokens_total"] > 0
    reasons = {event.finish_reason for event in driver.final.values()}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED}


def test_five_hundred_short_requests_leave_nothing_behind() -> None:
    check_soak(soak(500, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_twenty_thousand_short_requests_leave_nothing_behind(seed: int) -> None:
    check_soak(soak(20_000, seed=seed))


def test_ended_sequences_are_not_kept() -> None:
    driver = Driver(limits())
    driver.submit("last", [1, 2, 3], params={"max_tokens": 20, "ignore_eos": True}, deadline_s=1e9)
    driver.step()
    gone = weakref.ref(driver.submitted.pop("last").request)
    driver.cancel("last")
    driver.run()
    for number in range(70):  # enough for the deadlines to be cleared up
        driver.submit(f"more{number}", [1], params={"max_tokens": 1}, deadline_s=1e9)
        driver.run()
    gc.collect()
    assert gone() is None

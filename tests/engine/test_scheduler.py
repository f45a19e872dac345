"""What the scheduler promises, one fact a test, against a device in plain Python."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from ds_jax import config
from ds_jax.engine import balance, stats
from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import GrammarReady, GrammarRefused
from ds_jax.errors import ConfigError, RequestError, StepError
from ds_jax.kvcache.explain import Cause
from ds_jax.kvcache.replay import Rule
from ds_jax.records import FinishReason
from tests.engine.driving import RULE, Driver, limits
from tests.engine.test_stop import Texts

LONG = tuple(range(1, 31))
FREE = {"max_tokens": 8, "ignore_eos": True}


def names(driver: Driver, *reasons: FinishReason) -> set[str]:
    return {n for n, event in driver.final.items() if event.finish_reason in reasons}


# Grammars


def test_a_request_whose_grammar_is_compiled_waits_beside_the_queue() -> None:
    """Others pass it; ready, it has the place of its arrival."""
    driver = Driver(limits(slots=1))
    driver.submit("slow", [1, 2], compiles=True, params=FREE)
    driver.submit("first", [3, 4], params=FREE)
    driver.submit("last", [5, 6], params=FREE)
    for _ in range(3):
        driver.step()
    assert "first" in driver.tokens and "slow" not in driver.tokens
    assert driver.scheduler.num_waiting == 2
    driver.inbox.append(GrammarReady("slow"))
    while "slow" not in driver.final:
        driver.step()
    assert "first" in driver.final and "last" not in driver.final
    driver.run()
    driver.check_results()


def test_a_request_without_its_grammar_ends_in_every_way() -> None:
    driver = Driver(limits(slots=1))
    refused = RequestError("no such grammar")
    for name in ("refused", "cancelled", "late", "gone"):
        driver.submit(name, [1], compiles=True, deadline_s=3.0 if name == "late" else None)
    driver.step()
    assert not driver.scheduler.is_idle
    driver.inbox += [GrammarRefused("refused", refused), GrammarReady("nobody")]
    driver.cancel("cancelled")
    driver.inbox += [GrammarReady("cancelled"), GrammarRefused("cancelled", refused)]
    for _ in range(5):
        driver.step()
    assert driver.final["refused"].error is refused
    assert driver.final["cancelled"].finish_reason is FinishReason.CANCELLED
    assert driver.final["late"].finish_reason is FinishReason.DEADLINE
    driver.cancel("gone")
    driver.run()
    assert set(driver.final) == {"refused", "cancelled", "late", "gone"} and not driver.tokens


# Admission and order


@pytest.mark.parametrize(
    ("prompt", "changes", "message"),
    [
        (64, {}, "the prompt has 64 tokens, a sequence can have 64 with its output.*max_context"),
        (12, {"pages": 3}, "a sequence can have 12 .* raise the number of pages"),
        (12, {"pages": 4, "drafts": 5}, "a sequence can have 11 "),
    ],
)
def test_a_request_that_can_never_fit_is_refused_at_once(
    prompt: int, changes: dict[str, Any], message: str
) -> None:
    driver = Driver(limits(**changes))
    driver.submit("big", [1] * prompt)
    driver.submit("small", [1, 2])
    driver.step()
    with pytest.raises(RequestError, match=message) as caught:
        assert driver.final["big"].error is not None
        raise driver.final["big"].error
    assert caught.value.code == "context_length_exceeded"
    driver.run()
    assert names(driver, FinishReason.ERROR) == {"big"}
    driver.check_results()


def test_the_output_ends_where_the_context_does() -> None:
    driver = Driver(limits(max_context=12))
    driver.submit("a", [1] * 9, params={"max_tokens": 100, "ignore_eos": True})
    driver.run()
    assert driver.final["a"].finish_reason is FinishReason.LENGTH
    assert len(driver.tokens["a"]) == 3


def test_equals_are_served_in_order_of_arrival() -> None:
    driver = Driver(limits(slots=1))
    for n in range(6):
        driver.submit(f"r{n}", [n + 1] * (20 - 3 * n), params=FREE)
    order = list[str]()
    while not driver.scheduler.is_idle or driver.inbox:
        order += [e.request_id for e in driver.step().events if e.finish_reason]
    assert order == [f"r{n}" for n in range(6)]


def test_priority_shortens_the_wait() -> None:
    driver = Driver(limits(slots=1))
    for n in range(4):
        driver.submit(f"r{n}", [n + 1] * 4, params=FREE, priority=int(n == 3))
    order = list[str]()
    while not driver.scheduler.is_idle or driver.inbox:
        order += [e.request_id for e in driver.step().events if e.finish_reason]
    assert order == ["r3", "r0", "r1", "r2"]


def test_a_low_priority_is_overtaken_a_bounded_number_of_times() -> None:
    driver = Driver(limits(slots=1, prefix=False), integrity=False)
    driver.submit("low", [1, 2, 3], params={"max_tokens": 1})
    driver.submit("first", [1], params=FREE, priority=1)
    number = 0
    while "low" not in driver.final:
        driver.submit(f"high{number}", [1], params={"max_tokens": 1}, priority=1)
        number += 1
        driver.step()
        assert number < 300, "starved by higher priorities"
    assert number > 64


def test_ranks_are_filled_evenly() -> None:
    driver = Driver(limits(ranks=3, slots=4, pages=64))
    for n in range(10):
        driver.submit(f"r{n}", [n + 1] * 5, params={"max_tokens": 30, "ignore_eos": True})
    for _ in range(6):
        driver.step()
    assert sorted(len(rank.running) for rank in driver.scheduler.ranks) == [3, 3, 4]
    driver.run()
    driver.check_results()


def test_a_hit_draws_a_request_to_its_rank_only_among_nearly_equal_ranks() -> None:
    driver = Driver(limits(ranks=2, slots=8, pages=64))
    driver.submit("seed", LONG, params={"max_tokens": 2})
    driver.run()
    for n in range(6):
        driver.submit(f"r{n}", (*LONG, n), params={"max_tokens": 30, "ignore_eos": True})
        driver.step()
        loads = [len(rank.running) for rank in driver.scheduler.ranks]
        assert abs(loads[0] - loads[1]) <= balance.UNEVENNESS
    assert loads != [6, 0]
    driver.run()
    driver.check_results()
    assert stats.read(driver.scheduler)["prefix_hit_tokens_total"] >= 3 * 28


# Steps


def test_decode_goes_on_while_a_long_prompt_is_computed() -> None:
    driver = Driver(limits(max_context=200, pages=64, step_tokens=8))
    driver.submit("short", [1, 2], params={"max_tokens": 30, "ignore_eos": True})
    driver.step()
    driver.step()
    driver.submit("long", [3] * 150, params=FREE)
    mixed = 0
    while "long" not in driver.tokens:
        plan = driver.step()
        mixed += bool(plan.prefill and plan.decode)
    assert mixed > 15
    driver.run()
    driver.check_results()


def test_prefill_has_a_share_however_many_decode() -> None:
    driver = Driver(limits(slots=8, pages=64, step_tokens=4))
    for n in range(7):
        driver.submit(f"r{n}", [n + 1], params={"max_tokens": 40, "ignore_eos": True})
    for _ in range(20):
        driver.step()
    driver.submit("late", [1] * 9, params={"max_tokens": 2})
    for _ in range(20):
        driver.step()
    assert "late" in driver.final
    driver.run()
    driver.check_results()


def test_on_a_grid_chunks_end_at_the_same_places_whatever_else_runs() -> None:
    cuts: dict[str, set[int]] = {}
    for crowd in (0, 5):
        driver = Driver(limits(chunk_grid=4, slots=8, pages=64))
        for n in range(crowd):
            driver.submit(f"other{n}", [n + 1] * (3 + n), params=FREE)
            driver.step()
        driver.submit("it", LONG, params=FREE)
        seen = set[int]()
        while "it" not in driver.tokens:
            for chunk in driver.step().prefill:
                if chunk.sequence.request.request_id == "it":
                    seen.add(chunk.stop)
        cuts[str(crowd)] = seen
    assert cuts["0"] == cuts["5"] == {4, 8, 12, 16, 20, 24, 28, 30}


@pytest.mark.parametrize("drafts", [0, 2])
def test_overlap_changes_no_token(drafts: int) -> None:
    tokens = list[dict[str, list[int]]]()
    for overlap in (False, True):
        driver = Driver(limits(pages=14, drafts=drafts), overlap=overlap)
        for n in range(8):
            driver.submit(f"r{n}", LONG[: 5 + n], seed=n, params={"max_tokens": 20})
        driver.run()
        driver.check_results()
        tokens.append(dict(driver.tokens))
    assert tokens[0] == tokens[1]


def test_with_overlap_a_result_is_one_plan_late() -> None:
    driver = Driver(limits())
    driver.submit("a", [1, 2], params=FREE)
    driver.step()
    assert len(driver.step().decode) == 1  # the first token is not known yet
    assert not driver.tokens["a"]
    driver.step()
    assert len(driver.tokens["a"]) == 1


# Pages


def test_the_longest_output_is_preempted_and_keeps_its_tokens() -> None:
    driver = Driver(limits(pages=8, prefix=False))
    driver.submit("old", [1] * 8, params={"max_tokens": 16, "ignore_eos": True})
    for _ in range(6):
        driver.step()
    driver.submit("new", [2] * 8, params={"max_tokens": 16, "ignore_eos": True})
    preempted = list[str]()
    while not driver.scheduler.is_idle or driver.inbox:
        preempted += [s.request.request_id for s in driver.step().preempted]
    assert preempted[0] == "old"
    driver.check_results()
    driver.check_empty()


def test_a_pool_smaller_than_two_requests_serves_both() -> None:
    for drafts in (0, 1):
        driver = Driver(limits(pages=7, slots=2, drafts=drafts))
        for n in range(5):
            driver.submit(f"r{n}", [n + 1] * 10, params={"max_tokens": 14, "ignore_eos": True})
        driver.run(400)
        driver.check_results()
        driver.check_empty()


def test_two_cached_prefixes_never_wait_for_each_other() -> None:
    driver = Driver(limits(pages=15, slots=2, max_context=60, snapshots=4))
    a, b = [1] * 20, [2] * 20
    driver.submit("a0", a, params={"max_tokens": 1})
    driver.submit("b0", b, params={"max_tokens": 1})
    driver.run()
    driver.submit("a1", a + [3] * 20, params=FREE)
    driver.submit("b1", b + [4] * 20, params=FREE)
    driver.run(200)
    driver.check_results()


# Prefixes


def test_a_repeated_prompt_runs_only_what_follows_the_last_border() -> None:
    driver = Driver(limits())
    driver.submit("cold", LONG, params=FREE)
    driver.run()
    driver.submit("warm", LONG, params=FREE)
    driver.run()
    driver.check_results()
    usage = driver.final["warm"].usage
    assert usage is not None
    assert usage.cached_tokens == 28
    assert driver.tokens["warm"] == driver.tokens["cold"]


def test_a_conversation_goes_on_from_its_last_output() -> None:
    driver = Driver(limits())
    driver.submit("first", LONG[:10], params={"max_tokens": 12, "ignore_eos": True})
    driver.run()
    second = (*LONG[:10], *driver.tokens["first"], 5, 6)
    driver.submit("second", second, params=FREE)
    driver.run()
    driver.check_results()
    usage = driver.final["second"].usage
    assert usage is not None
    assert usage.cached_tokens == 20  # 21 rows were computed, the last token's never was


def test_requests_with_a_common_prefix_wait_for_the_first() -> None:
    driver = Driver(limits(step_tokens=64, chunk_tokens=64))
    for n in range(4):
        driver.submit(f"r{n}", (*LONG[:16], n + 1, n + 2), params=FREE)
    driver.run()
    driver.check_results()
    cached = [driver.final[f"r{n}"].usage for n in range(4)]
    assert [u.cached_tokens for u in cached if u is not None] == [0, 16, 16, 16]


def test_another_tenant_finds_nothing() -> None:
    driver = Driver(limits())
    driver.submit("a", LONG, tenant="a", params=FREE)
    driver.run()
    driver.submit("b", LONG, tenant="b", params=FREE)
    driver.run()
    usage = driver.final["b"].usage
    assert usage is not None
    assert usage.cached_tokens == 0
    assert stats.explain_miss(driver.scheduler, LONG, "c").cause is Cause.OTHER_TENANT


def test_a_request_may_ask_for_every_row() -> None:
    driver = Driver(limits())
    for name in ("a", "b"):
        driver.submit(name, LONG, params=FREE, reuse_prefix=False)
        driver.run()
    usage = driver.final["b"].usage
    assert usage is not None
    assert usage.cached_tokens == 0


@pytest.mark.parametrize(
    "rule",
    [
        RULE,
        Rule(window=3, ratios=(0, 2, 1), mode="compact", keep_tokens=6),
        Rule(window=3, ratios=(0, 2, 1), mode="mask", keep_tokens=9, backtrack=1),
        Rule(window=2, ratios=(0, 0, 2, 1, 1)),
    ],
)
@pytest.mark.parametrize("snapshots", [0, 1, 6])
def test_hits_change_no_token(rule: Rule, snapshots: int) -> None:
    driver = Driver(limits(rule=rule, snapshots=snapshots, pages=64, max_context=80))
    for n in range(12):
        driver.submit(f"r{n}", (*LONG[: 6 + 2 * n], n), seed=n % 2, params=FREE)
        driver.run()
    driver.check_results()
    assert stats.read(driver.scheduler)["prefix_hit_tokens_total"] > 0


def test_a_bounded_replay_starts_one_window_in_front() -> None:
    rule = dataclasses.replace(RULE, bounded=True)
    driver = Driver(limits(rule=rule, snapshots=0))
    driver.submit("a", LONG, params=FREE)
    driver.run()
    driver.submit("b", LONG, params=FREE)
    driver.run()
    usage = driver.final["b"].usage
    assert usage is not None
    assert usage.cached_tokens == 28 - 3
    driver.check_results(exact=False)


def test_the_hit_rate_is_nearly_that_of_an_endless_cache() -> None:
    draw = random.Random(5)
    sizes = limits(
        page_tokens=8, pages=400, max_context=200, snapshots=64, slots=8, chunk_tokens=64
    )
    driver = Driver(dataclasses.replace(sizes, step_tokens=64), integrity=False)
    prefixes = [[draw.randrange(1, 40) for _ in range(70)] for _ in range(2)]
    ideal, seen = 0, set[tuple[int, ...]]()
    for n in range(60):
        prompt = (*draw.choice(prefixes), *(draw.randrange(1, 40) for _ in range(8)))
        whole = [prompt[: 8 * k] for k in range(1, len(prompt) // 8 + 1)]
        ideal += max((len(p) for p in whole if p in seen and len(p) < len(prompt)), default=0)
        seen |= set(whole)
        driver.submit(f"r{n}", prompt, params={"max_tokens": 2})
        driver.step()
        driver.step()
    driver.run()
    driver.check_results()
    found = stats.read(driver.scheduler)["prefix_hit_tokens_total"]
    assert found <= ideal
    assert found > 0.98 * ideal


# Endings


@pytest.mark.parametrize("steps", range(6))
def test_a_cancelled_request_gives_everything_back_within_a_step(steps: int) -> None:
    driver = Driver(limits(prefix=False))
    driver.submit("a", LONG, params={"max_tokens": 30, "ignore_eos": True})
    for _ in range(steps):
        driver.step()
    driver.cancel("a")
    driver.step()
    assert driver.final["a"].finish_reason is FinishReason.CANCELLED
    assert driver.scheduler.ranks[0].pool.free == driver.limits.pages
    driver.run()
    driver.check_empty()


def test_a_cancel_wins_over_a_last_token_that_comes_with_it() -> None:
    driver = Driver(limits(), overlap=False)
    driver.submit("a", [1, 2], params={"max_tokens": 1})
    driver.step()
    driver.cancel("a")
    driver.step()
    assert driver.final["a"].finish_reason is FinishReason.CANCELLED
    assert not driver.tokens["a"]


def test_a_late_cancel_spares_the_next_request_of_the_same_id() -> None:
    driver = Driver(limits())
    driver.cancel("a")
    driver.submit("a", [1, 2, 3], params=FREE)
    driver.run()
    assert driver.final["a"].finish_reason is FinishReason.LENGTH


def test_unknown_cancels_are_ignored() -> None:
    driver = Driver(limits())
    driver.cancel("nobody")
    assert not driver.step().events


def test_deadlines_end_running_and_waiting_requests() -> None:
    driver = Driver(limits(slots=1))
    for name, deadline in (("runs", 5.0), ("waits", 3.0), ("free", None)):
        driver.submit(name, LONG, params={"max_tokens": 20}, deadline_s=deadline)
    for now in range(6):
        driver.now_s = float(now)
        driver.step()
        assert ("waits" in driver.final) == (now >= 3)
        assert ("runs" in driver.final) == (now >= 5)
    assert names(driver, FinishReason.DEADLINE) == {"runs", "waits"}
    driver.run()
    driver.check_results()


def test_a_stop_string_ends_ids_and_text_together() -> None:
    words = [f"<{n}>" for n in range(40)]
    driver = Driver(limits(drafts=2))
    plain = driver.model.generate((1, 2, 3), 1, 9)
    stop = f"{plain[4]}>"
    driver.submit(
        "a",
        (1, 2, 3),
        detokenizer=Texts(words),
        params={"max_tokens": 20, "ignore_eos": True, "stop": (stop,)},
    )
    driver.run()
    assert driver.final["a"].finish_reason is FinishReason.STOP
    assert driver.final["a"].matched_stop == stop
    text = "".join(words[t] for t in plain)
    assert driver.texts["a"] == text[: text.index(stop)]
    assert driver.tokens["a"] == plain[: len(driver.tokens["a"])]


def test_stop_strings_need_a_tokenizer() -> None:
    driver = Driver(limits())
    driver.submit("a", [1], params={"stop": ("x",)})
    driver.step()
    error = driver.final["a"].error
    assert isinstance(error, RequestError)
    assert error.param == "stop"


def test_a_failed_step_ends_its_sequences_and_no_other() -> None:
    driver = Driver(limits(slots=2, step_tokens=8, pages=40), overlap=True)
    for n in range(5):
        driver.submit(f"r{n}", [n + 1] * 10, params=FREE)
    for _ in range(4):
        driver.step()
    lost = driver.fail()
    driver.step()
    assert lost
    assert names(driver, FinishReason.ERROR) == lost
    assert all(isinstance(driver.final[name].error, StepError) for name in lost)
    driver.run()
    assert names(driver, FinishReason.LENGTH) == set(driver.submitted) - lost
    driver.check_results()
    driver.check_empty()


def test_one_sequence_can_fail_alone() -> None:
    driver = Driver(limits(), overlap=False)
    for n in range(3):
        driver.submit(f"r{n}", [n + 1] * 3, params=FREE)
    driver.step()
    driver.step()
    driver.flights.append(driver.flights.popleft()._replace(failed={1: "not a number"}))
    driver.run()
    assert names(driver, FinishReason.ERROR) == {"r1"}
    assert str(driver.final["r1"].error) == "not a number"
    driver.check_results()


# Sizes


def test_limits_come_from_the_configuration() -> None:
    engine = config.Engine(max_sequences=6, max_context=1000, chunk_tokens=(16, 64, 512))
    sizes = Limits.plan(engine, config.Cache(page_tokens=128), ranks=2, snapshots=3)
    assert (sizes.ranks, sizes.slots, sizes.pages, sizes.snapshots) == (2, 6, 48, 3)
    assert (sizes.chunk_tokens, sizes.step_tokens) == (512, 518)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 0}, "slots=0: must be above 0"),
        ({"drafts": -1}, "drafts=-1: must not be negative"),
        ({"step_tokens": 0}, "step_tokens=0"),
        ({"page_tokens": 3}, "page_tokens=3: must be a multiple of 2"),
        ({"chunk_grid": 3}, "chunk_grid=3: must divide page_tokens=4"),
        ({"pages": 1, "drafts": 3}, "pages=1 of 4 tokens hold no sequence"),
    ],
)
def test_sizes_that_cannot_work(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        limits(**changes)

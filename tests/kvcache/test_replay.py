"""The rule of bounded replay against the dependences it is made from."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.errors import ConfigError
from ds_jax.kvcache import replay
from ds_jax.kvcache.replay import Replay, Rule

PAGE = 4
RATIOS = [(0,), (0, 2, 1), (0, 0, 2, 1, 1), (2, 2, 1), (1, 1), (0, 2, 2)]
RELEASED = (0, 0) + (2,) * 18 + (1,) * 20


def right_rows(rule: Rule, plan: Replay, total: int) -> list[set[int]]:
    """Positions whose input to a layer is that of a cold run, for every layer and the output.

    Straight from the definition: a layer's output at a position needs its input there and in the
    window; in front of what is run, only a restored state has windows.
    """
    restored = range(plan.restore - rule.window - rule.backtrack + 1, plan.restore)
    run = set(range(plan.start, total))
    right = [run]
    for layer in range(rule.layers):
        known = right[-1] | (set(restored) if plan.restore else set())
        floor = plan.floor

        def window(position: int, floor: int = floor) -> range:
            return range(max(position - rule.window + 1, 0), position + 1)

        right.append({p for p in right[-1] if all(k in known and k >= floor for k in window(p))})
        assert layer < rule.layers
    return right


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rule, int, int, list[int], int]:
    mode = draw(st.sampled_from(replay.MODES))
    window, backtrack = draw(st.integers(1, 5)), draw(st.integers(0, 2))
    keep = 0 if mode == "off" else window + backtrack + draw(st.integers(0, 4))
    rule = Rule(window, draw(st.sampled_from(RATIOS)), backtrack, mode, keep)
    prompt = draw(st.integers(1, 60))
    total = prompt + draw(st.integers(0, 10))
    hit = replay.usable(rule, total, draw(st.integers(0, total)), PAGE)
    borders = range(PAGE, hit + 1, PAGE)
    stored = draw(st.lists(st.sampled_from(borders), unique=True)) if borders else []
    return rule, prompt, hit, stored, total


@given(cases())
@settings(max_examples=120, deadline=None)
def test_exact_plans_compute_everything_right_behind_the_anchor(
    case: tuple[Rule, int, int, list[int], int],
) -> None:
    rule, prompt, hit, stored, total = case
    plan = replay.plan(rule, prompt, hit, stored, total)
    anchor = min(hit, rule.first_kept(prompt)) if rule.mode != "off" else hit
    assert 0 <= plan.start <= anchor
    assert plan.restore in (0, plan.start)
    for positions in right_rows(rule, plan, total):
        assert positions >= set(range(anchor, total))


@given(cases())
@settings(max_examples=120, deadline=None)
def test_exact_plans_run_no_token_too_many(case: tuple[Rule, int, int, list[int], int]) -> None:
    rule, prompt, hit, stored, total = case
    rule = dataclasses.replace(rule, backtrack=0)
    plan = replay.plan(rule, prompt, hit, stored, total)
    anchor = min(hit, rule.first_kept(prompt)) if rule.mode != "off" else hit
    if plan.start == 0 or rule.window == 1:
        return
    later = dataclasses.replace(plan, restore=0, start=plan.start + 1, floor=plan.start + 1)
    if plan.restore:
        assert all(s <= plan.restore or s > anchor for s in stored)
        if anchor - rule.reach < plan.start:
            return
    behind = right_rows(rule, later, total)[-1]
    assert not behind >= set(range(anchor, total))


@given(cases(), st.sampled_from([1, 2, 4]))
@settings(max_examples=60, deadline=None)
def test_alignment_only_moves_a_rebuild_further_in_front(
    case: tuple[Rule, int, int, list[int], int], align: int
) -> None:
    rule, prompt, hit, stored, total = case
    free = replay.plan(rule, prompt, hit, stored, total)
    aligned = replay.plan(rule, prompt, hit, stored, total, align)
    assert free.start - align < aligned.start <= free.start
    assert aligned.restore or aligned.start % align == 0


@given(cases())
@settings(max_examples=120, deadline=None)
def test_a_state_stored_behind_settled_rows_holds_right_windows(
    case: tuple[Rule, int, int, list[int], int],
) -> None:
    rule, prompt, hit, stored, total = case
    plan = replay.plan(rule, prompt, hit, stored, total)
    right = right_rows(rule, plan, total)
    back = rule.window - 1 + rule.backtrack
    known = set(range(plan.restore - back, plan.restore)) if plan.restore else set[int]()
    for length in range(max(plan.settled, plan.start), total + 1):
        rows = set(range(max(0, length - back), length))
        for layer in range(rule.layers):
            assert rows <= right[layer] | known, f"{length} tokens, layer {layer}"


def test_released_sizes() -> None:
    exact = Rule(128, RELEASED, backtrack=6)
    assert (exact.encoder_layers, exact.layers) == (20, 40)
    assert exact.reach == 6 + 40 * 127
    assert replay.plan(exact, 100_000, 99_968).start == 99_968 - exact.reach
    compact = Rule(128, RELEASED, 6, "compact", replay.KEEP_TOKENS)
    assert compact.reach == 6 + 20 * 127
    plan = replay.plan(compact, 4096, 2048, [1920, 2048])
    assert (plan.restore, plan.start, plan.decoder_start) == (2048, 2048, 4096 - 140)
    assert not plan.exact


def test_a_hit_near_the_end_goes_back_in_front_of_the_kept_rows() -> None:
    compact = Rule(128, RELEASED, 6, "compact", 140)
    plan = replay.plan(compact, 2050, 2048, [1792, 1920, 2048])
    assert (plan.hit, plan.restore, plan.start) == (2048, 1792, 1792)
    assert plan.decoder_start == plan.decoder_floor == 2050 - 140


def test_a_bounded_replay_is_one_window() -> None:
    rule = Rule(128, RELEASED, bounded=True)
    plan = replay.plan(rule, 2000, 1920)
    assert (plan.start, plan.floor, plan.settled, plan.exact) == (1792, 1792, 1920, False)
    assert replay.plan(rule, 2000, 128).start == 0  # a hit of one window: all of it, exact
    restored = replay.plan(rule, 2000, 1920, [1920])
    assert (restored.start, restored.floor, restored.exact) == (1920, 0, True)


def test_a_cold_prompt_runs_everything() -> None:
    plan = replay.plan(Rule(128, RELEASED), 300, 0)
    assert plan == Replay(0, 0, 0, 0, 0, 0, 0, True)
    short = replay.plan(Rule(128, RELEASED, 0, "mask", 140), 140, 0)
    assert short.exact
    assert short.decoder_start == 0


def test_decoder_rows_of_a_chunk() -> None:
    plan = replay.plan(Rule(2, (0, 1), 0, "compact", 4), 10, 0)
    assert plan.decoder_rows(0, 4) == range(4, 4)
    assert plan.decoder_rows(4, 8) == range(6, 8)
    assert plan.decoder_rows(8, 10) == range(8, 10)


def test_the_last_token_is_always_run() -> None:
    rule = Rule(2, (0, 2, 1))
    assert replay.usable(rule, 8, 8, 4) == 4
    assert replay.usable(rule, 9, 8, 4) == 8
    assert replay.borders(rule, 8, 4) == (4, 8)
    assert replay.borders(rule, 9, 4) == (8,)
    assert replay.borders(Rule(2, (0, 2, 1), 0, "compact", 3), 9, 4) == (4, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "on"}, "mode='on': must be one of off, mask, compact"),
        ({"keep_tokens": 5}, "keep_tokens=5: must be 0 with mode=off"),
        ({"mode": "mask", "keep_tokens": 130}, "must be at least window .* = 134 with mode=mask"),
        ({"window": 0}, "window=0"),
    ],
)
def test_rules_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rule(**{"window": 128, "ratios": RELEASED, "backtrack": 6, **changes})  # type: ignore[arg-type]

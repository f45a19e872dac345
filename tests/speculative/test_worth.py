"""When steps stop making drafts, and when they start again."""

from __future__ import annotations

import numpy as np

from ds_jax.speculative import plan, worth

SURVIVALS = np.array([[0.8, 0.6, 0.4]], np.float32)


def planner(**times_ms: float) -> plan.Planner:
    """From `r4=10.0`: four rows take 10 ms."""
    return plan.Planner(plan.Curve.of({int(name[1:]): time for name, time in times_ms.items()}))


CHEAP = planner(r1=1.1, r2=1.2, r4=1.4)  # 2.8 tokens in 1.4 ms
DEAR = planner(r1=2.0, r2=3.0, r4=5.0)  # never as many as one a millisecond
PLAIN = planner(r1=1.0)


def decisions(held: worth.Worth, drafting: plan.Planner, steps: int) -> list[bool]:
    return [held.rests(1, drafting, PLAIN) for _ in range(steps)]


def test_drafts_are_made_until_something_is_known_of_them() -> None:
    held = worth.Worth()
    assert decisions(held, DEAR, 5) == [False] * 5
    held.saw(np.zeros((0, 3), np.float32))
    assert decisions(held, DEAR, 5) == [False] * 5


def test_drafts_that_pay_are_always_made() -> None:
    held = worth.Worth()
    for _ in range(3 * worth.FIRST):
        held.saw(SURVIVALS)
        assert not held.rests(1, CHEAP, PLAIN)


def test_steps_rest_but_for_trials_that_become_rare() -> None:
    held = worth.Worth()
    held.saw(SURVIVALS)
    patience, trial = worth.FIRST, [False] * worth.TRIAL
    for _ in range(7):
        assert decisions(held, DEAR, patience) == [True] * patience
        assert decisions(held, DEAR, worth.TRIAL) == trial
        patience = min(2 * patience, worth.LONGEST)


def test_a_trial_that_finds_better_drafts_ends_the_rest() -> None:
    held = worth.Worth()
    held.saw(np.zeros((1, 3), np.float32))
    assert decisions(held, CHEAP, worth.FIRST) == [True] * worth.FIRST
    for _ in range(worth.TRIAL):
        assert not held.rests(1, CHEAP, PLAIN)
        held.saw(SURVIVALS)
    assert decisions(held, CHEAP, 3 * worth.FIRST) == [False] * (3 * worth.FIRST)


def test_a_trial_weighs_more_than_what_was_before() -> None:
    held = worth.Worth()
    for _ in range(50):
        held.saw(np.zeros((1, 3), np.float32))
    decisions(held, DEAR, worth.FIRST)
    for known in (False, False, True, True, True):  # outcomes come two steps late
        if known:
            held.saw(SURVIVALS)
        held.rests(1, DEAR, PLAIN)
    assert held.typical is not None
    np.testing.assert_allclose(held.typical, SURVIVALS[0] * (1 - 0.5**3), rtol=1e-6)
    held.saw(np.zeros((1, 3), np.float32))
    np.testing.assert_allclose(held.typical, SURVIVALS[0] * (1 - 0.5**3) * 7 / 8, rtol=1e-6)


def test_fewer_sequences_make_drafts_pay_again_at_once() -> None:
    held = worth.Worth()
    held.saw(SURVIVALS)
    assert decisions(held, DEAR, 3) == [True] * 3
    assert not held.rests(1, CHEAP, PLAIN)


def test_what_is_gained_has_to_be_worth_a_start() -> None:
    held = worth.Worth()
    held.saw(np.ones((1, 1), np.float32))
    just = planner(r1=3.0, r2=2.0 / 1.01)  # 1.01 times as fast as resting
    assert not held.rests(1, just, PLAIN)
    assert held.rests(1, DEAR, PLAIN)
    assert held.rests(1, just, PLAIN)

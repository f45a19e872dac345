"""The budget of verified drafts against recorded plans."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from ds_jax.speculative import plan


@pytest.fixture(scope="module")
def recorded(golden: pathlib.Path) -> dict[str, Any]:
    return json.loads((golden / "dspark_units" / "deepinfer_varlen_plan.json").read_text())


def _planner(recorded: dict[str, Any], case: dict[str, Any]) -> plan.Planner:
    points = recorded["curves"][case["curve"]]
    planner = plan.Planner(plan.Curve.of({int(n): float(np.float32(t)) for n, t in points}))
    for sequences, size, forward, rest in case["runtime_updates"]:
        planner.measured(sequences, size, forward, rest)
    return planner


def test_plans_equal_all_recorded_ones(recorded: dict[str, Any]) -> None:
    drafts, equal = recorded["num_drafts"], 0
    for case in recorded["cases"]:
        planner = _planner(recorded, case)
        has = [bool(h) or not case["paired"] for h in case["has_draft_info"]]
        live = plan.known_rates(case["accept_rates"], drafts, has)
        old = live
        if case["paired"]:
            old = plan.known_rates(case["prev_accept_rates"], drafts, has)
        budget = planner.budget(old)
        got = 1 + plan.places(live, budget)
        equal += budget + len(old) == case["total_q"] and list(got) == case["seqlens_q"]
    assert equal == len(recorded["cases"]) == 85


def test_the_size_that_verifies_nothing_holds_no_drafts() -> None:
    """Four sequences have room there; two leave half of its rows empty."""
    curve = plan.Curve.of({4: 1.0, 8: 1.2})
    rates = np.full((2, 1), 0.9, np.float32)
    planner = plan.Planner(curve, without=4)
    assert [planner.size(2, drafts) for drafts in (0, 1, 2)] == [4, 8, 8]
    assert planner.budget(rates) == 2
    assert planner.best(rates)[1] == pytest.approx(3.8 / 1.2)
    dear = plan.Planner(plan.Curve.of({4: 1.0, 8: 2.0}), without=4)
    assert dear.budget(rates) == 0
    assert plan.Planner(plan.Curve.of({4: 1.0, 8: 2.0})).budget(rates) == 2

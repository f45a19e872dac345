"""Every public function takes time in proportion to its input."""

from __future__ import annotations

import pytest

from tests.recipe.length_speed import JOBS, LONGEST, STEP, seconds


@pytest.mark.parametrize("length", [1 << 16, pytest.param(LONGEST, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", JOBS)
def test_functions_take_linear_time(name, length):
    before, after = (seconds(JOBS[name](each), 2) for each in (length // STEP, length))
    assert after / max(before, 2e-3) < 4 * STEP

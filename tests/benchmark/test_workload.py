"""Traces: arrivals at the asked rate, shared beginnings, and what a perfect cache finds."""

from __future__ import annotations

import itertools

import pytest

from ds_jax.benchmark import workload
from ds_jax.benchmark.workload import Arrival
from ds_jax.errors import ConfigError
from ds_jax.kvcache.replay import Rule

RULE = Rule(window=3, ratios=(0, 2))
SIZES = workload.Sizes(2000, 5.0, 3, shared_tokens=8, own_tokens=4, new_tokens=6)


def test_arrivals_are_a_poisson_process_of_the_asked_rate() -> None:
    trace = workload.poisson(SIZES, 50, seed=1)
    gaps = [b.at_s - a.at_s for a, b in itertools.pairwise(trace)]
    mean = sum(gaps) / len(gaps)
    assert min(gaps) > 0
    assert mean == pytest.approx(1 / 5, rel=0.1)
    deviation = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)


def test_prompts_share_their_beginnings_and_nothing_else() -> None:
    trace = workload.poisson(SIZES, 50, seed=1)
    assert len({a.prompt[:8] for a in trace}) == 3
    assert all(2 <= len(a.prompt) - 8 <= 4 and 3 <= a.new_tokens <= 6 for a in trace)
    assert all(a.prompt[0] == 0 and min(a.prompt[1:]) >= 3 for a in trace)
    assert workload.poisson(SIZES, 50, seed=1) == trace != workload.poisson(SIZES, 50, seed=2)


def test_the_ideal_counts_whole_pages_of_earlier_prompts() -> None:
    prompts = [(0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2, 9, 4, 5), (0, 1, 2, 9, 4)]
    trace = [Arrival(float(n), prompt, 1) for n, prompt in enumerate(prompts)]
    # nothing; two pages; the last token is always run; one page; two pages
    assert workload.ideal_hit_tokens(trace, 2, RULE) == 0 + 4 + 2 + 2 + 4


def test_sizes_are_above_zero() -> None:
    with pytest.raises(ConfigError, match=r"rate=0: must be above 0"):
        workload.Sizes(rate=0)

"""The host part of the benchmark times planned decode steps of all its sequences."""

from __future__ import annotations

import pytest

from ds_jax.benchmark import host, turn


@pytest.mark.parametrize("timed", [host, turn], ids=["planning", "whole turn"])
def test_every_timed_step_serves_every_sequence(timed) -> None:
    timing = timed.decode_step(3, steps=5)
    assert timing.sequences == 3
    assert len(timing.seconds) == 5
    assert 0 < timing.tenth_s <= timing.median_s
    assert "| 3 |" in host.table([timing])

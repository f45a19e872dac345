"""The plot is an image with every point where its numbers say."""

from __future__ import annotations

import xml.etree.ElementTree

from ds_jax.benchmark import plot


def test_points_stand_in_order_between_round_ticks() -> None:
    series = {"decode": [(10.0, 10.0, "1"), (8.0, 64.0, "8")], "a < b": [(2.0, 30.0, "2")]}
    image = xml.etree.ElementTree.fromstring(plot.svg(series, "title", "one", "all"))
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in image.findall("{*}circle")]
    assert len(circles) == 3
    assert circles[0][0] > circles[1][0] > circles[2][0]
    assert circles[0][1] > circles[2][1] > circles[1][1], "up is more"
    words = [text.text for text in image.findall("{*}text")]
    assert {"title", "one", "all", "decode", "a < b", "1", "8"} <= set(words)


def test_ticks_are_round_and_reach_the_largest_value() -> None:
    assert plot.ticks(7) == [0, 2, 4, 6, 8]
    assert plot.ticks(100) == [0, 20, 40, 60, 80, 100]
    assert plot.ticks(0.03)[-1] == 0.03
    assert plot.ticks(0) == [0, 1]
    for most in (0.7, 1.0, 13.0, 999.0, 12345.0):
        found = plot.ticks(most)
        assert found[-2] < most <= found[-1]

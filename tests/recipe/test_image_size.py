"""Sizes and token counts of images equal the recorded ones and those of deepseek-recipe 0.2.0."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ds_jax import recipe
from ds_jax.recipe import image_size
from tests.recipe import golden_cases, image_files

SIDES = st.integers(0, 2**32 - 1) | st.integers(0, 9000) | st.integers(0, 60)


@pytest.mark.parametrize(
    "case", golden_cases.read("image/sizing.open.jsonl"), ids=lambda case: case["id"]
)
def test_recorded_sizes_are_planned(case):
    assert image_files.run(recipe, case["input"]) == case["expected"]


@settings(max_examples=300, deadline=None)
@given(SIDES, SIDES)
@example(0, 0)
@example(0, 2**32 - 1)
@example(2**32 - 1, 0)
@example(2**32 - 1, 1)
@example(1, 2**32 - 1)
def test_every_size_ends_where_it_stays(width, height):
    fit = image_size.fit(width, height)
    assert image_size.fit(fit.width, fit.height) == fit
    assert fit.width % 14 == fit.height % 14 == 0
    assert fit.tokens <= image_size.MAX_TOKENS


@settings(max_examples=300, deadline=None)
@given(SIDES, SIDES)
def test_token_counts_are_those_of_the_library(width, height):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    case = {"op": "tokens", "width": width, "height": height}
    assert image_files.run(recipe, case) == image_files.run(library, case)


@pytest.mark.parametrize(
    ("width", "height", "longest", "expected"),
    [
        (512, 512, 512, (512, 512)),
        (1024, 3, 512, (512, 2)),
        (1600, 900, 512, (512, 288)),
        (100, 10, 0, (1, 1)),
        (9000, 1, 512, (512, 1)),
    ],
)
def test_low_detail_shortens_the_longer_side(width, height, longest, expected):
    assert image_size.limit_longer_side(width, height, longest) == expected


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(8192, 2, (16380, 28)), (20000, 1, (16380, 28)), (1, 8192, (42, 16380)), (640, 480, None)],
)
def test_sides_that_webp_cannot_hold_are_planned_anew(width, height, expected):
    fit = image_size.fit_below(width, height, 16380)
    if expected is None:
        assert fit == image_size.fit(width, height)
    else:
        assert (fit.width, fit.height) == expected
        assert image_size.fit(*expected).tokens == fit.tokens

"""Random outputs, cut anywhere, are parsed exactly as deepseek-recipe 0.2.0 parses them.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_parse_fuzz --cases 100000 --seed 1`.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ds_jax import recipe
from tests.recipe import fuzzing, parse_cases, parse_outputs, strategies

# Where a pattern of the library matches the empty string or ends inside a character, it panics, or
# cuts the character and misses the stop string that begins with it.
_PANIC = "PanicException"
strange_case = functools.partial(parse_outputs.case, strange=True)


def _is_cut_inside(case: dict[str, Any]) -> bool:
    options = case["options"]
    empty = options["special_tokens"].get("thinking_end") == ""
    return empty and not all(stop[:1].isascii() for stop in options["stop_sequences"])


def difference(case: dict[str, Any]) -> str | None:
    """What the two libraries say where they disagree."""
    if _is_cut_inside(case):
        return None
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    try:
        want = parse_cases.calls(reference, case)
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        return None
    got = parse_cases.calls(recipe, case)
    return None if want == got else f"{case!r}\nwant {want!r}\ngot  {got!r}"


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(parse_outputs.case))
def test_random_outputs_are_parsed_as_in_the_library(case):
    assert difference(case) is None


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(strange_case))
def test_random_outputs_with_strange_markers_are_parsed_as_in_the_library(case):
    assert difference(case) is None


if __name__ == "__main__":
    fuzzing.run(__doc__, parse_outputs.case, difference, strange=strange_case)

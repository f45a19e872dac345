"""Requests are checked once, and name the field at fault."""

from __future__ import annotations

from typing import Any

import pytest

from ds_jax.errors import RequestError
from ds_jax.records import GenerateRequest, ImageSpan, SamplingParams


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": 1.5}, "priority=1.5: must be a whole number"),
        ({"deadline_s": 0}, "deadline_s=0: must be above 0"),
        ({"deadline_s": float("inf")}, "deadline_s=inf: must be a finite number"),
        ({"images": (ImageSpan(3, b""),)}, "images=3: must start inside the prompt"),
        ({"images": (ImageSpan(1, b"a"), ImageSpan(1, b"b"))}, "images=1: .* ascending order"),
    ],
)
def test_a_request_names_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        GenerateRequest("a", (1, 2, 3), **changes)
    assert caught.value.param == next(iter(changes))


@pytest.mark.parametrize("stop", [("",), (3,), (None,)])
def test_a_stop_string_has_a_character(stop: tuple[Any, ...]) -> None:
    with pytest.raises(RequestError, match=r"stop=.*: must be a string of at least"):
        SamplingParams(stop=stop)

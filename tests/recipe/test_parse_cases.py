"""Recorded outputs are parsed as recorded, push by push."""

from __future__ import annotations

import pathlib

import pytest

from ds_jax import recipe
from tests.recipe import golden_cases, parse_cases

FILES = sorted((golden_cases.GOLDEN / "parse").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_outputs_are_parsed_as_recorded(file: pathlib.Path):
    cases = golden_cases.read(f"parse/{file.name}")
    assert cases
    for case in cases:
        assert parse_cases.run(recipe, case["input"]) == case["expected"], case["id"]

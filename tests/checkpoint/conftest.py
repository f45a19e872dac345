"""The recorded quantised case: released formats, with its dequantised values."""

from __future__ import annotations

import pathlib

import pytest

from ds_jax import config


@pytest.fixture(scope="session")
def case(golden: pathlib.Path) -> pathlib.Path:
    """Folder of the recorded quantised checkpoint."""
    return golden / "model" / "quant_fp8_fp4"


@pytest.fixture(scope="session")
def model(case: pathlib.Path) -> config.Model:
    """Its text model."""
    return config.load_model(case / "config.json")

"""A small model's steps, compiled once for all tests of this folder."""

from __future__ import annotations

import pytest

from ds_jax import Pipeline
from ds_jax.testing import tiny_pipeline

LARGE_CACHE = {"max_sequences": 256, "max_context": 256, "chunk_tokens": (24,)}


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    """One device, float32, rows unpacked, a cache much larger than a step's work."""
    return tiny_pipeline(cache_format="dequantized", **LARGE_CACHE)

"""A small model's steps, compiled once for all tests of this folder; what jax compiles."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from ds_jax import Pipeline
from ds_jax.testing import tiny_pipeline

LARGE_CACHE = {"max_sequences": 256, "max_context": 256, "chunk_tokens": (24,)}


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    """One device, float32, rows unpacked, a cache much larger than a step's work."""
    return tiny_pipeline(cache_format="dequantized", **LARGE_CACHE)


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names of jax's compilation events from here on."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event.startswith("/jax/core/compile/"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)

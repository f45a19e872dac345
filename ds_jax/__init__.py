"""ds_jax: DeepSeek-V4.1-Flash in JAX.

The public names are loaded on first use, so that host-only parts can be imported without jax:

    from ds_jax import Pipeline, SamplingParams
    pipeline = Pipeline.from_checkpoint("tiny")
    print(pipeline.generate(["Hello"], SamplingParams(max_tokens=16))[0].text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_jax.pipeline import Pipeline
    from ds_jax.records import SamplingParams

__version__ = "0.1.0"
__all__ = ["Pipeline", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    homes = {"Pipeline": "ds_jax.pipeline", "SamplingParams": "ds_jax.records"}
    if name not in homes:
        raise AttributeError(f"module 'ds_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)

"""How the sampling of a row travels to the device, as int32 words.

Decides which words there are and which requests need more than the plain ones. Never samples.
In: `SamplingParams` and seeds on the host. Out: words; on the device `sample.Controls` from them.

| plain words | meaning |
|---|---|
| 0-1 | seed (high, low) |
| 2-3 | temperature, top-p (float32 bits) |
| 4 | top-k |
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ds_jax.records import SamplingParams
from ds_jax.sampling import sample

WORDS = 5
GREEDY_BELOW = 1e-5  # a lower temperature is greedy: logits over it would not be finite
LARGEST = 1e9  # a higher temperature is this one: draws are uniform either way


def pack(params: Sequence[SamplingParams], seeds: Sequence[int]) -> np.ndarray:
    """Plain words of rows, int32 [rows, WORDS]."""
    words = np.empty((len(params), WORDS), np.uint32)
    seed = np.array(seeds, np.uint64)
    words[:, 0], words[:, 1] = seed >> np.uint64(32), seed & np.uint64(0xFFFFFFFF)
    floats = np.array([(p.temperature, p.top_p) for p in params]).reshape(-1, 2)
    floats[floats[:, 0] < GREEDY_BELOW, 0] = 0.0
    words[:, 2:4] = np.minimum(floats, LARGEST).astype(np.float32).view(np.uint32)
    signed = words.view(np.int32)
    signed[:, 4] = [min(p.top_k, 2**31 - 1) for p in params]
    return signed


def unpack(words: jax.Array, position: jax.Array) -> sample.Controls:
    """Inside a step: controls from plain words [B WORDS] and the positions [B] to draw for."""
    floats = lax.bitcast_convert_type(words[:, 2:4], jnp.float32)
    return sample.Controls(
        temperature=floats[:, 0],
        top_p=floats[:, 1],
        top_k=words[:, 4],
        seed=lax.bitcast_convert_type(words[:, :2], jnp.uint32),
        position=position,
    )

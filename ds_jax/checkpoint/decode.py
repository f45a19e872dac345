"""Stored FP8 and FP4 weights as numbers, on the host.

Decides nothing: the formats are the released ones. Never touches a device.
In: numpy codes and exponent bytes of a part of a tensor. Out: float32 values, exact in bfloat16.
The device twin is pallas_kernels.matmul.dequantize; tests hold them equal.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ds_jax.sharding.params import BLOCK


def dequantize(storage: str, data: np.ndarray, scale: np.ndarray, first_row: int = 0) -> np.ndarray:
    """Values of consecutive rows of one weight.

    Args:
      storage: "fp8", "fp4" or "rows".
      data: stored values of the rows.
      scale: exponent bytes of the whole tensor.
      first_row: number of the first row in the tensor.
    """
    rows = np.arange(first_row, first_row + data.shape[0])
    factor = _exponents()[scale[rows // BLOCK if storage == "fp8" else rows]]
    if storage == "fp4":
        values = _fp4_pairs()[data.view(np.uint8)].reshape(data.shape[0], 2 * data.shape[1])
    else:
        values = _fp8()[data.view(np.uint8)]
    return values * np.repeat(factor, BLOCK, axis=1)[:, : values.shape[1]]


def _exponents() -> np.ndarray:
    """float32 [256]: 2**(byte - 127), not a number for 255."""
    return np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


def _fp8() -> np.ndarray:
    """float32 [256] of e4m3."""
    return np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def _fp4_pairs() -> np.ndarray:
    """float32 [256, 2] of two packed e2m1 codes, low nibble first."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.concatenate([magnitudes, -magnitudes])
    byte = np.arange(256)
    return np.stack([values[byte & 15], values[byte >> 4]], axis=1)

"""What this machine can do at best: matrix products and reading memory.

Decides the sizes and that the best of several runs counts. Never touches a model.
In: nothing. Out: operations and bytes per second, through the same compiler as the model.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Machine:
    """Limits measured through jax.

    Attributes:
      device: kind of the first device.
      cores: what the operating system grants this process.
      matmul_flops: float32 operations per second of a large square product.
      read_bytes: bytes per second of a matrix read once (by a product with one vector) or copied,
        whichever is more.
    """

    device: str
    cores: int
    matmul_flops: float
    read_bytes: float


def measure(size: int = 1536, read_mib: int = 256, repeats: int = 5) -> Machine:
    """Measures both limits.

    Args:
      size: rows and columns of the product's matrices.
      read_mib: float32 array that is read, in MiB; larger than every cache.
      repeats: runs of each, of which the fastest counts.
    """
    a = jnp.ones((size, size), jnp.float32)
    square = jax.jit(lambda x: jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST))
    matmul_s = _fastest(square, a, repeats)
    columns = 4096
    rows = read_mib * 2**20 // (4 * columns)
    wide = jnp.ones((rows, columns), jnp.float32)
    vector = jnp.ones((columns,), jnp.float32)
    read_s = _fastest(jax.jit(lambda x: x @ vector), wide, repeats)
    copy_s = _fastest(jax.jit(lambda x: x + jnp.float32(1)), wide, repeats)
    return Machine(
        device=jax.devices()[0].device_kind,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        matmul_flops=2.0 * size**3 / matmul_s,
        read_bytes=max(wide.nbytes / read_s, 2 * wide.nbytes / copy_s),
    )


def _fastest(run: Callable[[jax.Array], Any], x: jax.Array, repeats: int) -> float:
    jax.block_until_ready(run(x))  # compiles
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(x))
        times.append(time.perf_counter() - start)
    return min(times)

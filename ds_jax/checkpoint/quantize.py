"""Weights on the released FP8 and FP4 grids.

Decides scale and rounding of stored weights. Never writes files. In: plain float parameters.
Out: `QuantArray`s, or the same values dequantised with a gradient that passes straight through
(for quantisation-aware training); both agree bit for bit with saving and loading again.

| storage | scale shared by | scale |
|---|---|---|
| fp8 | 32 x 32 block | 2^ceil(log2(max(amax, 1e-4) / 448)) |
| fp4 | row and 32 inputs | 2^ceil(log2(max(amax, 6 * 2^-126) / 6)) |
| rows | row and 32 columns | as fp8 |
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ds_jax.pallas_kernels import quantize
from ds_jax.sharding.params import BLOCK, ParamSpec, QuantArray


@functools.partial(jax.jit, static_argnames="storage")
def encode(storage: str, x: Float[Array, "... o i"]) -> QuantArray:
    """Quantises a weight; works for every expert at once."""
    values, scale = _parts(storage, x.astype(jnp.float32))
    if storage == "fp4":
        data = quantize.encode_fp4(_flat(values, x.shape))
    else:
        data = _flat(values, x.shape).astype(jnp.float8_e4m3fn)
    return QuantArray(data, quantize.encode_ue8m0(scale[..., 0, :, 0]), storage)


def fake_quantize(spec_tree: Any, params: Any, quantized: bool = True) -> Any:
    """Values that saving and loading `params` would give, in float32.

    Args:
      spec_tree: declarations.
      params: plain float parameters, same structure.
      quantized: False: the unquantised layout (bf16 everywhere but float32 storage).
    Numerics: the gradient of every rounding is the identity.
    """

    def leaf(spec: ParamSpec, x: jax.Array) -> jax.Array:
        if spec.storage == "f32":
            return x
        return _straight_through(spec.storage if quantized and spec.quantizable else "bf16", x)

    return jax.tree.map(leaf, spec_tree, params)


def _on_grid(storage: str, x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    if storage == "bf16":
        return quantize.round_bf16(x)
    values, scale = _parts(storage, x)
    return _flat(values * scale, x.shape)


def _straight_through(storage: str, x: jax.Array) -> jax.Array:
    @jax.custom_jvp
    def apply(x: jax.Array) -> jax.Array:
        return _on_grid(storage, x)

    @apply.defjvp
    def _(primals, tangents):
        return apply(*primals), tangents[0].astype(jnp.float32)

    return apply(x)


def _parts(storage: str, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(values on the grid [..., o/b, b, i/32, 32], scale [..., o/b, 1, i/32, 1]); b is 32 or 1."""
    block = BLOCK if storage == "fp8" else 1
    pad = [(0, -size % b) for size, b in zip(x.shape[-2:], (block, BLOCK), strict=True)]
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + pad)
    rows, width = x.shape[-2] // block, x.shape[-1] // BLOCK
    groups = x.reshape(*x.shape[:-2], rows, block, width, BLOCK)
    amax = jnp.max(jnp.abs(groups), axis=(-3, -1), keepdims=True)
    top, floor = (6.0, 6.0 * 2.0**-126) if storage == "fp4" else (448.0, 1e-4)
    scale = quantize.pow2_ceil(jnp.maximum(amax, floor) * jnp.float32(1.0 / top))
    clipped = jnp.clip(groups / scale, -top, top)
    round_to_grid = quantize.round_e2m1 if storage == "fp4" else quantize.round_e4m3
    return round_to_grid(clipped), scale


def _flat(groups: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Undoes the grouping and the padding of `_parts`."""
    o, b, i, c = groups.shape[-4:]
    return groups.reshape(*groups.shape[:-4], o * b, i * c)[..., : shape[-2], : shape[-1]]

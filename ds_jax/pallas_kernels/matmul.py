"""One matrix product for plain and quantised weights.

Decides how a `QuantArray` becomes numbers. Never rounds the result: callers own the rounding
points.
In: activations [..., i] and a weight [o, i] (plain, `InputFirst` or `QuantArray`). Out: float32
[..., o].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ds_jax.pallas_kernels import quantize
from ds_jax.sharding.params import InputFirst, QuantArray

Weight = jax.Array | InputFirst | QuantArray


def dequantize(w: Weight, dtype: jnp.dtype) -> Float[Array, ...]:
    """Values [..., o, i] of a weight in `dtype`; exact, as every stored value is exact in bfloat16.

    FP8: w[o, i] = e4m3 * 2**(scale[o // 32, i // 32] - 127); FP4: one scale per row and 32 inputs;
    rows: one scale per row and 32 columns.
    """
    if isinstance(w, InputFirst):
        return jnp.swapaxes(w.data, -1, -2).astype(dtype)
    if not isinstance(w, QuantArray):
        return w.astype(dtype)
    scale = quantize.decode_ue8m0(w.scale)
    packed = w.storage == "fp4"
    values = quantize.decode_fp4(w.data) if packed else w.data.astype(jnp.float32)
    if w.storage == "fp8":
        scale = jnp.repeat(scale, 32, axis=-2)[..., : values.shape[-2], :]
    scale = jnp.repeat(scale, 32, axis=-1)[..., : values.shape[-1]]
    return (values * scale).astype(dtype)


def matmul(x: Float[Array, "... i"], w: Weight) -> Float[Array, "... o"]:
    """x @ w.T with float32 accumulation and a float32 result.

    Cost: 2 * rows * o * i flops; reads o * i weights once (dequantised on the fly).
    """
    turned = isinstance(w, InputFirst)
    values = w.data.astype(x.dtype) if turned else dequantize(w, x.dtype)
    return lax.dot_general(
        x,
        values,
        (((x.ndim - 1,), (0 if turned else 1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )

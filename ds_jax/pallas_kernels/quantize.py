"""The model's quantisers: FP8 activations and window rows, FP4 compressed rows and index keys.

Decides the grid, scale and rounding of every quantiser; they are model semantics, not an
optimisation. Never decides where a quantiser is applied. In: float32 values. Out: the same values
on the grid (`fake_*`, gradient passes straight through) or packed codes and scales (`encode_*` /
`decode_*`).

Every value written by a quantiser is exact in bfloat16, so packed and dequantised caches are
bit-equal. All arithmetic is element-wise with power-of-two steps, so results do not depend on
shape or batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt8

FP8_MAX = 448.0
FP4_MAX = 6.0


@jax.custom_jvp
def round_bf16(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Round float32 to the nearest bfloat16 (ties to even), held in float32; straight-through
    gradient.
    """
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


round_bf16.defjvp(lambda primals, tangents: (round_bf16(*primals), tangents[0]))


def pow2_ceil(t: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Smallest power of two >= t, from the bits of a positive normal float32."""
    bits = lax.bitcast_convert_type(t, jnp.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).astype(jnp.int32)
    return lax.bitcast_convert_type(exponent << 23, jnp.float32)


def round_e4m3(v: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Round |v| <= 448 to the e4m3 grid (ties to even), held in float32."""
    subnormal = jnp.round(v * 512.0) * (1.0 / 512.0)
    return jnp.where(jnp.abs(v) < 2.0**-6, subnormal, lax.reduce_precision(v, 8, 3))


def round_e2m1(v: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Round |v| <= 6 to the e2m1 grid {0, .5, 1, 1.5, 2, 3, 4, 6} (ties to the even code)."""
    subnormal = jnp.round(v * 2.0) * 0.5
    return jnp.where(jnp.abs(v) < 1.0, subnormal, lax.reduce_precision(v, 8, 1))


def _grouped(x: jax.Array, group: int) -> jax.Array:
    if x.shape[-1] % group:
        raise ValueError(
            f"last axis of {x.shape=} is not a multiple of the quantiser's group {group}"
        )
    return x.reshape(*x.shape[:-1], x.shape[-1] // group, group)


def _amax(groups: jax.Array, floor: float) -> jax.Array:
    return jnp.maximum(jnp.max(jnp.abs(groups), axis=-1, keepdims=True), floor)


def fp8_parts(x: Float[Array, "*s d"]) -> tuple[jax.Array, jax.Array]:
    """(values on the e4m3 grid [*s d/32 32], power-of-two scale [*s d/32 1]) of groups of 32."""
    groups = _grouped(x, 32)
    scale = pow2_ceil(_amax(groups, 1e-4) * jnp.float32(1.0 / 448.0))
    return round_e4m3(jnp.clip(groups / scale, -FP8_MAX, FP8_MAX)), scale


def fp4_index_parts(x: Float[Array, "*s d"]) -> tuple[jax.Array, jax.Array]:
    """(values on the e2m1 grid [*s d/32 32], power-of-two scale [*s d/32 1]) of groups of 32."""
    groups = _grouped(x, 32)
    scale = pow2_ceil(_amax(groups, 6.0 * 2.0**-126) * jnp.float32(1.0 / 6.0))
    return round_e2m1(jnp.clip(groups / scale, -FP4_MAX, FP4_MAX)), scale


def fp4_row_parts(x: Float[Array, "*s d"]) -> tuple[jax.Array, jax.Array]:
    """(values on the e2m1 grid [*s d/16 16], e4m3 scale [*s d/16 1]) of groups of 16."""
    groups = _grouped(x, 16)
    scale = round_e4m3(jnp.minimum(_amax(groups, 6.0 * 2.0**-9) / 6.0, FP8_MAX))
    # XLA turns x / broadcast(s) into x * (1 / s), which moves exact ties of scales 1.875 * 2**k;
    # a divisor that is no plain broadcast keeps the true division
    divisor = jnp.where(groups == groups, scale, 1.0)
    return round_e2m1(jnp.clip(groups / divisor, -FP4_MAX, FP4_MAX)), scale


def _fake(parts):
    """Quantise-dequantise with a straight-through gradient."""

    @jax.custom_jvp
    def apply(x):
        values, scale = parts(x)
        return (values * scale).reshape(x.shape)

    @apply.defjvp
    def _(primals, tangents):
        return apply(*primals), tangents[0]

    apply.__doc__ = parts.__doc__
    return apply


fake_fp8 = _fake(fp8_parts)
fake_fp4_index = _fake(fp4_index_parts)
fake_fp4_row = _fake(fp4_row_parts)


def encode_fp8(values: Float[Array, "*s"]) -> UInt8[Array, "*s"]:
    """Bytes of values that lie on the e4m3 grid."""
    return lax.bitcast_convert_type(values.astype(jnp.float8_e4m3fn), jnp.uint8)


def decode_fp8(code: UInt8[Array, "*s"]) -> Float[Array, "*s"]:
    """Values of e4m3 bytes."""
    return lax.bitcast_convert_type(code, jnp.float8_e4m3fn).astype(jnp.float32)


def encode_ue8m0(scale: Float[Array, "*s"]) -> UInt8[Array, "*s"]:
    """Exponent bytes of power-of-two scales: byte b is 2**(b - 127)."""
    return (lax.bitcast_convert_type(scale, jnp.int32) >> 23).astype(jnp.uint8)


def decode_ue8m0(code: UInt8[Array, "*s"]) -> Float[Array, "*s"]:
    """2**(byte - 127); byte 0 is 2**-127 (subnormal), 255 is not a number."""
    exponent = code.astype(jnp.int32)
    bits = jnp.where(exponent == 0, 1 << 22, exponent << 23)
    value = lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.where(exponent == 255, jnp.nan, value)


def encode_fp4(values: Float[Array, "*s d"]) -> UInt8[Array, "*s d/2"]:
    """Two e2m1 codes a byte, the even element in the low nibble; values must lie on the grid."""
    bits = lax.bitcast_convert_type(values, jnp.int32)
    sign = (bits >> 28) & 8
    magnitude = jnp.abs(values)
    exponent = (bits >> 23) & 0xFF
    code = jnp.where(
        magnitude < 1.0,
        (magnitude > 0).astype(jnp.int32),
        2 * (exponent - 126) + ((bits >> 22) & 1),
    )
    nibbles = (code | sign).reshape(*values.shape[:-1], values.shape[-1] // 2, 2)
    return (nibbles[..., 0] | (nibbles[..., 1] << 4)).astype(jnp.uint8)


def decode_fp4(packed: UInt8[Array, "*s d"]) -> Float[Array, "*s 2*d"]:
    """Values of packed e2m1 codes, low nibble first."""
    nibbles = jnp.stack([packed & 0xF, packed >> 4], axis=-1).astype(jnp.int32)
    nibbles = nibbles.reshape(*packed.shape[:-1], 2 * packed.shape[-1])
    code = nibbles & 7
    # codes 2..7 are floats with one mantissa bit and exponent bias 1; codes 0 and 1 are 0 and 0.5
    bits = jnp.where(code < 2, code * 0x3F000000, ((code >> 1) + 126) << 23 | (code & 1) << 22)
    return lax.bitcast_convert_type(bits | (nibbles & 8) << 28, jnp.float32)

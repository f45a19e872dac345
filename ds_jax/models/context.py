"""What every model function needs to know and no array says: the config, the numerics, the mesh
axes.

Decides the rounding points' form. Never holds an array. In: frozen config. Out: static arguments.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ds_jax import config
from ds_jax.pallas_kernels import matmul, quantize


@dataclasses.dataclass(frozen=True)
class Context:
    """Static arguments of a forward pass.

    Attributes:
      model: the text model's config.
      numerics: the three numerics switches.
      expert_axis: mesh axis over which experts are split, or None on one device.
      row_axes: mesh axes over which Engram rows are split.
      moe_path: "tiles" (inference), "dense" (every expert on every token; the reference)
        or "capacity" (differentiable, drops tokens above `moe_capacity` times the mean load).
      moe_capacity: only for "capacity".
    """

    model: config.Model
    numerics: config.Numerics
    expert_axis: str | None = None
    row_axes: tuple[str, ...] = ()
    moe_path: str = "tiles"
    moe_capacity: float = 2.0

    @property
    def rounds(self) -> bool:
        """Whether values are rounded to bfloat16 at the model's rounding points."""
        return self.numerics.arithmetic == "bfloat16"

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of activations between modules."""
        return jnp.dtype(self.numerics.storage if self.rounds else "float32")

    def round(self, x: jax.Array) -> jax.Array:
        """A rounding point: float32 -> the nearest bfloat16, held in `dtype`; float32 policy: no
        change.
        """
        if not self.rounds:
            return x
        # reduce_precision first: a plain cast pair may be optimised away
        return quantize.round_bf16(x.astype(jnp.float32)).astype(self.dtype)

    def f32(self, x: jax.Array) -> jax.Array:
        """The same value in float32."""
        return x.astype(jnp.float32)

    def quantize_input(self, x: jax.Array) -> jax.Array:
        """FP8 per 32 in front of a quantised linear, where the checkpoint is quantised and the
        switch on.
        """
        if not (self.numerics.quantize_activations and self.model.quantization):
            return x
        return quantize.fake_fp8(self.f32(x)).astype(self.dtype)

    def linear_quantized(self, x: jax.Array, w: matmul.Weight) -> jax.Array:
        """A quantised linear: FP8 input, float32 accumulation, one rounding."""
        return self.round(matmul.matmul(self.quantize_input(x), w))

    def linear(self, x: jax.Array, w: matmul.Weight) -> jax.Array:
        """A bf16 linear: float32 accumulation, one rounding."""
        return self.round(matmul.matmul(x, w))

    def linear_f32(self, x: jax.Array, w: matmul.Weight) -> jax.Array:
        """A linear with a float32 result (router, head, ratio-2 compressor)."""
        return matmul.matmul(x, w)

    def cache_window(self, row: jax.Array) -> jax.Array:
        """Window-row quantiser (FP8 per 32); widths that cannot be blocked stay as they are."""
        return self._cache(row, quantize.fake_fp8, 32)

    def cache_row(self, row: jax.Array) -> jax.Array:
        """Compressed-row quantiser (FP4 per 16 with e4m3 scales)."""
        return self._cache(row, quantize.fake_fp4_row, 16)

    def cache_index(self, row: jax.Array) -> jax.Array:
        """Index query and key quantiser (FP4 per 32 with power-of-two scales)."""
        return self._cache(row, quantize.fake_fp4_index, 32)

    def _cache(self, row, fake, group):
        if not self.numerics.quantize_cache or row.shape[-1] % group:
            return row
        return fake(self.f32(row)).astype(row.dtype)

    def axis_size(self) -> int:
        """Number of expert shards; only inside shard_map."""
        return 1 if self.expert_axis is None else lax.axis_size(self.expert_axis)

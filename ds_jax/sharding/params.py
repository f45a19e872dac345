"""Declaration of parameters: shape, storage, axes, checkpoint names and initialiser in one place.

Decides how a parameter is declared and which values follow from the declaration.
Never loads, never places an array on a mesh. In: `ParamSpec` leaves inside a pytree of params
dataclasses. Out: abstract values, initial values, byte counts.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 32  # weights that share one scale: 32 x 32 (fp8), 32 inputs (fp4), 32 columns (rows)
_QUANTIZED = ("fp8", "fp4", "rows")


@dataclasses.dataclass(frozen=True)
class ParamSpec:
    """One parameter, declared once. Deliberately not a pytree, so that it is a leaf.

    Attributes:
      shape: logical shape (for FP4: unpacked; a leading expert axis where `names` holds `{e}`).
      storage: how the released checkpoint stores it:
        "bf16" | "f32" |
        "fp8"  (e4m3 `.weight` [o, i] and ue8m0 `.scale` [ceil(o/32), ceil(i/32)]) |
        "fp4"  (I8 `.weight` [o, i/2], low nibble first, and ue8m0 `.scale` [o, i/32]) |
        "rows" (e4m3 `.weight` [rows, d] and ue8m0 `.scale` [rows, d/32]).
        Without a quantization_config every quantised storage is bf16 instead.
      axes: one logical axis name (or None) per dimension; sharding.rules maps them to mesh axes.
      names: checkpoint tensor names without `.weight`/`.scale` where quantised storage adds them,
        with the full name otherwise. Several names are equal parts along the output axis
        (axis 0 of each tensor). `{e}` stands for the expert index of the leading axis.
      fan_in: number of inputs summed per output; initial values have standard deviation
        fan_in**-0.5 (0: use `fill`).
      fill: constant initial value where `fan_in` is 0.
      keep_f32: computed with in float32 whatever the numerics (mHC, sinks, router bias).
      input_first: a matrix that is only ever multiplied, so memory may hold it as `InputFirst`.
    """

    shape: tuple[int, ...]
    storage: str
    axes: tuple[str | None, ...]
    names: tuple[str, ...]
    fan_in: int = 0
    fill: float = 1.0
    keep_f32: bool = False
    input_first: bool = False

    @property
    def quantizable(self) -> bool:
        """Whether a quantised checkpoint stores this parameter quantised."""
        return self.storage in _QUANTIZED

    @property
    def stacked(self) -> bool:
        """Whether the leading axis counts experts, each with its own checkpoint tensors."""
        return "{e}" in self.names[0]

    @property
    def row_axis(self) -> int:
        """The axis along which `names` are concatenated."""
        return 1 if self.stacked else 0


def declare(
    shape: tuple[int, ...],
    storage: str,
    axes: tuple[str | None, ...],
    names: tuple[str, ...],
    fan_in: int = 0,
    *,
    fill: float = 1.0,
    keep_f32: bool = False,
    input_first: bool = False,
) -> Any:
    """A `ParamSpec`, typed so that it may stand where the array will be."""
    return ParamSpec(shape, storage, axes, names, fan_in, fill, keep_f32, input_first)


def linear(
    shape: tuple[int, ...], storage: str, names: tuple[str, ...], axes: tuple[str | None, ...] = ()
) -> Any:
    """A matrix [..., o, i] that is only ever multiplied."""
    axes = axes or (None,) * len(shape)
    return declare(shape, storage, axes, names, shape[-1], input_first=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantArray:
    """A quantised weight kept quantised in memory.

    Attributes:
      data: FP8: float8_e4m3fn [..., o, i]; FP4: uint8 [..., o, i/2], low nibble first.
      scale: ue8m0 exponent bytes, uint8: FP8 [..., ceil(o/32), ceil(i/32)], FP4 [..., o, i/32],
        Engram rows [rows, d/32].
      storage: "fp8" | "fp4" | "rows", as in ParamSpec.
    """

    data: jax.Array
    scale: jax.Array
    storage: str = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InputFirst:
    """A plain matrix held as [..., i, o].

    XLA:CPU multiplies two to eight rows by it twice as fast: the other order is turned round in
    every product.
    """

    data: jax.Array


def input_first(spec: ParamSpec, weight: Any) -> Any:
    """The weight as its declaration lets memory hold it; a quantised one stays as it is."""
    if not spec.input_first or isinstance(weight, QuantArray):
        return weight
    return InputFirst(jnp.swapaxes(weight, -1, -2))


def quant_like(data: Any, scale: Any, storage: str) -> QuantArray:
    """A QuantArray that describes one: its fields hold shapes or placements instead of arrays."""
    return QuantArray(data, scale, storage)


def rows_padded(spec: ParamSpec, row_multiple: int) -> tuple[int, ...]:
    """Shape of a parameter whose table rows (logical axis "rows") fill up to a multiple."""
    return tuple(
        -(-size // row_multiple) * row_multiple if axis == "rows" else size
        for size, axis in zip(spec.shape, spec.axes, strict=True)
    )


def data_shape(storage: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the stored values of a quantised weight with logical `shape`."""
    return (*shape[:-1], shape[-1] // 2) if storage == "fp4" else shape


def scale_shape(storage: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the scales of a quantised weight with logical `shape`."""
    rows = -(-shape[-2] // BLOCK) if storage == "fp8" else shape[-2]
    return (*shape[:-2], rows, -(-shape[-1] // BLOCK))


def abstract(spec_tree: Any, quantized: bool, dtype: Any, row_multiple: int = 1) -> Any:
    """Shapes and dtypes of the parameters in memory, without allocating.

    Args:
      spec_tree: pytree with ParamSpec leaves.
      quantized: whether quantisable weights are QuantArray (else plain arrays of `dtype`).
      dtype: dtype of plain weights; `keep_f32` leaves stay float32.
      row_multiple: table rows are padded with zero rows to a multiple of this.
    """

    def leaf(spec: ParamSpec) -> Any:
        shape = rows_padded(spec, row_multiple)
        if quantized and spec.quantizable:
            data = jnp.uint8 if spec.storage == "fp4" else jnp.float8_e4m3fn
            return quant_like(
                jax.ShapeDtypeStruct(data_shape(spec.storage, shape), data),
                jax.ShapeDtypeStruct(scale_shape(spec.storage, shape), jnp.uint8),
                spec.storage,
            )
        return jax.ShapeDtypeStruct(shape, jnp.float32 if spec.keep_f32 else dtype)

    return jax.tree.map(leaf, spec_tree)


def initialize(spec_tree: Any, seed: int, dtype: Any = jnp.float32) -> Any:
    """Random plain parameters: normal with standard deviation fan_in**-0.5, else constant `fill`.

    Values depend on the seed and the parameter's checkpoint name alone, so adding a layer or
    changing the mesh leaves the others as they were.
    """

    def leaf(spec: ParamSpec) -> jax.Array:
        kind = jnp.float32 if spec.keep_f32 else dtype
        if not spec.fan_in:
            return jnp.full(spec.shape, spec.fill, kind)
        random = np.random.default_rng([seed, zlib.crc32(spec.names[0].encode())])
        values = random.standard_normal(spec.shape, np.float32) * np.float32(spec.fan_in**-0.5)
        return jnp.asarray(values, kind)

    return jax.tree.map(leaf, spec_tree)


def num_parameters(spec_tree: Any) -> int:
    """Logical number of parameters."""
    return sum(math.prod(spec.shape) for spec in jax.tree.leaves(spec_tree))


def num_bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree, abstract (as from `abstract`) or real."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))

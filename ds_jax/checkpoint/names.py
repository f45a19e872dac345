"""Names, dtypes and shapes of checkpoint tensors, derived from parameter declarations.

Decides which tensors a model's checkpoint holds and where each goes in a parameter.
Never opens a file. In: a tree of ParamSpec. Out: tables of `Stored`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from ds_jax import config
from ds_jax.checkpoint.safetensors import TensorInfo
from ds_jax.models import deepseek_v41, dspark
from ds_jax.sharding.params import ParamSpec, data_shape, scale_shape

# Parts of the released checkpoint that other modules load.
_OTHER_PARTS = ("mtp.", "vision.", "aligner.")
_OTHER_NAMES = ("image_start", "image_end", "image_newline")


@dataclasses.dataclass(frozen=True)
class Stored:
    """One checkpoint tensor and its place in a parameter.

    Attributes:
      info: name, dtype and shape in the file.
      part: "data" or "scale" of a QuantArray, or "value" of a plain array.
      expert: index on the leading axis of a stacked parameter, else None.
      row: first row this tensor fills along the output axis of that part.
    """

    info: TensorInfo
    part: str
    expert: int | None
    row: int


def stored(spec: ParamSpec, quantized: bool) -> Iterator[Stored]:
    """Checkpoint tensors of one parameter, in file order.

    Args:
      spec: the declaration.
      quantized: whether the checkpoint has a quantization_config.
    """
    shape = spec.shape[spec.row_axis :]
    if shape[0] % len(spec.names):
        raise ValueError(f"{shape[0]} rows of {spec.names} cannot be split in {len(spec.names)}")
    shape = (shape[0] // len(spec.names), *shape[1:])
    for expert in range(spec.shape[0]) if spec.stacked else (None,):
        for i, pattern in enumerate(spec.names):
            name = pattern if expert is None else pattern.replace("{e}", str(expert))
            for info, part in _tensors(spec.storage, name, shape, quantized):
                yield Stored(info, part, expert, i * info.shape[0])


def _tensors(
    storage: str, name: str, shape: tuple[int, ...], quantized: bool
) -> list[tuple[TensorInfo, str]]:
    if storage in ("bf16", "f32"):
        return [(TensorInfo(name, storage.upper(), shape), "value")]
    if not quantized:
        return [(TensorInfo(f"{name}.weight", "BF16", shape), "value")]
    dtype = "I8" if storage == "fp4" else "F8_E4M3"
    return [
        (TensorInfo(f"{name}.weight", dtype, data_shape(storage, shape)), "data"),
        (TensorInfo(f"{name}.scale", "F8_E8M0", scale_shape(storage, shape)), "scale"),
    ]


def inventory(spec_tree: Any, quantized: bool) -> list[TensorInfo]:
    """All checkpoint tensors of a tree of declarations, in order."""
    return [s.info for spec in jax.tree.leaves(spec_tree) for s in stored(spec, quantized)]


def path_table(spec_tree: Any, quantized: bool) -> dict[str, tuple[str, Stored]]:
    """Checkpoint tensor name -> (path of the parameter in the tree, place in it)."""
    leaves = jax.tree_util.tree_leaves_with_path(spec_tree)
    return {
        s.info.name: (jax.tree_util.keystr(path), s)
        for path, spec in leaves
        for s in stored(spec, quantized)
    }


def loaded_elsewhere(name: str) -> bool:
    """Whether a tensor belongs to DSpark or vision, which the text model does not load."""
    return name.startswith(_OTHER_PARTS) or name in _OTHER_NAMES


def loaded_with_drafter(name: str) -> bool:
    """Whether a tensor belongs to vision: what text model and drafter together do not load."""
    return loaded_elsewhere(name) and not name.startswith("mtp.")


def strip_prefix(name: str) -> str:
    """Name without the leading `model.` that some writers add."""
    return name.removeprefix("model.")


def dspark_spec(model: config.Model) -> Any:
    """Declarations of the DSpark blocks (`mtp.*`); empty where the model has none."""
    return dspark.spec(model) if model.num_nextn_predict_layers else []


def vision_spec(model: config.Model, vision: config.Vision) -> list[ParamSpec]:
    """Declarations of the vision tower, its aligner and the image delimiters; all bf16."""
    d, v, f = model.hidden_size, vision.hidden_size, vision.intermediate_size
    cell = vision.downsample_ratio**2 * v
    specs = [_plain(name, d) for name in _OTHER_NAMES]
    specs.append(_plain("vision.patch_embed.proj.weight", v, 3 * vision.patch_size**2))
    specs.append(_plain("vision.patch_embed.proj.bias", v))
    for n in range(vision.num_hidden_layers):
        block = {
            "attn.wqkv.weight": (3 * v, v),
            "attn.wqkv.bias": (3 * v,),
            "attn.wo.weight": (v, v),
            "attn.wo.bias": (v,),
            "mlp.w1.weight": (2 * f, v),
            "mlp.w2.weight": (v, f),
            "norm1.weight": (v,),
            "norm2.weight": (v,),
        }
        specs += [_plain(f"vision.blocks.{n}.{name}", *shape) for name, shape in block.items()]
    specs.append(_plain("vision.norm.weight", v))
    specs += [_plain("aligner.w1.weight", d, cell), _plain("aligner.w1.bias", d)]
    specs += [_plain("aligner.w2.weight", d, d), _plain("aligner.w2.bias", d)]
    return specs


def full_spec(model: config.Model, vision: config.Vision | None) -> dict[str, Any]:
    """Declarations of the whole checkpoint by part: text, dspark, vision."""
    return {
        "text": deepseek_v41.spec(model),
        "dspark": dspark_spec(model),
        "vision": vision_spec(model, vision) if vision else [],
    }


def _plain(name: str, *shape: int) -> ParamSpec:
    return ParamSpec(shape, "bf16", (None,) * len(shape), (name,), shape[-1])

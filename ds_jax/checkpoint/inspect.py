"""What a checkpoint holds, as a table of name patterns.

Decides how tensors are grouped for reading. Never reads tensor values.
In: a checkpoint, or a config alone (its tensors are derived). Out: text.
"""

from __future__ import annotations

import collections
import pathlib
import re
from collections.abc import Iterable, Sequence

from ds_jax import config
from ds_jax.checkpoint import names, reader
from ds_jax.checkpoint.safetensors import TensorInfo


def tensors_of(path: str | pathlib.Path) -> tuple[str, list[TensorInfo]]:
    """(what was looked at, its tensors): of a checkpoint, or derived from a config alone."""
    path = pathlib.Path(path)
    bare = path.is_dir() and (path / "config.json").exists()
    bare = bare and not any((path / name).exists() for name in (reader.SINGLE, reader.INDEX))
    if bare or path.suffix in (".json", ".toml"):
        model, vision = config.load(path)
        quantized = model.quantization is not None
        found = names.inventory(names.full_spec(model, vision), quantized)
        return f"{path}: tensors derived from the config", found
    return f"{path}: tensors found", list(reader.Checkpoint(path).tensors.values())


def table(tensors: Sequence[TensorInfo]) -> str:
    """One line a pattern (`*` stands for numbers), then one a dtype, then the total."""
    groups: dict[tuple[str, str], list[TensorInfo]] = collections.defaultdict(list)
    for t in tensors:
        groups[re.sub(r"(?<=\.)\d+(?=\.)", "*", t.name), t.dtype].append(t)
    lines = [f"{'tensors':>8} {'dtype':8} {'bytes':>18}  name and shape"]
    for (pattern, dtype), members in groups.items():
        shapes = {t.shape for t in members}
        shape = str(list(shapes.pop())) if len(shapes) == 1 else f"{len(shapes)} shapes"
        lines.append(_line(members, dtype, f"{pattern} {shape}"))
    for dtype in count_by_dtype(tensors):
        lines.append(_line([t for t in tensors if t.dtype == dtype], dtype, "all of this dtype"))
    lines.append(_line(tensors, "total", f"({_total(tensors) / 2**30:,.2f} GiB)"))
    return "\n".join(lines)


def count_by_dtype(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """Number of tensors of each stored dtype."""
    return dict(collections.Counter(t.dtype for t in tensors))


def _line(tensors: Sequence[TensorInfo], dtype: str, text: str) -> str:
    return f"{len(tensors):>8,} {dtype:8} {_total(tensors):>18,}  {text}"


def _total(tensors: Iterable[TensorInfo]) -> int:
    return sum(t.num_bytes for t in tensors)

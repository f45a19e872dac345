"""From one checkpoint to another: quantised, dequantised, or only laid out anew.

Decides which parts of a checkpoint are carried over (all that are there). Never loads a whole
model: one tensor is in memory at a time. In: a checkpoint folder. Out: a new one, complete or not
there.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil

from ds_jax import config
from ds_jax.checkpoint import loader, names, reader, writer
from ds_jax.errors import CheckpointError


def convert(
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    *,
    quantize: bool | None = None,
    max_shard_bytes: int = writer.MAX_SHARD_BYTES,
) -> None:
    """Writes `target` from `source`.

    Args:
      source: folder with config.json and tensors; further files are copied.
      target: the folder to create.
      quantize: FP8/FP4 weights, bf16 everywhere, or None: as the source has them.
      max_shard_bytes: see writer.save.

    Raises:
      CheckpointError: the source is broken or does not fit its config, or the target exists.
    """
    source = pathlib.Path(source)
    if not source.is_dir():
        raise CheckpointError(f"{source}: is no folder; give one with config.json and its tensors")
    model, vision = config.load(source)
    checkpoint = reader.Checkpoint(source)
    was_quantized = model.quantization is not None
    quantized = was_quantized if quantize is None else quantize
    described = dataclasses.replace(model, quantization=writer.quantization(model, quantized))
    spec_tree = {
        part: tree
        for part, tree in names.full_spec(model, vision).items()
        if part == "text" or _has_any(checkpoint, tree)
    }
    loader.check(checkpoint, names.inventory(spec_tree, was_quantized))
    with writer.new_folder(pathlib.Path(target)) as folder:
        for file in source.iterdir():
            if file.is_file() and not writer.belongs(file.name):
                shutil.copyfile(file, folder / file.name)
        (folder / "config.json").write_text(config.dump(described, vision), encoding="utf-8")
        fetch = writer.from_checkpoint(checkpoint, spec_tree, quantized)
        wanted = names.inventory(spec_tree, quantized)
        writer.write_shards(folder, wanted, fetch, max_shard_bytes)


def _has_any(checkpoint: reader.Checkpoint, tree: list[object]) -> bool:
    return any(t.name in checkpoint.tensors for t in names.inventory(tree, False))

"""From a training state to a checkpoint in the released layout.

Decides which files belong to the shipped model. Never trains, never decides grids or names.
In: a state saved by a run, the model's config and tokenizer. Out: a folder with config.json,
model.safetensors (FP8, FP4 and Engram rows quantised) and tokenizer.json.
"""

from __future__ import annotations

import pathlib

import jax

from ds_jax import config
from ds_jax.checkpoint import store, writer
from ds_jax.engine import vocabulary
from ds_jax.errors import ConfigError
from ds_jax.training import train


def restore(path: str | pathlib.Path, model: config.Model) -> train.TrainState:
    """Reads a state that `train.run` saved, onto the default device.

    Raises:
      CheckpointError: no such folder, or it belongs to another model.
    """
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # the optimiser's arrays do not depend on the recipe
    shapes = jax.eval_shape(lambda: train.init(model, train.Recipe(steps=1)))
    target = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here), shapes)
    return store.restore(path, target)


def export(
    state: train.TrainState,
    model: config.Model,
    tokenizer_file: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    overwrite: bool = False,
) -> int:
    """Writes the checkpoint folder; it appears complete or not at all.

    Args:
      state: the parameters to ship, float32; quantised here as training saw them.
      model: its config; a model without `quantization` is written in bfloat16.
      tokenizer_file: the tokenizer.json the model was trained with.
      out: folder to create.
      overwrite: replace the checkpoint files of an existing folder.

    Returns:
      Bytes of all files written.

    Raises:
      ConfigError: the tokenizer cannot be read or does not fit the model.
      CheckpointError: the folder exists, or a parameter is not finite.
    """
    path = pathlib.Path(tokenizer_file)
    if not path.is_file():
        raise ConfigError(f"{path}: no such tokenizer; give the tokenizer.json used for training")
    vocabulary.load(path.parent, model)
    writer.save(
        out,
        model,
        state.params,
        quantize=model.quantization is not None,
        files={"tokenizer.json": path.read_bytes()},
        overwrite=overwrite,
    )
    return sum(file.stat().st_size for file in pathlib.Path(out).iterdir() if file.is_file())

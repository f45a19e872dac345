"""One training run of a drafter in a folder, and the checkpoint that comes of it.

Decides file names and what is checked before the first step. Never defines a loss or a schedule.
In: a checkpoint, rows, a recipe. Out: dspark_log.jsonl, step<N> folders; a checkpoint with `mtp.*`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ds_jax import config
from ds_jax.checkpoint import loader, store, writer
from ds_jax.errors import ConfigError
from ds_jax.models import deepseek_v41, engram, token_map
from ds_jax.pipeline import CALIBRATION
from ds_jax.training import dspark, rows


def initial_state(
    model: config.Model, target: deepseek_v41.Params, recipe: dspark.Recipe
) -> dspark.DrafterState:
    """The state before the first step."""
    params = dspark.initial(model, target, recipe)
    rule = dspark.optimizer(recipe)
    return dspark.DrafterState(params, rule.init(params), jnp.zeros((), jnp.int32))  # type: ignore


def restore(
    path: str | pathlib.Path, model: config.Model, target: deepseek_v41.Params
) -> dspark.DrafterState:
    """Reads a state of a run.

    Raises:
      CheckpointError: no such folder, or it belongs to another model.
    """
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = jax.eval_shape(lambda: initial_state(model, target, dspark.Recipe(steps=1)))
    wanted = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here), shapes)
    return store.restore(path, wanted)


def mean(states: Sequence[dspark.DrafterState]) -> dspark.DrafterState:
    """The newest state with the mean parameters of all: like a rate that has come to rest."""
    params = jax.tree.map(lambda *a: sum(a[1:], a[0]) / len(a), *(s.params for s in states))
    return dataclasses.replace(states[-1], params=params)


def train(
    checkpoint: str | pathlib.Path,
    model: config.Model,
    numerics: config.Numerics,
    recipe: dspark.Recipe,
    data: rows.Rows,
    out: str | pathlib.Path,
    *,
    resume: str | pathlib.Path | None = None,
    save_every: int = 100,
) -> dspark.DrafterState:
    """Trains up to `recipe.steps`.

    Args:
      checkpoint: the target, with its tokenizer.json.
      model: its config, with the sizes of the drafter.
      data: packed rows of its vocabulary.
      resume: a state folder to go on from.

    Raises:
      ConfigError: the config has no drafter, there are too few rows, or the folder holds a run.
    """
    check(model)
    folder, source = pathlib.Path(out), pathlib.Path(checkpoint)
    if resume is None and (folder / dspark.LOG).exists():
        raise ConfigError(f"{folder}: holds a run already; give --resume=STATE or another --out")
    if len(data.tokens) < recipe.batch_rows:
        raise ConfigError(
            f"{len(data.tokens)} rows are fewer than batch_rows={recipe.batch_rows}; pack more"
        )
    target = loader.load(source, model, weights="dequantized", dtype=jnp.float32)
    tables = None
    if model.engram_layer_ids:
        tables = engram.hash_tables(model, token_map.for_model(source / "tokenizer.json", model))
    if resume is None:
        state = initial_state(model, target, recipe)
    else:
        state = restore(resume, model, target)

    def save(state: dspark.DrafterState, number: int) -> None:
        store.save(folder / f"step{number}", state, overwrite=True)

    return dspark.train_drafter(
        *(model, numerics, recipe, target, tables, data, state, folder, save, save_every)
    )


def check(model: config.Model) -> None:
    """Raises ConfigError for a config without drafter."""
    if not model.num_nextn_predict_layers:
        raise ConfigError(
            "num_nextn_predict_layers=0: the config has no drafter; set it, "
            "dspark_target_layer_ids and a 0 in compress_ratios for every block"
        )


def export(
    state: dspark.DrafterState,
    checkpoint: str | pathlib.Path,
    model: config.Model,
    out: str | pathlib.Path,
    *,
    temperatures: Sequence[float] = (),
    overwrite: bool = False,
) -> int:
    """Writes a checkpoint: the target's tensors byte for byte, and the drafter's.

    Args:
      temperatures: of the confidence; written beside the tensors if given.

    Returns: bytes of all files written.
    """
    check(model)
    source = pathlib.Path(checkpoint)
    kept = "quantized" if model.quantization else "dequantized"
    target = loader.load(source, model, weights=kept)
    files: dict[str, str | bytes] = {"tokenizer.json": (source / "tokenizer.json").read_bytes()}
    if temperatures:
        text = json.dumps({"confidence_temperatures": [round(t, 4) for t in temperatures]})
        files[CALIBRATION] = text + "\n"
    params = dataclasses.replace(target, drafter=state.params)
    writer.save(
        out,
        model,
        params,
        quantize=model.quantization is not None,
        files=files,
        overwrite=overwrite,
    )
    return sum(file.stat().st_size for file in pathlib.Path(out).iterdir() if file.is_file())

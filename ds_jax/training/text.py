"""One training run of the text model in a folder: its log, its states, how it goes on after a stop.

Decides file names and what is checked before the first step. Never defines a loss or a schedule.
In: config, recipe, rows. Out: log.jsonl and step<N> folders.
"""

from __future__ import annotations

import pathlib

from ds_jax import config
from ds_jax.checkpoint import store
from ds_jax.errors import ConfigError
from ds_jax.models import engram, token_map
from ds_jax.training import export, rows, train

LOG = "log.jsonl"


def train_text(
    model: config.Model,
    numerics: config.Numerics,
    recipe: train.Recipe,
    data: rows.Rows,
    tokenizer_file: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    resume: str | pathlib.Path | None = None,
    save_every: int = 100,
) -> train.TrainState:
    """Trains up to `recipe.steps`.

    Args:
      data: packed rows; their order is a function of `recipe.seed` and the step.
      tokenizer_file: the tokenizer of the rows; the Engram hash is derived from it.
      out: folder of the log and the states; a run without `resume` needs one without a log.
      resume: a state folder to go on from, of the same model.
      save_every: steps between states; the last step is saved too.

    Raises:
      ConfigError: rows, model and tokenizer do not fit, or the folder holds another run.
    """
    folder = pathlib.Path(out)
    if resume is None and (folder / LOG).exists():
        raise ConfigError(
            f"{folder}: holds a run already; give --resume=STATE to go on, or another --out"
        )
    if len(data.tokens) < recipe.batch_rows:
        raise ConfigError(
            f"{len(data.tokens)} rows are fewer than batch_rows={recipe.batch_rows}; pack more"
        )
    if (largest := int(data.tokens.max())) >= model.vocab_size:
        raise ConfigError(
            f"the rows hold token id {largest}, the model has vocab_size={model.vocab_size}; "
            "pack them with the model's tokenizer"
        )
    tables = None
    if model.engram_layer_ids:
        tables = engram.hash_tables(model, token_map.for_model(tokenizer_file, model))
    state = train.init(model, recipe) if resume is None else export.restore(resume, model)
    if int(state.step) >= recipe.steps:
        raise ConfigError(f"{resume}: is at step {int(state.step)}, steps={recipe.steps} is done")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be created ({error.strerror})") from None

    def save(state: train.TrainState, number: int) -> None:
        store.save(folder / f"step{number}", state, overwrite=True)

    order = train.batches(
        data.tokens, data.weights, recipe.batch_rows, recipe.seed, int(state.step)
    )
    state = train.run(model, numerics, recipe, tables, order, state, folder / LOG, save, save_every)
    if recipe.steps % save_every:
        save(state, recipe.steps)
    return state

"""Files of a training run: packed rows, held-out rows, held-out dialogues as text.

Decides file names and how rows lie in a file. Never packs rows (rows.py), never trains.
In: tokenizer, corpus folder, sizes. Out: rows.npz, heldout_rows.npz and heldout.jsonl in a folder.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Mapping

import numpy as np

from ds_jax.errors import ConfigError
from ds_jax.recipe import render
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.training import rows, tasks

ROWS = "rows.npz"
HELD_OUT_ROWS = "heldout_rows.npz"
HELD_OUT_DIALOGUES = "heldout.jsonl"
PROSE = "sphinx"  # the source that is kept for evaluation
SEQ_LEN = 320


def write(
    tokenizer: Tokenizer,
    corpus_dir: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    num_rows: int,
    seq_len: int = SEQ_LEN,
    seed: int = 0,
    held_out_seed: int = 1,
    held_out_rows: int = 400,
    held_out_dialogues: int = 600,
    mix: Mapping[str, float] | None = None,
) -> dict[str, int]:
    """Packs and writes all three files.

    Args:
      num_rows: rows to train on.
      seq_len: predicted tokens of a row.
      seed: of the training rows.
      held_out_seed: of the held-out prose and dialogues.
      mix: share of the training tokens by source; default: `rows.DEFAULT_MIX`.

    Returns:
      Training tokens by kind, padding under "pad".

    Raises:
      ConfigError: the corpus is missing or the folder cannot be written.
    """
    folder = pathlib.Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be created ({error.strerror})") from None
    packed = rows.build_rows(tokenizer, corpus_dir, seq_len, seed, num_rows, mix)
    save_rows(folder / ROWS, packed)
    prose = rows.build_rows(
        tokenizer, corpus_dir, seq_len, held_out_seed, held_out_rows, {PROSE: 1.0}
    )
    save_rows(folder / HELD_OUT_ROWS, prose)
    with open(folder / HELD_OUT_DIALOGUES, "w", encoding="utf-8") as file:
        chosen = itertools.islice(tasks.generate(held_out_seed, "heldout"), held_out_dialogues)
        for index, dialogue in enumerate(chosen):
            line = {"index": index, **_record(dialogue, tokenizer)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return packed.tokens_by_kind


def save_rows(path: pathlib.Path, packed: rows.Rows) -> None:
    """Writes rows: tokens as uint16 (vocabularies below 65536), weights as float16."""
    assert packed.tokens.max(initial=0) < 2**16, "token ids are stored in 16 bits"
    np.savez(
        path, tokens=packed.tokens.astype(np.uint16), weights=packed.weights.astype(np.float16)
    )


def load_rows(path: str | pathlib.Path) -> rows.Rows:
    """Reads rows back.

    Raises:
      ConfigError: not a file written by `save_rows`.
    """
    try:
        with np.load(path) as arrays:
            return rows.Rows(
                arrays["tokens"].astype(np.int32), arrays["weights"].astype(np.float32), {}
            )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{path}: cannot read training rows ({error}); write them with "
            "python -m ds_jax.training rows"
        ) from None


def _record(dialogue: tasks.Dialogue, tokenizer: Tokenizer) -> dict[str, object]:
    ids, mask = tasks.encode(dialogue, tokenizer)
    cut = mask.index(1)
    return {
        "kind": dialogue.kind,
        "thinking_mode": dialogue.prompt.thinking_mode,
        "prompt": render.render(dialogue.prompt).prompt,
        "completion": tasks.completion_text(dialogue),
        "prompt_ids": ids[:cut],
        "completion_ids": ids[cut:],
    }

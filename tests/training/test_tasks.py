"""Dialogues are reproducible, held-out values are new, and only the right answer is accepted."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import re

import numpy as np
import pytest

import ds_jax
from ds_jax import errors
from ds_jax.recipe import conversation as conv
from ds_jax.recipe import render, tokenizer
from ds_jax.training import corpus, rows, task_grading, task_words, tasks

TINY = pathlib.Path(next(iter(ds_jax.__path__))) / "assets" / "tiny" / "tokenizer.json"


@pytest.fixture(scope="module")
def tiny() -> tokenizer.Tokenizer:
    return tokenizer.Tokenizer.from_file(TINY)


def _dialogues(seed: int, split: str, count: int) -> list[tasks.Dialogue]:
    return list(itertools.islice(tasks.generate(seed, split), count))


def _values(dialogues: list[tasks.Dialogue]) -> tuple[set[str], set[tuple[int, int]]]:
    """Quoted values and JSON keys of the user's turns, and unordered pairs of summands."""
    words: set[str] = set()
    pairs: set[tuple[int, int]] = set()
    for dialogue in dialogues:
        for message in dialogue.prompt.messages:
            if message.role == "user" and dialogue.kind in ("tool", "json", "followup"):
                for text in re.findall(r'"([^"]+)"', message.content):
                    words.update(text.split())
        if dialogue.kind == "json":
            words.update(json.loads(dialogue.completion.content))
        if dialogue.kind == "arithmetic":
            first, second = re.findall(r"\d+", dialogue.completion.reasoning_content)[:2]
            pairs.add((min(int(first), int(second)), max(int(first), int(second))))
    closed = {*task_words.DAYS, *task_words.LANGUAGES}
    return {word.lower() for word in words - closed}, pairs


def test_same_seed_gives_same_dialogues():
    assert _dialogues(3, "train", 50) == _dialogues(3, "train", 50)
    assert _dialogues(3, "train", 50) != _dialogues(4, "train", 50)


def test_heldout_values_never_occur_in_training():
    train_words, train_pairs = _values(_dialogues(0, "train", 6000))
    heldout_words, heldout_pairs = _values(_dialogues(0, "heldout", 1500))
    assert len(heldout_words) > 100
    assert len(heldout_pairs) > 100
    assert not train_words & heldout_words
    assert not train_pairs & heldout_pairs


def test_unknown_split_is_refused():
    with pytest.raises(ValueError, match='"test" does not exist'):
        next(tasks.generate(0, "test"))


@pytest.mark.parametrize("split", task_words.SPLITS)
def test_grade_accepts_the_expected_completion(split):
    for dialogue in _dialogues(1, split, 400):
        score = task_grading.grade(dialogue, tasks.completion_text(dialogue))
        assert score, score.reason


def test_grade_refuses_another_answer():
    seen = set()
    for dialogue in _dialogues(2, "train", 400):
        seen.add(dialogue.kind)
        want = dialogue.completion
        wrong = conv.AssistantMessage(want.content + "1", want.reasoning_content, want.tool_calls)
        if want.tool_calls:
            first = want.tool_calls[0]
            changed = json.dumps({**json.loads(first.arguments), "x": 1})
            calls = [dataclasses.replace(first, arguments=changed)]
            wrong = conv.AssistantMessage(want.content, want.reasoning_content, calls)
        text = tasks.completion_text(dataclasses.replace(dialogue, completion=wrong))
        assert not task_grading.grade(dialogue, text)
        assert not task_grading.grade(dialogue, tasks.completion_text(dialogue)[:-25])
    assert seen == set(tasks.KIND_SHARES)


def test_json_true_is_not_one():
    prompt = conv.Conversation((conv.UserMessage("a is 1."),), thinking_mode=False)
    dialogue = tasks.Dialogue("json", prompt, conv.AssistantMessage('{"a": 1}'))
    assert task_grading.grade(dialogue, '{"a":1}<｜end▁of▁sentence｜>')
    assert not task_grading.grade(dialogue, '{"a": true}<｜end▁of▁sentence｜>')
    assert not task_grading.grade(dialogue, '{"a": 1<｜end▁of▁sentence｜>').well_formed


def test_tool_calls_read_back_from_markup():
    arguments = {"s": 'a "b"\n<c>', "n": 3, "l": ["x", 1.5], "o": {"k": None}, "t": True}
    calls = (
        conv.ToolCall("0", "first", json.dumps(arguments)),
        conv.ToolCall("1", "second", "{}"),
    )
    text = render.render_completion(
        conv.AssistantMessage("text", "why", calls), thinking_mode=True
    ).prompt
    got = task_grading.parse_completion(text, thinking_mode=True)
    assert got == task_grading.Completion(
        "why", "text", (("first", arguments), ("second", {})), True
    )


@pytest.mark.parametrize(
    ("first", "second", "sum_text", "difference_text"),
    [
        (47, 48, "47+48: 7+8=15 4+4+1=9 -> 95", None),
        (52, 37, "52+37: 2+7=9 5+3=8 -> 89", "52-37: 12-7=5 5-3-1=1 -> 15"),
        (99, 99, "99+99: 9+9=18 9+9+1=19 -> 198", "99-99: 9-9=0 9-9=0 -> 0"),
    ],
)
def test_reasoning_goes_digit_by_digit(first, second, sum_text, difference_text):
    assert tasks.add_reasoning(first, second) == sum_text
    if difference_text:
        assert tasks.subtract_reasoning(first, second) == difference_text


def test_encode_marks_the_completion(tiny):
    for dialogue in _dialogues(5, "train", 60):
        ids, mask = tasks.encode(dialogue, tiny)
        split = mask.index(1)
        assert tiny.decode(ids[:split]) == render.render(dialogue.prompt).prompt
        assert tiny.decode(ids[split:]) == tasks.completion_text(dialogue)
        assert ids[0] == tiny.bos_id
        assert ids[-1] == tiny.eos_id
        assert all(mask[split:])


def test_dialogues_are_short(tiny):
    lengths = [len(tasks.encode(d, tiny)[0]) for d in _dialogues(6, "train", 300)]
    assert np.percentile(lengths, 95) < 220
    assert max(lengths) <= 320


def _small_corpus(folder: pathlib.Path) -> None:
    for name in ("django", "wordnet", "stdlib"):
        lines = [json.dumps({"text": f"{name} text {number}. " * 30}) for number in range(20)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))


def test_rows_start_with_a_document_and_never_cut_a_dialogue(tiny, tmp_path):
    _small_corpus(tmp_path)
    got = rows.build_rows(tiny, tmp_path, 200, 0, 40)
    assert got.tokens.shape == got.weights.shape == (40, 201)
    assert (got.tokens.dtype, got.weights.dtype) == (np.int32, np.float32)
    assert (got.tokens[:, 0] == tiny.bos_id).all()
    assert sum(got.tokens_by_kind.values()) == got.tokens.size
    assert got.weights[got.tokens == tiny.control_id("<｜▁pad▁｜>")].max(initial=0) == 0
    dialogues = 0
    for row in got.tokens.tolist():
        text = tiny.decode(row)
        for document in text.split("<｜begin▁of▁sentence｜>")[1:]:
            if "<｜Assistant｜>" in document:
                dialogues += 1
                assert document.replace("<｜▁pad▁｜>", "").endswith("<｜end▁of▁sentence｜>")
    assert dialogues > 20
    share = sum(got.tokens_by_kind[kind] for kind in tasks.KIND_SHARES) / got.tokens.size
    assert abs(share - rows.DEFAULT_MIX["dialogues"]) < 0.1


def test_counted_tokens_of_repeats_were_said_before(tiny, tmp_path):
    got = rows.build_rows(tiny, tmp_path, 300, 5, 20, {"repeats": 1.0})
    counted = 0
    for ids, weights in zip(got.tokens.tolist(), got.weights.tolist(), strict=True):
        start = 0
        for place, (token, weight) in enumerate(zip(ids, weights, strict=True)):
            if token == tiny.bos_id:
                start = place
            if weight:
                counted += 1
                assert token in ids[start:place]
    assert counted > 0.4 * got.tokens.size
    with pytest.raises(errors.ConfigError, match="novels"):
        rows.build_rows(tiny, tmp_path, 200, 0, 1, {"repeats": 0.5, "novels": 0.5})


def test_rows_are_the_same_for_the_same_seed(tiny, tmp_path):
    _small_corpus(tmp_path)
    first, second = (rows.build_rows(tiny, tmp_path, 200, 1, 10) for _ in range(2))
    assert (first.tokens == second.tokens).all()
    assert (first.weights == second.weights).all()


def test_unknown_source_and_missing_corpus_are_refused(tiny, tmp_path):
    with pytest.raises(errors.ConfigError, match="novels"):
        rows.build_rows(tiny, tmp_path, 200, 0, 1, {"novels": 1.0})
    with pytest.raises(errors.ConfigError, match="does not exist"):
        rows.build_rows(tiny, tmp_path, 200, 0, 1)


def test_corpus_refuses_a_download_with_another_hash(tmp_path):
    (tmp_path / "Django-5.2.tar.gz").write_bytes(b"something else")
    with pytest.raises(errors.ConfigError, match="sha256"):
        corpus.build(tmp_path)

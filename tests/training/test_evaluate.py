"""Answers count in the right group, bits per byte are what they are called, files come back."""

from __future__ import annotations

import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ds_jax
from ds_jax import errors
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import FinishReason, GenerateResult, Usage
from ds_jax.training import evaluate, prepare, rows, tasks

ROOT = pathlib.Path(ds_jax.__file__).parents[1]
TINY = ROOT / "ds_jax" / "assets" / "tiny"


class Oracle:
    """Stands for a pipeline: knows the answers, and gives wrong ones to a kind."""

    def __init__(self, tokenizer: Tokenizer, dialogues: list[tasks.Dialogue], wrong: str = ""):
        self.tokenizer = tokenizer
        self.batches: list[int] = []
        self.known: dict[tuple[int, ...], list[int]] = {}
        for dialogue in dialogues:
            ids, mask = tasks.encode(dialogue, tokenizer)
            cut = mask.index(1)
            self.known[tuple(ids[:cut])] = [5] if dialogue.kind == wrong else ids[cut:-1]

    def generate(self, prompts: list[list[int]], params: Any) -> list[GenerateResult]:
        self.batches.append(len(prompts))
        answers = [tuple(self.known[tuple(ids)]) for ids in prompts]
        return [
            GenerateResult("", ids, FinishReason.STOP, Usage(len(p), len(ids)))
            for p, ids in zip(prompts, answers, strict=True)
        ]

    def score(self, token_ids: list[int]) -> np.ndarray:
        return np.zeros((len(token_ids), 3072), np.float32)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(TINY / "tokenizer.json")


@pytest.fixture(scope="module")
def dialogues() -> list[tasks.Dialogue]:
    return evaluate.held_out_dialogues(80)


def test_right_answers_are_all_right(tokenizer, dialogues):
    oracle = Oracle(tokenizer, dialogues)
    report = evaluate.evaluate(oracle, dialogues)  # type: ignore[arg-type]
    groups = {"sums", "differences", "tool", "json", "followup", "chat"}
    assert set(report.tallies) == groups
    assert sum(t.count for t in report.tallies.values()) == 80
    assert all(t.right == t.well_formed == t.count for t in report.tallies.values())
    assert not report.mistakes and report.bits_per_byte is None
    assert set(oracle.batches) == {evaluate.WAVE}
    assert json.loads(json.dumps(report.record()))["dialogues"]["sums"]["right"] == 1.0


def test_wrong_answers_are_counted_and_kept(tokenizer, dialogues):
    oracle = Oracle(tokenizer, dialogues, wrong="json")
    report = evaluate.evaluate(oracle, dialogues, keep_mistakes=2)  # type: ignore[arg-type]
    assert report.tallies["json"].right == 0
    assert report.tallies["tool"].right == report.tallies["tool"].count
    assert [m.group for m in report.mistakes] == ["json", "json"]
    assert "| json |" in report.table()


def test_sums_and_differences_are_told_apart(dialogues):
    for dialogue in dialogues:
        if dialogue.kind == "arithmetic":
            text = str(dialogue.completion.reasoning_content)
            assert ("+" in text.partition(":")[0]) == (evaluate.group(dialogue) == "sums")


def test_even_odds_cost_the_logarithm_of_the_vocabulary(tokenizer):
    ids = [tokenizer.bos_id, *tokenizer.encode_text("Plain prose costs bits."), tokenizer.eos_id]
    packed = rows.Rows(np.array([ids], np.int32), np.ones((1, len(ids)), np.float32), {})
    bits, size = evaluate.bits_per_byte(
        Oracle(tokenizer, []),  # type: ignore[arg-type]
        tokenizer,
        packed,
    )
    assert size == len("Plain prose costs bits.")
    assert bits == pytest.approx((len(ids) - 1) * math.log2(3072) / size)


def test_files_of_a_run_come_back(tmp_path, tokenizer):
    for name in ("django", "wordnet", "stdlib", "sphinx"):
        lines = (json.dumps({"text": f"Text number {n} of {name}. " * 9}) for n in range(50))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    counts = prepare.write(
        tokenizer,
        tmp_path,
        tmp_path / "run",
        num_rows=6,
        held_out_rows=2,
        held_out_dialogues=5,
    )
    packed = prepare.load_rows(tmp_path / "run" / prepare.ROWS)
    assert packed.tokens.shape == (6, prepare.SEQ_LEN + 1) == packed.weights.shape
    assert packed.tokens.dtype == np.int32 and sum(counts.values()) == packed.tokens.size
    prose = prepare.load_rows(tmp_path / "run" / prepare.HELD_OUT_ROWS)
    assert "sphinx" in tokenizer.decode(prose.tokens[0])
    lines = (tmp_path / "run" / prepare.HELD_OUT_DIALOGUES).read_text(encoding="utf-8")
    first = json.loads(lines.splitlines()[0])
    assert len(lines.splitlines()) == 5
    assert tokenizer.decode(first["completion_ids"]) == first["completion"]


def test_rows_that_are_no_rows_are_refused(tmp_path):
    (tmp_path / "rows.npz").write_bytes(b"no archive")
    with pytest.raises(errors.ConfigError, match="cannot read training rows"):
        prepare.load_rows(tmp_path / "rows.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "use one command of corpus"),
        (["learn"], "use one command of corpus"),
        (["text", "--out=x"], "--rows is missing"),
        (["rows", "--num_rows=0"], "num_rows"),
        (["evaluate", "--checkpoint=nowhere"], "is not a folder"),
    ],
)
def test_mistakes_of_a_user_are_one_line(arguments, message):
    command = [sys.executable, "-m", "ds_jax.training", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1

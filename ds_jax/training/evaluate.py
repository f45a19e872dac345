"""How good a trained checkpoint is: dialogues answered by greedy generation, prose scored.

Decides what is generated, which answers are counted together and how bits per byte are formed.
Never trains, never grades one answer itself (task_grading). In: a loaded pipeline, so that the
shipped FP8/FP4 weights are the ones measured. Out: a `Report`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ds_jax.errors import ConfigError
from ds_jax.pipeline import Pipeline
from ds_jax.recipe import render
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import FinishReason, GenerateResult, SamplingParams
from ds_jax.training import prepare, rows, task_grading, tasks

PROSE_TOKENS = prepare.SEQ_LEN
MAX_TOKENS = 128
WAVE = 32  # sequences that run together

# Sizes that make few programs: one prefill, one decode step, one row of prose.
PIPELINE_OPTIONS: dict[str, Any] = {
    "max_sequences": WAVE,
    "max_context": 4 * PROSE_TOKENS,
    "chunk_tokens": (PROSE_TOKENS, 4 * PROSE_TOKENS),
}


@dataclasses.dataclass(frozen=True)
class Tally:
    """How many answers of one group were right."""

    count: int = 0
    right: int = 0
    well_formed: int = 0  # ended, and parses as what it should be

    def add(self, score: task_grading.Score) -> Tally:
        """One more answer."""
        return Tally(self.count + 1, self.right + score.right, self.well_formed + score.well_formed)


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A wrong answer, for reading."""

    group: str
    prompt: str
    completion: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What `evaluate` measured.

    Attributes:
      tallies: per group: "sums" and "differences" (the two halves of arithmetic), tool, json,
        followup, chat.
      mistakes: the first few wrong answers of each group.
      bits_per_byte: of the prose; None where none was scored.
      prose_bytes: bytes of prose that were predicted.
    """

    tallies: dict[str, Tally]
    mistakes: tuple[Mistake, ...]
    bits_per_byte: float | None
    prose_bytes: int

    def record(self) -> dict[str, Any]:
        """The figures as JSON values; shares are between 0 and 1."""
        groups = {
            name: {
                "count": tally.count,
                "right": round(tally.right / tally.count, 4),
                "well_formed": round(tally.well_formed / tally.count, 4),
            }
            for name, tally in self.tallies.items()
        }
        prose = {"bits_per_byte": self.bits_per_byte, "bytes": self.prose_bytes}
        return {"dialogues": groups, "prose": prose}

    def table(self) -> str:
        """The figures as a Markdown table."""
        lines = ["| group | answers | right | well formed |", "|---|---|---|---|"]
        for name, tally in self.tallies.items():
            shares = (tally.right / tally.count, tally.well_formed / tally.count)
            lines.append(f"| {name} | {tally.count} | {shares[0]:.1%} | {shares[1]:.1%} |")
        if self.bits_per_byte is not None:
            lines.append(
                f"\n{self.bits_per_byte:.3f} bits/byte on {self.prose_bytes} bytes of prose"
            )
        return "\n".join(lines)


def evaluate(
    pipeline: Pipeline,
    dialogues: Iterable[tasks.Dialogue],
    prose: rows.Rows | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    keep_mistakes: int = 3,
) -> Report:
    """Generates an answer to every dialogue, grades it, and scores rows of prose.

    Args:
      pipeline: the checkpoint under test; `PIPELINE_OPTIONS` make it compile little.
      dialogues: held-out dialogues.
      prose: rows of held-out text; None: bits per byte are not measured.
      max_tokens: tokens of an answer at most.
      keep_mistakes: wrong answers of each group to keep.

    Raises:
      ConfigError: the checkpoint has no tokenizer.
    """
    tokenizer = pipeline.tokenizer
    if tokenizer is None:
        raise ConfigError("the checkpoint has no tokenizer.json, so dialogues cannot be rendered")
    tallies: dict[str, Tally] = {}
    mistakes: list[Mistake] = []
    for dialogue, answer in answers(pipeline, tokenizer, list(dialogues), max_tokens):
        score = task_grading.grade(dialogue, answer)
        name = group(dialogue)
        tally = tallies.get(name, Tally()).add(score)
        tallies[name] = tally
        if not score and tally.count - tally.right <= keep_mistakes:
            prompt = render.render(dialogue.prompt).prompt
            mistakes.append(Mistake(name, prompt, answer, score.reason))
    bits, size = (None, 0) if prose is None else bits_per_byte(pipeline, tokenizer, prose)
    return Report(dict(sorted(tallies.items())), tuple(mistakes), bits, size)


def group(dialogue: tasks.Dialogue) -> str:
    """The group an answer is counted in: the kind, arithmetic by operation."""
    if dialogue.kind != "arithmetic":
        return dialogue.kind
    statement = (dialogue.completion.reasoning_content or "").partition(":")[0]
    return "sums" if "+" in statement else "differences"


def answers(
    pipeline: Pipeline, tokenizer: Tokenizer, dialogues: Sequence[tasks.Dialogue], max_tokens: int
) -> Iterator[tuple[tasks.Dialogue, str]]:
    """Each dialogue with its greedy answer, control strings and end token included.

    Answers of about one length run together, in waves of one size, so that few programs are
    compiled and few steps are idle; the last wave is filled up by repeating its last prompt.
    """
    ids = prompt_ids(pipeline, dialogues)
    order = sorted(range(len(ids)), key=lambda n: len(tasks.completion_text(dialogues[n])))
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, seq_seed=0)
    for start in range(0, len(order), WAVE):
        wave = order[start : start + WAVE]
        filled = wave + wave[-1:] * (WAVE - len(wave))
        results = pipeline.generate([ids[n] for n in filled], params)
        for n, result in zip(wave, results, strict=False):
            yield dialogues[n], completion_text(tokenizer, result)


def prompt_ids(pipeline: Pipeline, dialogues: Iterable[tasks.Dialogue]) -> list[list[int]]:
    """Token ids of the prompts of dialogues."""
    tokenizer = pipeline.tokenizer
    if tokenizer is None:
        raise ConfigError("the checkpoint has no tokenizer.json, so dialogues cannot be rendered")
    return [tokenizer.encode_segments(render.render(d.prompt).segments) for d in dialogues]


def completion_text(tokenizer: Tokenizer, result: GenerateResult) -> str:
    """The generated text with control strings, the end token where there was one."""
    end = tokenizer.special_tokens.eos if result.finish_reason is FinishReason.STOP else ""
    return tokenizer.decode(result.token_ids) + end


def bits_per_byte(pipeline: Pipeline, tokenizer: Tokenizer, prose: rows.Rows) -> tuple[float, int]:
    """(total nats of the weighted tokens / ln 2 / their bytes, those bytes).

    The end token of a document is predicted like any other and counts no byte.
    """
    nats, size = 0.0, 0
    for tokens, weights in zip(prose.tokens, prose.weights, strict=True):
        targets = tokens[1:]
        kept = weights[1:] > 0
        logits = pipeline.score([int(i) for i in tokens[:-1]])[kept].astype(np.float64)
        right = logits[np.arange(len(logits)), targets[kept]]
        top = logits.max(axis=-1)
        nats += float(np.sum(top + np.log(np.exp(logits - top[:, None]).sum(axis=-1)) - right))
        ends = tokenizer.control_ids
        size += sum(len(tokenizer.token_bytes(int(i))) for i in targets[kept] if i not in ends)
    if not size:
        raise ConfigError("the prose has no predicted byte; give at least one row of text")
    return nats / math.log(2) / size, size


def held_out_dialogues(count: int, seed: int = 1) -> list[tasks.Dialogue]:
    """The first `count` held-out dialogues of a seed."""
    return list(itertools.islice(tasks.generate(seed, "heldout"), count))


def held_out_prose(
    tokenizer: Tokenizer, corpus_dir: str, num_rows: int, seed: int = 1
) -> rows.Rows:
    """Rows of the source that is kept for evaluation, cut at random places of its documents."""
    return rows.build_rows(
        tokenizer, corpus_dir, PROSE_TOKENS, seed, num_rows, {prepare.PROSE: 1.0}
    )

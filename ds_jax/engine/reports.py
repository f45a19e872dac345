"""Log probabilities on their way from a launched step to events.

Decides which launches need more than their newest tokens, and where the words of a report belong.
Never computes one on the host. In: launches with their output. Out: `Report`s, then records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Many

import jax
import numpy as np

from ds_jax.engine import controls, packing
from ds_jax.engine.launches import Launch, is_scored
from ds_jax.engine.plan import Chunk
from ds_jax.engine.runner import Runner
from ds_jax.engine.sequence import State
from ds_jax.engine.step import StepOutput
from ds_jax.records import TokenEvent, TokenLogprob

PromptLogprobs = dict[str, list[TokenLogprob | None]]


@dataclasses.dataclass(frozen=True)
class Report:
    """Words on the device, and whose they are.

    Attributes:
      words: int32 [rows words], or [B U words] of a step that scores chunks.
      readers: (row, reader of the plan, most likely tokens asked for).
      chunks: (first row, chunk) of prompts that are scored, rows of all sequences counted.
    """

    words: jax.Array
    readers: tuple[tuple[int, int, int], ...] = ()
    chunks: tuple[tuple[int, Chunk], ...] = ()


def asks(step: Launch) -> bool:
    """Whether a sequence of the step asks for more than the step itself does."""
    for part in step.chunks:
        if part.sequence.request.params.drawn_again or is_scored(part):
            return True
    return any([row.sequence.request.params.drawn_again for row in step.rows])


def ask(runner: Runner, step: Launch, output: StepOutput) -> tuple[StepOutput, list[Report]]:
    """Draws again where need be, and scores prompts. Mutates the runner's state."""
    rows = packing.rows_of(step, runner.back)
    places = packing.places([row.rank for row in rows], runner.ranks, step.key.sequences)
    output = runner.resample(output, rows, places)
    found: list[Report] = []
    drawn = [(row, place) for row, place in zip(rows, places, strict=True) if row.samples]
    readers = tuple(
        (place, reader, row.params.top_logprobs)
        for (row, place), reader in zip(drawn, step.places, strict=True)
        if row.params.top_logprobs is not None and row.params.drawn_again
    )
    if readers:
        assert output.report is not None, "log probabilities are drawn in full"
        found.append(Report(output.report, readers=readers))
    scored = [c for c in step.chunks if is_scored(c) and not c.sequence.emitted]
    if scored:
        if step.key.flat:
            words = runner.score_rows(output.logits, [row.next_id for row in rows], places)
            slots = [(row.rank, row.slot) for row in rows]
            first = [places[slots.index((c.sequence.rank, c.sequence.slot))] for c in scored]
        else:
            words, first = output.scores, [c.sequence.rank * step.key.tokens for c in scored]
        assert words is not None, "a prompt that is scored runs in a step that scores"
        found.append(Report(words, chunks=tuple(zip(first, scored, strict=True))))
    return output, found


def read(
    reports: Many[Report], readers: int, prompts: PromptLogprobs
) -> list[list[TokenLogprob] | None]:
    """Log probabilities of each reader. Adds those of prompts to `prompts`.

    Not those of sequences that have ended: no event would take them out again.
    """
    out: list[list[TokenLogprob] | None] = [None] * readers
    for report in reports:
        words: np.ndarray = jax.device_get(report.words)
        words = words.reshape(-1, words.shape[-1])
        for row, reader, top in report.readers:
            out[reader] = [controls.token_logprob(words[row], top)]
        for first, chunk in report.chunks:
            if chunk.sequence.state is State.ENDED:
                continue
            _score(words[first:], chunk, prompts)
    return out


def attach(events: list[TokenEvent], prompts: PromptLogprobs) -> list[TokenEvent]:
    """The events, the first of each request with the log probabilities of its prompt.

    Takes them out of `prompts`.
    """
    if not prompts:
        return events
    out: list[TokenEvent] = []
    for event in events:
        found = prompts.pop(event.request_id, None)
        if found is not None:
            event = dataclasses.replace(event, prompt_logprobs=tuple(found))
        out.append(event)
    return out


def _score(words: np.ndarray, chunk: Chunk, prompts: PromptLogprobs) -> None:
    request = chunk.sequence.request
    count, top = len(request.prompt_token_ids), request.params.prompt_logprobs
    assert top is not None, "the prompt is scored"
    found = prompts.setdefault(request.request_id, [None] * count)
    for row, position in enumerate(range(chunk.start, min(chunk.stop, count - 1))):
        found[position + 1] = controls.token_logprob(words[row], top)

"""An output through the parser, and all the ways to cut it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ds_jax import recipe
from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    Delta,
    Finished,
    ReasoningDelta,
)
from ds_jax.recipe.generator import ChunkGenerator
from ds_jax.recipe.inference import InferenceChunk, PromptUsage
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.stream import StreamProcessor
from tests.recipe import golden_cases

S = TypeVar("S", str, list[int])
START = ThinkingInitialStage.ReasoningStart
END = "</think>"
V4 = "<｜DSML｜{tag}"
V41 = "<｜DSML｜ {tag}"


class Recorder(ChunkGenerator):
    """Gives back what the parser says."""

    def __init__(self, thinking_mode: bool = True) -> None:
        super().__init__("id", "m", thinking_mode)

    def _start(self, prompt_usage: PromptUsage, system_fingerprint: str | None) -> list[Any]:
        return []

    def _add(self, delta: Delta) -> list[Delta]:
        return [delta]

    def _finish(self, finished: Finished) -> list[Finished]:
        return [finished]


@dataclasses.dataclass(frozen=True)
class Parsed:
    """A whole output."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finished: Finished


@functools.cache
def tokenizer() -> recipe.Tokenizer:
    """The recorded tokenizer of 514 ids."""
    return recipe.Tokenizer.from_file(str(golden_cases.GOLDEN / "tokenizer_514.json"))


def processor(*, thinking: bool = True, with_tokenizer: bool = False, **options: Any) -> Any:
    """A processor whose events are the deltas."""
    given = tokenizer() if with_tokenizer else None
    return StreamProcessor(Recorder(thinking), ParsingOptions(**options), given)


def chunk(data: Any) -> InferenceChunk:
    """Text is a chunk of one token; ids and finish reasons are themselves."""
    if isinstance(data, str):
        return InferenceChunk.text(data, 1)
    if isinstance(data, recipe.InferenceFinishReason):
        return InferenceChunk.finish(data)
    if isinstance(data, tuple):
        return InferenceChunk.tokens(*data)
    return InferenceChunk.tokens(data)


def deltas(chunks: Iterable[Any], **options: Any) -> list[Any]:
    """Everything the parser says, the end too; the backend stops normally if it gives no reason."""
    stream = processor(**options)
    made: list[Any] = []
    for data in chunks:
        if stream.finished:
            break
        made += stream.push(chunk(data))
    if not stream.finished:
        made += stream.push(InferenceChunk.finish(recipe.InferenceFinishReason.Stop))
    return made


def calls_in(made: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """The calls that deltas tell, as (name, arguments)."""
    calls: list[tuple[str, str]] = []
    for delta in made:
        if isinstance(delta, CallStart):
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.text)
    return tuple(calls)


def parse(chunks: Iterable[Any], **options: Any) -> Parsed:
    """The parsed output."""
    made = deltas(chunks, **options)
    reasoning = "".join(d.text for d in made if isinstance(d, ReasoningDelta))
    content = "".join(d.text for d in made if isinstance(d, ContentDelta))
    return Parsed(reasoning, content, calls_in(made), made[-1])


def cuts(output: S) -> Iterator[list[S]]:
    """The output whole, in single symbols, and in two parts at every place."""
    yield [output]
    yield [output[place : place + 1] for place in range(len(output))]
    for place in range(len(output) + 1):
        yield [output[:place], output[place:]]


def block(form: str, *calls: tuple[str, Sequence[tuple[str, str, str]]]) -> str:
    """A tool block: each call a name and (parameter, "true" or "false", value)."""
    name = "calls" if form == V41 else "tool_calls"
    lines = [_open(form, name) + ">"]
    for call, parameters in calls:
        lines.append(f'{_open(form, "invoke")} name="{call}">')
        for parameter, is_string, value in parameters:
            head = f'{_open(form, "parameter")} name="{parameter}" string="{is_string}">'
            lines.append(f"{head}{value}{_close(form, 'parameter')}")
        lines.append(_close(form, "invoke"))
    return "\n".join([*lines, _close(form, name)])


def _open(form: str, tag: str) -> str:
    return form.format(tag=tag)


def _close(form: str, tag: str) -> str:
    return form.format(tag=tag).replace("<", "</", 1) + ">"

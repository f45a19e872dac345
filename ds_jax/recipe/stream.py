"""Backend updates in, protocol events out.

Decides when a stream starts, ends and fails, and what usage it reports. Never spells an event: a
generator of one protocol does. In: `InferenceChunk`s. Out: the generator's events.
"""

# What generators and chunks tell this file is private to the package.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ds_jax.recipe import arguments
from ds_jax.recipe.deltas import Delta, Finished, FinishedReason, ReasoningDelta
from ds_jax.recipe.detokenize import Piece, RawLogprobs, TokenPieces
from ds_jax.recipe.generator import ChunkGenerator
from ds_jax.recipe.inference import InferenceChunk, InferenceFinishReason, PromptUsage
from ds_jax.recipe.marker_match import TEXT
from ds_jax.recipe.output_parser import OutputParser
from ds_jax.recipe.parse import ParsingOptions
from ds_jax.recipe.tokenizer import Tokenizer

__all__ = ["InferenceChunk", "InferenceFinishReason", "PromptUsage", "StreamProcessor"]


class StreamProcessor:
    """Turns backend updates into events of one protocol. Every method mutates it.

    Args:
      generator: spells the events; this stream uses it up.
      options: how the output is parsed; later changes to it have no effect.
      tokenizer: decodes token ids and counts reasoning tokens; None: only text comes.

    Raises:
      RuntimeError: the generator was used before.
      TypeError: an argument of another type.
    """

    __slots__ = (
        "_completion_tokens",
        "_counts_reasoning",
        "_generator",
        "_parser",
        "_pieces",
        "_state",
        "_tokenizer",
    )

    def __init__(
        self,
        generator: ChunkGenerator,
        options: ParsingOptions,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        if not isinstance(generator, ChunkGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("expected a protocol chunk generator")
        options = arguments.record("options", options, ParsingOptions)
        if tokenizer is not None:
            tokenizer = arguments.record("tokenizer", tokenizer, Tokenizer)
        generator._take()
        self._generator = generator
        self._tokenizer = tokenizer
        self._counts_reasoning = (
            tokenizer is not None and options.thinking_initial_stage is not None
        )
        self._parser = OutputParser(
            options,
            thinking_mode=generator._thinking_mode,
            keep_reasoning=self._counts_reasoning,
        )
        self._pieces = None if tokenizer is None else TokenPieces(tokenizer)
        self._completion_tokens = 0
        self._state: Literal["waiting", "running", "finished", "closed"] = "waiting"

    @property
    def finished(self) -> bool:
        """Whether the stream ended normally and was not closed since."""
        return self._state == "finished"

    def push(self, chunk: InferenceChunk) -> list[Any]:
        """Processes one update.

        Args:
          chunk: the update; the first one starts the stream, unless it holds only ids without
            whole characters.

        Returns:
          The events it causes; a stop string or a finish update ends the stream in the same call.

        Raises:
          RuntimeError: the stream ended or was closed before; or token ids came without a
            tokenizer, or with another number of log probabilities (these close the stream).

        Complexity: linear in the update and in what was held back.
        """
        if type(chunk) is not InferenceChunk:
            chunk = arguments.record("chunk", chunk, InferenceChunk)
        running = self._state == "running"
        if not running:
            self._check_open()
        kind = chunk._kind
        pieces: list[Piece] = []
        if kind == "tokens":
            pieces = self._decoded(chunk._value, chunk._extra)
            if not pieces:
                return []
        elif kind == "text":
            pieces = [(chunk._value, TEXT, chunk._extra, None)]
        begun = [] if running else self._begin(chunk)
        events = self._end(_REASONS[chunk._value]) if kind == "finish" else self._read(pieces)
        return [*begun, *events] if begun else events

    def finish(self) -> list[Any]:
        """Ends the input; the finish reason is "stop" if the backend gave none.

        Returns:
          The last events; none when the stream had ended.

        Raises:
          RuntimeError: the stream was closed.
        """
        if self._state == "finished":
            return []
        self._check_open()
        begun = [] if self._state == "running" else self._begin(None)
        return [*begun, *self._end("stop")]

    def close(self) -> None:
        """Ends the stream without events."""
        self._state = "closed"
        self._pieces = None

    def _check_open(self) -> None:
        if self._state in ("finished", "closed"):
            how = "has finished" if self._state == "finished" else "is closed"
            raise RuntimeError(f"stream processor {how}")

    def _begin(self, chunk: InferenceChunk | None) -> list[Any]:
        self._state = "running"
        if chunk is not None and chunk._kind == "ready":
            return self._generator._start(chunk._value, chunk._extra)
        return self._generator._start(PromptUsage(), None)

    def _decoded(self, ids: tuple[int, ...], logprobs: RawLogprobs | None) -> list[Piece]:
        if self._pieces is None:
            self.close()
            raise RuntimeError("token chunk received without a tokenizer")
        if logprobs is not None and len(logprobs) != len(ids):
            self.close()
            raise RuntimeError(
                f"invalid log probabilities: {len(logprobs)} log probabilities for "
                f"{len(ids)} token IDs"
            )
        return self._pieces.push(ids, logprobs)

    def _read(self, pieces: list[Piece]) -> list[Any]:
        """The events of the pieces up to the end of the stream."""
        events: list[Any] = []
        parser, add = self._parser, self._generator._add
        for text, kind, num_tokens, logprobs in pieces:
            self._completion_tokens += num_tokens
            make = parser.plain_delta
            if make is not None and parser.plain_search(text) is None:
                if self._counts_reasoning and make is ReasoningDelta:
                    parser.reasoning.append(text)
                events += add(make(text, logprobs))
                continue
            events += self._add(parser.feed(text, kind, logprobs))
            if parser.stop_sequence is not None:
                return [*events, *self._close_with("stop_sequence")]
        return events

    def _add(self, deltas: Iterable[Delta]) -> list[Any]:
        return [event for delta in deltas for event in self._generator._add(delta)]

    def _end(self, reason: FinishedReason) -> list[Any]:
        """Flushes what is held; a call that only the flush announces does not count as one."""
        if reason == "tool_calls" and not self._parser.has_calls:
            reason = "stop"
        return [*self._add(self._parser.finish()), *self._close_with(reason)]

    def _close_with(self, reason: FinishedReason) -> list[Any]:
        self._state = "finished"
        reasoning_tokens = None
        if self._tokenizer is not None and self._counts_reasoning:
            text = "".join(self._parser.reasoning)
            reasoning_tokens = len(self._tokenizer.encode(text))
        finished = Finished(
            reason, self._parser.stop_sequence, self._completion_tokens, reasoning_tokens
        )
        return self._generator._finish(finished)


_REASONS: dict[InferenceFinishReason, FinishedReason] = {
    InferenceFinishReason.Stop: "tool_calls",
    InferenceFinishReason.Length: "length",
    InferenceFinishReason.ContentFilter: "content_filter",
}

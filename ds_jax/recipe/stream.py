"""Backend updates in, protocol events out.

Decides when a stream starts, ends and fails, and what usage it reports. Never spells an event: a
generator of one protocol does. In: `InferenceChunk`s. Out: the generator's events.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Literal

from ds_jax.recipe.parse import ParsingOptions
from ds_jax.recipe.tokenizer import Tokenizer


class InferenceFinishReason(enum.Enum):
    """Why the backend stopped; the protocol's finish reason also depends on the output."""

    Stop = 0
    Length = 1
    ContentFilter = 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptUsage:
    """Tokens of the prompt, and those of them that were found in a cache."""

    prompt_tokens: int = 0
    prompt_cache_hit_tokens: int = 0


class InferenceChunk:
    """One update of the backend, made by `ready`, `text`, `tokens` or `finish`."""

    @staticmethod
    def ready(
        *, prompt_usage: PromptUsage | None = None, system_fingerprint: str | None = None
    ) -> InferenceChunk:
        """The backend accepted the prompt."""
        raise NotImplementedError

    @staticmethod
    def text(content: str, token_count: int = 0) -> InferenceChunk:
        """A piece of output text that stands for `token_count` tokens."""
        raise NotImplementedError

    @staticmethod
    def tokens(
        token_ids: Sequence[int],
        logprobs: Sequence[tuple[float, Sequence[tuple[int, float]]]] | None = None,
    ) -> InferenceChunk:
        """Output ids, with (log probability, [(id, log probability), ...]) for each id."""
        raise NotImplementedError

    @staticmethod
    def finish(finish_reason: InferenceFinishReason) -> InferenceChunk:
        """The backend stopped."""
        raise NotImplementedError

    @property
    def kind(self) -> Literal["ready", "text", "tokens", "finish"]:
        """Which constructor made it."""
        raise NotImplementedError


class StreamProcessor:
    """Turns backend updates into events of one protocol. Consumes its generator."""

    def __init__(
        self, generator: Any, options: ParsingOptions, tokenizer: Tokenizer | None = None
    ) -> None:
        generator._take()

    @property
    def finished(self) -> bool:
        """Whether the stream ended normally."""
        raise NotImplementedError

    def push(self, chunk: InferenceChunk) -> list[Any]:
        """Processes one update."""
        raise NotImplementedError

    def finish(self) -> list[Any]:
        """Ends the input."""
        raise NotImplementedError

    def close(self) -> None:
        """Drops the state without a normal end."""
        raise NotImplementedError

"""What a backend says about one output.

Decides which updates there are and what they may hold. Never parses. In: a backend's values. Out:
checked, immutable updates for `stream`.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

from ds_jax.recipe import arguments
from ds_jax.recipe.named_enum import NamedEnum

Kind: TypeAlias = Literal["ready", "text", "tokens", "finish"]

_MAX_ID = 2**32 - 1


class InferenceFinishReason(NamedEnum):
    """Why the backend stopped; the protocol's finish reason also depends on the output."""

    Stop = 0
    """The model ended its turn."""
    Length = 1
    """No more tokens were allowed."""
    ContentFilter = 2
    """A filter stepped in."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromptUsage:
    """Tokens of the prompt.

    Args:
      prompt_tokens: all of them.
      prompt_cache_hit_tokens: those that were found in a cache.
    """

    prompt_tokens: int = 0
    prompt_cache_hit_tokens: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            count = arguments.count(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, count)


class InferenceChunk:
    """One update of the backend; made by `ready`, `text`, `tokens` or `finish`."""

    __slots__ = ("_extra", "_kind", "_value")

    def __init__(self, kind: Kind, value: Any, extra: Any, /) -> None:
        self._kind: Kind = kind
        self._value = value
        self._extra = extra

    @staticmethod
    def ready(
        *, prompt_usage: PromptUsage | None = None, system_fingerprint: str | None = None
    ) -> InferenceChunk:
        """The backend accepted the prompt.

        Args:
          prompt_usage: tokens of the prompt; None: zeros.
          system_fingerprint: what ran, for protocols that tell it.
        """
        usage = PromptUsage() if prompt_usage is None else prompt_usage
        return InferenceChunk(
            "ready",
            arguments.record("prompt_usage", usage, PromptUsage),
            arguments.optional_text("system_fingerprint", system_fingerprint),
        )

    @staticmethod
    def text(content: str, token_count: int = 0) -> InferenceChunk:
        """Text of the output.

        Args:
          content: the text; may be empty.
          token_count: how many tokens it stands for.

        Raises:
          UnicodeEncodeError: a lone surrogate.
        """
        if type(token_count) is not int or not 0 <= token_count <= arguments.MAX_COUNT:
            token_count = arguments.count("token_count", token_count)
        return InferenceChunk("text", arguments.text("content", content), token_count)

    @staticmethod
    def tokens(
        token_ids: Sequence[int],
        logprobs: Sequence[tuple[float, Sequence[tuple[int, float]]]] | None = None,
    ) -> InferenceChunk:
        """Token ids of the output.

        Args:
          token_ids: the ids that came at once.
          logprobs: for each id its log probability and the alternatives as (id, log probability);
            their number is checked when the chunk is processed.
        """
        ids = tuple(_list("token_ids", token_ids))
        for value in ids:
            if type(value) is not int or not 0 <= value <= _MAX_ID:
                ids = tuple(arguments.count("token_ids", each, _MAX_ID) for each in ids)
                break
        if logprobs is None:
            return InferenceChunk("tokens", ids, None)
        return InferenceChunk("tokens", ids, tuple(map(_entry, _list("logprobs", logprobs))))

    @staticmethod
    def finish(finish_reason: InferenceFinishReason) -> InferenceChunk:
        """The backend stopped for this reason."""
        reason = arguments.record("finish_reason", finish_reason, InferenceFinishReason)
        return InferenceChunk("finish", reason, None)

    @property
    def kind(self) -> Kind:
        """Name of the constructor that made this update."""
        return self._kind

    @property
    def content(self) -> str | None:
        """The text of a text update."""
        return self._value if self._kind == "text" else None

    @property
    def token_count(self) -> int | None:
        """The tokens a text update stands for."""
        return self._extra if self._kind == "text" else None

    @property
    def token_ids(self) -> list[int] | None:
        """The ids of a tokens update."""
        return list(self._value) if self._kind == "tokens" else None

    @property
    def finish_reason(self) -> InferenceFinishReason | None:
        """The reason of a finish update."""
        return self._value if self._kind == "finish" else None

    @property
    def prompt_usage(self) -> PromptUsage | None:
        """The prompt's tokens in a ready update."""
        return self._value if self._kind == "ready" else None

    @property
    def system_fingerprint(self) -> str | None:
        """The fingerprint in a ready update."""
        return self._extra if self._kind == "ready" else None


def _list(name: str, value: Any) -> Sequence[Any]:
    if type(value) is list:  # much faster than the general check
        return cast("list[Any]", value)
    if isinstance(value, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(value, Sequence):
        raise arguments.wrong_type(name, value, "Sequence")
    return cast("Sequence[Any]", value)


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple):
        raise arguments.wrong_type("logprobs", value, "tuple")
    pair = cast("tuple[Any, ...]", value)
    if len(pair) != 2:
        raise ValueError(f"expected tuple of length 2, but got tuple of length {len(pair)}")
    return pair


def _number(value: Any) -> float:
    try:
        return float(operator.index(value)) if not isinstance(value, float) else float(value)
    except TypeError:
        if hasattr(value, "__float__"):
            return float(value)
        raise TypeError(
            f"argument 'logprobs': must be real number, not {type(value).__name__}"
        ) from None


def _entry(value: Any) -> tuple[float, tuple[tuple[int, float], ...]]:
    logprob, alternatives = _pair(value)
    top: list[tuple[int, float]] = []
    for alternative in _list("logprobs", alternatives):
        token_id, other = _pair(alternative)
        top.append((arguments.count("logprobs", token_id, _MAX_ID), _number(other)))
    return _number(logprob), tuple(top)

"""What the three chunk generators have in common.

Decides how a generator and an event are used up, and which arguments every protocol takes. Never
makes an event. In: nothing. Out: the base class of the generators, and the errors of a second use.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any

from ds_jax.recipe import arguments

if TYPE_CHECKING:
    from ds_jax.recipe.deltas import Delta, Finished
    from ds_jax.recipe.stream import PromptUsage


class ChunkGenerator(abc.ABC):
    """Turns what the parser says into events of one protocol. One stream uses it up.

    Args:
      id: id of the response.
      model: name of the model that answers.
      thinking_mode: whether the model was asked to think.

    Raises:
      TypeError: an argument of another type.
    """

    __slots__ = ("_consumed", "_id", "_model", "_thinking_mode")

    def __init__(self, id: str, model: str, thinking_mode: bool) -> None:
        self._consumed = False
        self._id = arguments.text("id", id)
        self._model = arguments.text("model", model)
        self._thinking_mode = arguments.flag("thinking_mode", thinking_mode)

    def _take(self) -> None:
        """Marks the generator as used up.

        Raises:
          RuntimeError: it already was.
        """
        if self._consumed:
            raise RuntimeError("chunk generator has been consumed")
        self._consumed = True

    @abc.abstractmethod
    def _start(self, prompt_usage: PromptUsage, system_fingerprint: str | None) -> list[Any]:
        """The events that open the stream."""

    @abc.abstractmethod
    def _add(self, delta: Delta) -> list[Any]:
        """The events of one delta."""

    @abc.abstractmethod
    def _finish(self, finished: Finished) -> list[Any]:
        """The events that end the stream."""


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """What a response is built with before its first event; the same in every protocol."""

    id: str
    model: str
    created: int
    prompt_tokens: int
    prompt_cache_hit_tokens: int

    def __post_init__(self) -> None:
        """Refuses other types than declared, and numbers outside 64 bits."""
        for name in ("id", "model"):
            object.__setattr__(self, name, arguments.text(name, getattr(self, name)))
        for name in ("created", "prompt_tokens", "prompt_cache_hit_tokens"):
            object.__setattr__(self, name, arguments.count(name, getattr(self, name)))


def consumed() -> RuntimeError:
    """The error of an event that was accumulated before."""
    return RuntimeError("protocol chunk has been consumed")


def expect(chunk: object, kind: type) -> None:
    """Refuses an event of another protocol.

    Raises:
      TypeError: `chunk` is not a `kind`.
    """
    if not isinstance(chunk, kind):
        raise arguments.wrong_type("chunk", chunk, kind.__name__)

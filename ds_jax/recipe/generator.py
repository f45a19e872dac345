"""What the three chunk generators have in common.

Decides how a generator and an event are used up. Never makes an event. In: nothing. Out: the base
class of the generators, and the errors of a second use.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_jax.recipe.deltas import Delta, Finished
    from ds_jax.recipe.stream import PromptUsage


class ChunkGenerator(abc.ABC):
    """Turns what the parser says into events of one protocol. One stream uses it up.

    Args:
      thinking_mode: whether the model was asked to think.
    """

    __slots__ = ("_consumed", "_thinking_mode")

    def __init__(self, thinking_mode: bool) -> None:
        self._consumed = False
        self._thinking_mode = thinking_mode

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


def consumed() -> RuntimeError:
    """The error of an event that was accumulated before."""
    return RuntimeError("protocol chunk has been consumed")


def expect(chunk: object, kind: type) -> None:
    """Refuses an event of another protocol.

    Raises:
      TypeError: `chunk` is not a `kind`.
    """
    if not isinstance(chunk, kind):
        raise TypeError(
            f"argument 'chunk': '{type(chunk).__name__}' object cannot be cast as '{kind.__name__}'"
        )

"""Stop strings, found in text as it grows.

Decides which tokens can be shown and where text and ids end. Never decodes by itself, never knows
why a sequence should end otherwise. In: token ids and a detokenizer. Out: pieces of text with their
tokens.

A token is held back while its text can still become a part of a stop string, and while it has no
text yet (a part of a character). The string that is complete first wins; of two that are complete
at the same character, the longer one. The token in which the shown text ends is the last one: ids,
log probabilities and text end together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

from ds_jax.records import TokenLogprob


class Detokenizer(Protocol):
    """Text of a growing sequence of ids; never a part of a character."""

    def push(self, token_ids: Iterable[int], /) -> str:
        """The text that these ids complete."""
        ...

    def finish(self) -> str:
        """What is left."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A token that may be shown, with its part of the text; `token_id` None: text alone."""

    token_id: int | None
    text: str | None
    logprob: TokenLogprob | None = None
    draft: float | None = None


class StopMatcher:
    """Holds back what may still be a stop string. Methods mutate it.

    Args:
      stops: strings of at least one character.
      detokenizer: a new one; the matcher feeds it.
    """

    __slots__ = ("_detokenizer", "_held", "_stops", "_text", "matched")

    def __init__(self, stops: Sequence[str], detokenizer: Detokenizer):
        assert all(stops), "a stop string must not be empty"
        self.matched: str | None = None  # the stop string that was found
        self._stops = tuple(stops)
        self._detokenizer = detokenizer
        self._held: list[Piece] = []
        self._text = ""  # of the held tokens

    def push(
        self, token_id: int, logprob: TokenLogprob | None = None, draft: float | None = None
    ) -> list[Piece]:
        """Adds a token; returns the tokens that may be shown now. Not to be called after a match.

        Complexity: the held text, which is shorter than the longest stop string and a token.
        """
        assert self.matched is None, "the sequence has ended"
        text = self._detokenizer.push((token_id,))
        self._held.append(Piece(token_id, text, logprob, draft))
        self._text += text
        found = [(start + len(s), start, s) for s in self._stops if (start := self._find(s)) >= 0]
        if found:
            _, start, self.matched = min(found)
            return self._cut(start)
        return self._release(len(self._text) - self._possible())

    def finish(self) -> list[Piece]:
        """Everything held, when the sequence ends for another reason."""
        pieces, self._held, self._text = self._held, [], ""
        rest = self._detokenizer.finish()
        return [*pieces, Piece(None, rest)] if rest else pieces

    def _find(self, stop: str) -> int:
        return self._text.find(stop)

    def _possible(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        text, best = self._text, 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(text)), best, -1):
                if text.endswith(stop[:length]):
                    best = length
                    break
        return best

    def _release(self, sure: int) -> list[Piece]:
        """Takes out the tokens whose text lies in the first `sure` characters."""
        end = count = shown = 0
        for number, piece in enumerate(self._held, 1):
            end += len(piece.text or "")
            if end > sure:
                break
            if piece.text:
                count, shown = number, end
        pieces, self._held, self._text = self._held[:count], self._held[count:], self._text[shown:]
        return pieces

    def _cut(self, sure: int) -> list[Piece]:
        """Takes out the tokens that begin in the first `sure` characters, and drops the rest."""
        pieces: list[Piece] = []
        start = 0
        for piece in self._held:
            if start >= sure:
                break
            text = piece.text or ""
            cut = text[: sure - start]
            pieces.append(Piece(piece.token_id, cut, piece.logprob, piece.draft))
            start += len(text)
        self._held, self._text = [], ""
        return pieces

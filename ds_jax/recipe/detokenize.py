"""Token ids to pieces of text.

Decides which ids make one piece: a control token alone, and the ordinary ids between two of them
or up to the end of a chunk, unless the last character is still incomplete. Ids without any text
belong to the piece after them. Never looks for markers. In: chunks of ids, with or without log
probabilities. Out: pieces.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TypeAlias

from ds_jax.recipe.deltas import TokenLogprob
from ds_jax.recipe.marker_match import CONTROL, TOKEN
from ds_jax.recipe.tokenizer import Tokenizer

RawLogprobs: TypeAlias = Sequence[tuple[float, Sequence[tuple[int, float]]]]
"""For each id its log probability and (id, log probability) of the alternatives."""

_REPLACEMENT = "\ufffd"


Piece: TypeAlias = tuple[str, int, int, tuple[TokenLogprob, ...] | None]
"""Text that came at once, `marker_match.CONTROL` or `TOKEN`, number of ids, log probabilities."""


class TokenPieces:
    """Cuts a growing sequence of ids into pieces. Every method mutates it.

    Args:
      tokenizer: a byte-level BPE.
    """

    __slots__ = (
        "_control",
        "_decoder",
        "_held",
        "_last",
        "_logprobs",
        "_num_held",
        "_tokenizer",
        "_whole",
    )

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = tokenizer.control_ids
        self._whole: dict[int, str] = {}
        """Text of ordinary ids met before that are whole characters."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._clear()

    def push(self, ids: Sequence[int], logprobs: RawLogprobs | None) -> list[Piece]:
        """The pieces that are complete after these ids.

        Args:
          ids: the ids of one chunk; ids outside the vocabulary have no text.
          logprobs: one entry for each id, or None.

        Complexity: linear in the ids; held ids are never decoded twice.
        """
        if logprobs is None and not self._num_held and len(ids) == 1:
            text = self._whole.get(ids[0])
            if text is not None:
                return [(text, TOKEN, 1, None)]
        pieces: list[Piece] = []
        for index, token_id in enumerate(ids):
            entry = None if logprobs is None else self._entry(token_id, *logprobs[index])
            if token_id in self._control:
                text = "".join(self._held) + self._decoder.decode(b"", final=True)
                if text:
                    pieces.append(self._take(text, TOKEN))
                self._hold("", entry)
                text = self._bytes_of(token_id).decode("utf-8", errors="replace")
                pieces.append(self._take(text, CONTROL))
            else:
                self._hold(self._text(token_id), entry)
        incomplete, _ = self._decoder.getstate()
        if self._last and not incomplete and not self._last.endswith(_REPLACEMENT):
            pieces.append(self._take("".join(self._held), TOKEN))
        return pieces

    def _bytes_of(self, token_id: int) -> bytes:
        """The bytes of an id, none for an id outside the vocabulary."""
        try:
            return self._tokenizer.token_bytes(token_id)
        except ValueError:
            return b""

    def _text(self, token_id: int) -> str:
        """What an ordinary id adds to the run's text."""
        data = self._bytes_of(token_id)
        if token_id not in self._whole:
            text = data.decode("utf-8", errors="replace")
            if text and not text.endswith(_REPLACEMENT) and text.encode() == data:
                self._whole[token_id] = text
        return self._decoder.decode(data)

    def _hold(self, text: str, entry: TokenLogprob | None) -> None:
        self._held.append(text)
        self._last = text or self._last
        self._num_held += 1
        if entry is None:
            self._logprobs = None
        elif self._logprobs is not None:
            self._logprobs.append(entry)

    def _take(self, text: str, kind: int) -> Piece:
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        piece = (text, kind, self._num_held, logprobs)
        self._clear()
        return piece

    def _clear(self) -> None:
        self._held: list[str] = []
        self._last = ""
        self._num_held = 0
        self._logprobs: list[TokenLogprob] | None = []

    def _entry(
        self, token_id: int, logprob: float, alternatives: Sequence[tuple[int, float]]
    ) -> TokenLogprob:
        top = tuple(self._token(other, value, ()) for other, value in alternatives)
        return self._token(token_id, logprob, top)

    def _token(self, token_id: int, logprob: float, top: tuple[TokenLogprob, ...]) -> TokenLogprob:
        data = self._bytes_of(token_id)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = "".join(f"\\x{byte:02x}" for byte in data)
        return TokenLogprob(text, logprob, tuple(data), top)

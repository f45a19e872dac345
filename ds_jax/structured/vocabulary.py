"""What a grammar must know of a tokenizer.

Decides which ids are text and which are control tokens: every added token is a control token, so it
never stands for its own spelling inside a string, and text that spells one is made of ordinary
tokens. Never reads files. In: a tokenizer. Out: a `Vocabulary`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Protocol

from ds_jax.structured import backend

BITS = 32
"""Tokens of one mask word."""


class TextTokenizer(Protocol):
    """The part of `recipe.tokenizer.Tokenizer` that grammars use."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, control tokens included."""
        ...

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a turn."""
        ...

    @property
    def control_ids(self) -> Collection[int]:
        """Ids of the added vocabulary."""
        ...

    def find_control(self, token: str) -> int | None:
        """Id of a control string, or None."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id."""
        ...

    def encode_text(self, text: str) -> Sequence[int]:
        """Ids of text in which control strings are ordinary text."""
        ...


class ByteTokenizer:
    """One id a byte, then the control tokens: enough to check whole texts without a model."""

    controls = ("<｜end▁of▁sentence｜>", "<think>", "</think>", "｜DSML｜")

    @property
    def vocab_size(self) -> int:
        """256 bytes and the control tokens."""
        return 256 + len(self.controls)

    @property
    def eos_id(self) -> int:
        """The first control token."""
        return 256

    @property
    def control_ids(self) -> range:
        """Ids behind the bytes."""
        return range(256, self.vocab_size)

    def find_control(self, token: str) -> int | None:
        """Id of a control string, or None."""
        return 256 + self.controls.index(token) if token in self.controls else None

    def token_bytes(self, token_id: int) -> bytes:
        """The byte, or the spelling of a control token."""
        if token_id < 256:
            return bytes([token_id])
        return self.controls[token_id - 256].encode()

    def encode_text(self, text: str) -> list[int]:
        """The UTF-8 bytes."""
        return list(text.encode())


class Vocabulary:
    """A tokenizer prepared for grammars; preparing the released one takes 1 to 2 seconds.

    Args:
      tokenizer: where ids and bytes come from.
      size: ids the model has; those behind the tokenizer's are never allowed.

    Attributes:
      words: int32 words of a mask row.
    """

    def __init__(self, tokenizer: TextTokenizer, size: int | None = None):
        count = tokenizer.vocab_size
        self.tokenizer = tokenizer
        self.size = max(count, size or 0)
        self.words = -(-self.size // BITS)
        self.eos_id = tokenizer.eos_id
        self._controls = frozenset(tokenizer.control_ids)
        # A first byte 0xFF, which no UTF-8 text has, marks what is not text.
        texts = [
            b"\xff" * (index in self._controls) + tokenizer.token_bytes(index)
            for index in range(count)
        ]
        texts += [b"\xff<unused %d>" % index for index in range(count, self.size)]
        special = sorted(self._controls | set(range(count, self.size)))
        self.handle = backend.make_tokenizer(texts, special, self.eos_id, tokenizer.encode_text)

    def is_id(self, token_id: int) -> bool:
        """Whether the model has such a token."""
        return 0 <= token_id < self.size

    def encode(self, text: str, controls: Sequence[str] = ()) -> list[int]:
        """Ids of text; the named control strings become control tokens.

        Raises:
          UnicodeEncodeError: a lone surrogate.
        """
        text.encode()
        if not controls:
            return list(self.tokenizer.encode_text(text))
        before, control, after = text.partition(controls[0])
        ids = self.encode(before, controls[1:])
        while control:
            token_id = self.tokenizer.find_control(controls[0])
            assert token_id is not None, "a grammar names only control tokens that exist"
            before, control, after = after.partition(controls[0])
            ids += [token_id, *self.encode(before, controls[1:])]
        return ids


def prepared(tokenizer: TextTokenizer | Vocabulary | None, size: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer, prepared once; None: bytes."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    if tokenizer is None:
        return _bytes()
    return _of(tokenizer, size)


@functools.lru_cache(maxsize=1)
def _bytes() -> Vocabulary:
    return Vocabulary(ByteTokenizer())


@functools.lru_cache(maxsize=4)
def _of(tokenizer: TextTokenizer, size: int | None) -> Vocabulary:
    return Vocabulary(tokenizer, size)

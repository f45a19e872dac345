"""Text and token ids.

Decides how prompt segments become ids: a control token is its id in the added vocabulary, a stretch
of text is encoded on its own without any added token, so text never becomes a control token. Never
renders and never downloads. In: a tokenizer JSON (byte-level BPE), segments, ids. Out: ids, text.
"""

from __future__ import annotations

import codecs
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any, NoReturn

import tokenizers

from ds_jax import errors
from ds_jax.recipe import arguments
from ds_jax.recipe.prompt import PromptSegment
from ds_jax.recipe.special_tokens import SpecialTokens

_ALONE_CHARACTERS = 4096
"""Below this the calling thread encodes: on a busy machine, waking the threads of a batch takes
longer than the work. Above, a batch is faster even for one text, as it finds no offsets."""


class TokenizerError(errors.ConfigError, RuntimeError):
    """A tokenizer that cannot be read, or that lacks a control token."""


class Tokenizer:
    """A byte-level BPE with an added vocabulary of control tokens.

    Args:
      tokenizer_json: the file's text.
      special_tokens: spellings of the control tokens; default: the V4.1 ones.
      source: name used in error messages.

    Raises:
      TokenizerError: the text is no tokenizer.
    """

    def __init__(
        self,
        tokenizer_json: str,
        special_tokens: SpecialTokens | None = None,
        source: str = "tokenizer JSON",
    ):
        try:
            data = json.loads(tokenizer_json)
            plain: dict[str, Any] = {**data, "added_tokens": [], "post_processor": None}
            full = {**data, "post_processor": None}
            self._full = tokenizers.Tokenizer.from_str(json.dumps(full))
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(plain))
            # The ids in use: a file whose added ids leave a gap is renumbered when it is read.
            decoder = self._full.get_added_tokens_decoder()
            added = {token.content: index for index, token in decoder.items()}
        except Exception as error:  # the Rust parser raises bare Exception
            raise TokenizerError(
                f"{source}: not a tokenizer.json ({error}); give a byte-level BPE file written by "
                "the `tokenizers` library"
            ) from error
        self._source = source
        self._added = added
        self._added_bytes = {index: text.encode() for text, index in added.items()}
        self._bytes_of: dict[int, bytes] = dict(self._added_bytes)
        self._size = max(self._full.get_vocab_size(), max(added.values(), default=-1) + 1)
        self.special_tokens = special_tokens or SpecialTokens()

    @classmethod
    def from_str(cls, text: str, special_tokens: SpecialTokens | None = None) -> Tokenizer:
        """Makes a tokenizer from the text of a tokenizer.json.

        Raises:
          TokenizerError: the text is no tokenizer.
        """
        return cls(arguments.text("text", text), special_tokens)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], special_tokens: SpecialTokens | None = None
    ) -> Tokenizer:
        """Reads a tokenizer.json.

        Raises:
          TokenizerError: there is no such file, or it is no tokenizer.
        """
        if not isinstance(path, os.PathLike):
            path = arguments.text("path", path)
        path = pathlib.Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TokenizerError(
                f"{path}: cannot read the tokenizer ({reason}); give the path of a tokenizer.json"
            ) from error
        return cls(text, special_tokens, str(path))

    @staticmethod
    def from_pretrained(
        identifier: str, revision: str | None = None, token: str | None = None
    ) -> NoReturn:
        """Refuses: nothing is downloaded here.

        Raises:
          TokenizerError: always; it says how to get the file.
        """
        arguments.text("identifier", identifier)
        arguments.optional_text("revision", revision)
        arguments.optional_text("token", token)
        raise TokenizerError(
            f"{identifier}: nothing is downloaded; fetch tokenizer.json yourself (for example "
            "with huggingface_hub.hf_hub_download) and give its path to Tokenizer.from_file"
        )

    @property
    def vocab_size(self) -> int:
        """Number of ids, control tokens included."""
        return self._size

    @property
    def bos_id(self) -> int:
        """Id of the token that starts a prompt."""
        return self.control_id(self.special_tokens.bos)

    @property
    def eos_id(self) -> int:
        """Id of the token that ends a turn."""
        return self.control_id(self.special_tokens.eos)

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids of the whole added vocabulary."""
        return frozenset(self._added_bytes)

    def control_id(self, token: str) -> int:
        """Id of a control string in the added vocabulary.

        Raises:
          TokenizerError: the tokenizer has no such control token.
        """
        try:
            return self._added[token]
        except KeyError:
            known = ", ".join(list(self._added)[:8])
            raise TokenizerError(
                f'special token "{token}" is not in the added vocabulary of {self._source}; it '
                f"has {len(self._added)} added tokens ({known}, ...); use a tokenizer for V4.1 "
                "prompts or give other spellings"
            ) from None

    def find_control(self, token: str) -> int | None:
        """Id of a control string in the added vocabulary, or None."""
        return self._added.get(token)

    def encode(self, text: str) -> list[int]:
        """Encodes text in which control strings become control tokens.

        For trusted text only; prompts are encoded by `encode_segments`.
        """
        return _encoded(self._full, [arguments.text("text", text)])[0]

    def encode_text(self, text: str) -> list[int]:
        """Encodes text in which control strings are ordinary text."""
        return _encoded(self._plain, [text])[0]

    def encode_segments(self, segments: Iterable[PromptSegment]) -> list[int]:
        """Encodes a prompt; each text segment stands alone, no merge crosses a control token.

        Raises:
          TokenizerError: a control token is not in the added vocabulary.
        """
        segments = tuple(segments)
        control_ids = {text: self.control_id(text) for text, special in segments if special}
        # Markup repeats the same few texts: each is encoded once.
        texts = list({text: None for text, special in segments if not special})
        ids_of = dict(zip(texts, _encoded(self._plain, texts), strict=True))
        ids: list[int] = []
        for text, special in segments:
            if special:
                ids.append(control_ids[text])
            else:
                ids += ids_of[text]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for; they may be a part of a character."""
        if token_id not in self._bytes_of:
            token = self._plain.id_to_token(token_id)
            if token is None:
                raise ValueError(
                    f"token id {token_id} is not in the vocabulary of {self._source}; "
                    f"allowed: 0 to {self._size - 1}"
                )
            self._bytes_of[token_id] = _from_byte_alphabet(token)
        return self._bytes_of[token_id]

    def decode(self, token_ids: Iterable[int], *, skip_control: bool = False) -> str:
        """Text of the ids; broken UTF-8 becomes U+FFFD."""
        return b"".join(
            self.token_bytes(token_id)
            for token_id in token_ids
            if not (skip_control and token_id in self._added_bytes)
        ).decode("utf-8", errors="replace")

    def detokenizer(self, *, skip_control: bool = False) -> Detokenizer:
        """A new incremental decoder."""
        return Detokenizer(self, skip_control=skip_control)


class Detokenizer:
    """Text of a growing sequence of ids; never emits a part of a character. Mutates itself."""

    def __init__(self, tokenizer: Tokenizer, *, skip_control: bool = False):
        self._tokenizer = tokenizer
        self._skipped: frozenset[int] = tokenizer.control_ids if skip_control else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that is complete after these ids."""
        data = b"".join(
            self._tokenizer.token_bytes(token_id)
            for token_id in token_ids
            if token_id not in self._skipped
        )
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left; an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


def _encoded(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of each text."""
    if sum(map(len, texts)) < _ALONE_CHARACTERS:
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    stand_ins = {chr(byte): byte for byte in printable}
    return stand_ins | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _from_byte_alphabet(token: str) -> bytes:
    """A token with a character outside the alphabet stands for its own text."""
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()

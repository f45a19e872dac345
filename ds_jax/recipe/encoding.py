"""A conversation as a prompt or as token ids, for one model version.

Decides which renderer, spellings and tokenizer belong together. Never changes a conversation. In: a
`Conversation`. Out: a `RenderedPrompt` or token ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, TypeVar

from ds_jax.recipe import arguments, render, render_v4
from ds_jax.recipe.conversation import Conversation
from ds_jax.recipe.prompt import RenderedPrompt
from ds_jax.recipe.quoting import quoted
from ds_jax.recipe.special_tokens import SpecialTokens
from ds_jax.recipe.tokenizer import Tokenizer

E = TypeVar("E", bound="_Encoding")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class _Encoding:
    """What the encodings of all versions have in common; immutable."""

    _tokenizer: Tokenizer | None
    _special_tokens: SpecialTokens
    _render: ClassVar[Callable[[Conversation, SpecialTokens], RenderedPrompt]]

    def __init__(self) -> None:
        object.__setattr__(self, "_tokenizer", None)
        object.__setattr__(self, "_special_tokens", SpecialTokens())

    def with_tokenizer(self: E, tokenizer: Tokenizer) -> E:
        """The same encoding with another tokenizer.

        Args:
          tokenizer: names every control token of the prompts to encode.

        Returns:
          A new encoding.
        """
        arguments.record("tokenizer", tokenizer, Tokenizer)
        return self._with(tokenizer, self._special_tokens)

    def with_special_tokens(self: E, special_tokens: SpecialTokens) -> E:
        """The same encoding with other spellings of the control tokens.

        Args:
          special_tokens: every spelling.

        Returns:
          A new encoding.
        """
        arguments.record("special_tokens", special_tokens, SpecialTokens)
        return self._with(self._tokenizer, special_tokens)

    def render_conversation(self, conversation: Conversation) -> RenderedPrompt:
        """The prompt up to the point where the model continues.

        Args:
          conversation: messages, tools and answer format, in any order.

        Returns:
          The prompt, its control tokens marked, and its images.
        """
        arguments.record("conversation", conversation, Conversation)
        return type(self)._render(conversation, self._special_tokens)

    def encode(self, conversation: Conversation) -> list[int]:
        """The prompt as token ids; text between control tokens never becomes a control token.

        Args:
          conversation: messages, tools and answer format, in any order.

        Returns:
          Token ids.

        Raises:
          RuntimeError: no tokenizer is attached, or it lacks a control token of the prompt.
        """
        arguments.record("conversation", conversation, Conversation)
        if self._tokenizer is None:
            raise RuntimeError("no tokenizer is attached to the encoding")
        segments = self.render_conversation(conversation).segments
        for segment in segments:
            if segment.special and self._tokenizer.find_control(segment.text) is None:
                raise RuntimeError(
                    f"failed to encode conversation: special token {quoted(segment.text)} "
                    "is not in the added vocabulary"
                )
        return self._tokenizer.encode_segments(segments)

    def _with(self: E, tokenizer: Tokenizer | None, special_tokens: SpecialTokens) -> E:
        encoding = type(self)()
        object.__setattr__(encoding, "_tokenizer", tokenizer)
        object.__setattr__(encoding, "_special_tokens", special_tokens)
        return encoding


class DeepseekV4Encoding(_Encoding):
    """Prompts of DeepSeek V4."""

    __slots__ = ()
    _render = staticmethod(render_v4.render)


class DeepseekV41Encoding(_Encoding):
    """Prompts of DeepSeek V4.1."""

    __slots__ = ()
    _render = staticmethod(render.render)

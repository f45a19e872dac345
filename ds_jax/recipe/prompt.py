"""A rendered prompt: text with marked control tokens.

Decides how control tokens are kept apart from text, so that no text can ever become a control
token, and remembers where every piece came from. Never decides what a prompt says. In: pieces in
order. Out: `RenderedPrompt`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ds_jax.recipe import message as messages
from ds_jax.recipe import spatial
from ds_jax.recipe.image_source import ImageSource

Place: TypeAlias = tuple[str | None, str, int | None, int | None]
"""Role of the turn, part of it, index of the message, index of an item inside the part."""


PromptPiece: TypeAlias = tuple[str, bool, Place]
"""Text that came from one place, or one control token (True)."""


class PromptSegment(NamedTuple):
    """Either one control token (`special`) or a stretch of plain text."""

    text: str
    special: bool


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class RenderedPrompt:
    """A prompt and the images that belong to it.

    Args:
      pieces: the prompt in order; none is empty.
      sources: image sources in rendered order, those without a place included.
    """

    pieces: tuple[PromptPiece, ...]
    sources: tuple[ImageSource, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt as one string."""
        return "".join([text for text, _, _ in self.pieces])

    @property
    def special_ranges(self) -> list[tuple[int, int]]:
        """[start, end) of every control token in `prompt`, in code points, ascending."""
        ranges: list[tuple[int, int]] = []
        start = 0
        for text, special, _ in self.pieces:
            end = start + len(text)
            if special:
                ranges.append((start, end))
            start = end
        return ranges

    @property
    def image_sources(self) -> list[ImageSource]:
        """The images in rendered order, as a new list."""
        return list(self.sources)

    @property
    def segments(self) -> tuple[PromptSegment, ...]:
        """Control tokens and the text between them; no two stretches of text touch."""
        segments: list[PromptSegment] = []
        texts: list[str] = []
        for text, special, _ in self.pieces:
            if not special:
                texts.append(text)
                continue
            if texts:
                segments.append(PromptSegment("".join(texts), False))
                texts.clear()
            segments.append(PromptSegment(text, True))
        if texts:
            segments.append(PromptSegment("".join(texts), False))
        return tuple(segments)

    def __repr__(self) -> str:
        length = sum(len(text) for text, _, _ in self.pieces)
        return f"RenderedPrompt(prompt=<{length} characters>, image_sources={len(self.sources)})"


class PromptBuilder:
    """Collects a prompt piece by piece. Mutates itself."""

    def __init__(self) -> None:
        self._pieces: list[PromptPiece] = []
        self._add = self._pieces.append
        self._sources: list[ImageSource] = []
        self._place: Place = (None, "template", None, None)

    def at(
        self, role: str | None, part: str, message: int | None = None, item: int | None = None
    ) -> PromptBuilder:
        """Says where the following pieces come from."""
        self._place = (role, part, message, item)
        return self

    def text(self, text: str) -> PromptBuilder:
        """Adds plain text."""
        if text:
            self._add((text, False, self._place))
        return self

    def special(self, token: str) -> PromptBuilder:
        """Adds one control token; an empty spelling adds nothing."""
        if token:
            self._add((token, True, self._place))
        return self

    def content(self, message: messages.Message) -> PromptBuilder:
        """Adds a message's text, its images as control tokens, and keeps its sources."""
        sources = message.image_sources
        if not sources:
            return self.text(message.content)
        first, *rest = message.parts
        place = role, _, index, _ = self._place
        self.text(first)
        for number, part in enumerate(rest):
            self.at(role, "image_sources", index, number).special(message.image_token)
            self._place = place
            self.text(part)
        self._sources.extend(sources)
        return self

    def joined(self, token: str, texts: Sequence[str]) -> PromptBuilder:
        """Adds plain texts with one control token between each two of them."""
        place, add = self._place, self._add
        self.text(texts[0])
        for text in texts[1:]:
            if token:
                add((token, True, place))
            if text:
                add((text, False, place))
        return self

    def assistant_text(self, text: str, marks: spatial.Marks) -> PromptBuilder:
        """Adds what the assistant wrote, marks of places in images as control tokens."""
        if not marks.may_occur(text):
            return self.text(text)
        for number, part in enumerate(marks.cut(text)):
            _ = self.special(part) if number % 2 else self.text(part)
        return self

    def build(self) -> RenderedPrompt:
        """The prompt so far."""
        return RenderedPrompt(tuple(self._pieces), tuple(self._sources))

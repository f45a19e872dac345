"""A rendered prompt: text with marked control tokens.

Decides how control tokens are kept apart from text, so that no text can ever become a control
token. Never decides what a prompt says. In: pieces in order. Out: `RenderedPrompt`.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe import conversation as conv


@dataclasses.dataclass(frozen=True)
class PromptSegment:
    """Either one control token (`special`) or a stretch of plain text."""

    text: str
    special: bool


@dataclasses.dataclass(frozen=True)
class RenderedPrompt:
    """Segments in order; no two plain segments touch."""

    segments: tuple[PromptSegment, ...]
    image_sources: tuple[conv.ImageSource, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt as one string."""
        return "".join(segment.text for segment in self.segments)

    @property
    def special_ranges(self) -> list[tuple[int, int]]:
        """[start, end) of every control token in `prompt`, in code points."""
        ranges: list[tuple[int, int]] = []
        start = 0
        for segment in self.segments:
            end = start + len(segment.text)
            if segment.special:
                ranges.append((start, end))
            start = end
        return ranges


class PromptBuilder:
    """Collects a prompt piece by piece. Mutates itself."""

    def __init__(self) -> None:
        self._segments: list[PromptSegment] = []
        self._text: list[str] = []
        self._image_sources: list[conv.ImageSource] = []

    def text(self, text: str) -> PromptBuilder:
        """Adds plain text."""
        self._text.append(text)
        return self

    def special(self, token: str) -> PromptBuilder:
        """Adds one control token."""
        self._flush()
        self._segments.append(PromptSegment(token, True))
        return self

    def content(
        self, text: str, sources: tuple[conv.ImageSource, ...], placeholder: str, image: str
    ) -> PromptBuilder:
        """Adds a message's text; its first `len(sources)` placeholders become image tokens."""
        *before, rest = text.split(placeholder, len(sources)) if sources else [text]
        for part in before:
            self.text(part).special(image)
        self._image_sources.extend(sources)
        return self.text(rest)

    def build(self) -> RenderedPrompt:
        """The prompt so far."""
        self._flush()
        return RenderedPrompt(tuple(self._segments), tuple(self._image_sources))

    def _flush(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._segments.append(PromptSegment(text, False))

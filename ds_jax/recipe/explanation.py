"""Where every part of a prompt came from.

Decides how places are named for people: a role, a kind of part, and a path into the conversation.
Never renders. In: a `RenderedPrompt`. Out: its segments with their origin, for a web view or a
notebook.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from ds_jax.recipe import arguments
from ds_jax.recipe.prompt import Place, RenderedPrompt

PARTS = {
    "template": "the token that starts every prompt",
    "effort": "how thorough the reasoning shall be",
    "turn": "says who speaks, separates and wraps messages, and ends answers",
    "content": "the text of a message",
    "image_sources": "the place of an image",
    "reasoning_content": "what the assistant thought, and the tokens around it",
    "tool_calls": "calls the assistant made",
    "tool_instructions": "how to call tools",
    "tools": "the schema of a tool",
    "response_format": "the format the answer must have",
    "next_turn": "the beginning of the answer to be generated",
}
"""What each kind of part is, for legends."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainedSegment:
    """A stretch of a prompt that came from one place, or one control token.

    Attributes:
      text: the characters, `prompt[start:end]`.
      special: whether it is a control token.
      start: first code point in the prompt.
      end: code point after the last.
      role: whose turn it belongs to; None for the token that starts the prompt.
      part: one of `PARTS`.
      message: index of the message in the conversation, None if no message is the origin.
      item: index of the tool, call or image inside the part, or None.
    """

    text: str
    special: bool
    start: int
    end: int
    role: str | None
    part: str
    message: int | None
    item: int | None

    @property
    def origin(self) -> str:
        """The place as a path: `messages[2].tool_calls[0]`, `tools[1]`, `effort`, `template`."""
        item = "" if self.item is None else f"[{self.item}]"
        if self.message is None:
            return self.part + item
        if self.part == "turn":
            return f"messages[{self.message}]"
        return f"messages[{self.message}].{self.part}{item}"


def explain(prompt: RenderedPrompt) -> list[ExplainedSegment]:
    """The segments of a prompt with their origin.

    Args:
      prompt: what an encoding rendered.

    Returns:
      Segments in order; joined, their texts are the prompt, and the special ones are its special
      ranges.

    Raises:
      TypeError: `prompt` is no `RenderedPrompt`.
    """
    arguments.record("prompt", prompt, RenderedPrompt)
    segments: list[ExplainedSegment] = []
    start = 0
    for text, special, place in _stretches(prompt):
        end = start + len(text)
        segments.append(ExplainedSegment(text, special, start, end, *place))
        start = end
    return segments


def _stretches(prompt: RenderedPrompt) -> Iterator[tuple[str, bool, Place]]:
    """Pieces; neighbouring texts from one place are joined."""
    for (special, place), run in itertools.groupby(prompt.pieces, lambda piece: piece[1:]):
        texts = [text for text, _, _ in run]
        for text in texts if special else ["".join(texts)]:
            yield text, special, place

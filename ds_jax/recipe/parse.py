"""How generated output is parsed: the settings of one request.

Decides which markup is looked for and where parsing begins. Never parses. In: the settings a
conversion derived from a request. Out: `ParsingOptions`, read by the parser in `automaton`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ds_jax.recipe.special_tokens import SpecialTokens


class ThinkingInitialStage(enum.Enum):
    """Where parsing begins when thinking is on."""

    ReasoningStart = 0
    """A new turn's reasoning; its leading newlines are dropped."""
    ReasoningContinuation = 1
    """The middle of a reasoning text begun in the prompt; every newline is kept."""
    ContentContinuation = 2
    """The middle of an answer begun in the prompt; every newline is kept."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def starts_in_reasoning(self) -> bool:
        """Whether the first text is reasoning."""
        return self is not ThinkingInitialStage.ContentContinuation


class ParsingOptions:
    """Settings of the output parser; every one can be assigned.

    Args:
      parse_tool_calls: recognise the tool markup; without it the markup is plain text.
      starts_in_tool_calls: the prompt already opened the tool block (a required tool call); stronger
        than `thinking_initial_stage`.
      parse_json_output: pick the JSON (fenced or bare) out of the answer; other text becomes spaces.
      thinking_initial_stage: where parsing begins; None: thinking is off. A stage also asks for
        reasoning tokens in the usage.
      stop_sequences: strings that end the answer; they act in content only.
      special_tokens: spellings of the control tokens; None: the usual ones.
    """

    __slots__ = (
        "_special_tokens",
        "_stop_sequences",
        "parse_json_output",
        "parse_tool_calls",
        "starts_in_tool_calls",
        "thinking_initial_stage",
    )

    def __init__(
        self,
        *,
        parse_tool_calls: bool = True,
        starts_in_tool_calls: bool = False,
        parse_json_output: bool = False,
        thinking_initial_stage: ThinkingInitialStage | None = None,
        stop_sequences: Sequence[str] | None = None,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        self.parse_tool_calls = parse_tool_calls
        self.starts_in_tool_calls = starts_in_tool_calls
        self.parse_json_output = parse_json_output
        self.thinking_initial_stage = thinking_initial_stage
        self._stop_sequences = list(stop_sequences or ())
        self._special_tokens = special_tokens or SpecialTokens()

    @property
    def stop_sequences(self) -> list[str]:
        """A copy of the stop strings."""
        return list(self._stop_sequences)

    @stop_sequences.setter
    def stop_sequences(self, value: Sequence[str]) -> None:
        self._stop_sequences = list(value)

    @property
    def special_tokens(self) -> SpecialTokens:
        """Spellings of the control tokens."""
        return self._special_tokens

    @special_tokens.setter
    def special_tokens(self, value: SpecialTokens) -> None:
        self._special_tokens = value

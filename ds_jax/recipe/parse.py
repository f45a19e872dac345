"""How generated output is parsed: the settings of one request.

Decides which markup is looked for and where parsing begins. Never parses. In: the settings a
conversion derived from a request. Out: `ParsingOptions`, read by `output_parser`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ds_jax.recipe import arguments
from ds_jax.recipe.named_enum import NamedEnum
from ds_jax.recipe.special_tokens import SpecialTokens


class ThinkingInitialStage(NamedEnum):
    """Where parsing begins when thinking is on."""

    ReasoningStart = 0
    """A new turn's reasoning; its leading newlines are dropped."""
    ReasoningContinuation = 1
    """The middle of a reasoning text begun in the prompt; every newline is kept."""
    ContentContinuation = 2
    """The middle of an answer begun in the prompt; every newline is kept."""

    def starts_in_reasoning(self) -> bool:
        """Whether the first text is reasoning."""
        return self is not ThinkingInitialStage.ContentContinuation


class ParsingOptions:
    """Settings of the output parser; every one can be assigned, and is checked then.

    Args:
      parse_tool_calls: recognise the tool markup; without it the markup is plain text.
      starts_in_tool_calls: the prompt already opened the tool block (a required tool call);
        stronger than `thinking_initial_stage`.
      parse_json_output: pick the JSON, fenced or bare, out of the answer; other text becomes
        spaces.
      thinking_initial_stage: where parsing begins; None: thinking is off. A stage also asks for
        reasoning tokens in the usage.
      stop_sequences: strings that end the answer; they act in content only, and empty ones never.
      special_tokens: spellings of the control tokens; None: the usual ones.

    Raises:
      TypeError: a value of another type; the text names the setting.
    """

    __slots__ = (
        "_stop_sequences",
        "parse_json_output",
        "parse_tool_calls",
        "special_tokens",
        "starts_in_tool_calls",
        "thinking_initial_stage",
    )

    parse_tool_calls: bool
    starts_in_tool_calls: bool
    parse_json_output: bool
    thinking_initial_stage: ThinkingInitialStage | None
    special_tokens: SpecialTokens

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
        self.stop_sequences = () if stop_sequences is None else stop_sequences
        self.special_tokens = SpecialTokens() if special_tokens is None else special_tokens

    def __setattr__(self, name: str, value: Any) -> None:
        check = _CHECKS.get(name)
        object.__setattr__(self, name, value if check is None else check(name, value))

    @property
    def stop_sequences(self) -> Sequence[str]:
        """The stop strings, as a list of its own."""
        return list(self._stop_sequences)

    @stop_sequences.setter
    def stop_sequences(self, value: Sequence[str]) -> None:
        self._stop_sequences = value


def _stage(name: str, value: Any) -> ThinkingInitialStage | None:
    return None if value is None else arguments.record(name, value, ThinkingInitialStage)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    return tuple(arguments.text(name, text) for text in arguments.records(name, value, str))


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "parse_tool_calls": arguments.flag,
    "starts_in_tool_calls": arguments.flag,
    "parse_json_output": arguments.flag,
    "thinking_initial_stage": _stage,
    "stop_sequences": _texts,
    "special_tokens": lambda name, value: arguments.record(name, value, SpecialTokens),
}

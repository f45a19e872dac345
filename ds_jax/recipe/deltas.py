"""What the output parser says, independent of any API.

Decides the vocabulary between the parser and the event generators: five small records. Never holds
state and knows no protocol. In: nothing. Out: the records that `stream` sends to a generator.

Nobody changes a delta. Those made for every token are not frozen: that makes them in a
third of the time.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

FinishedReason: TypeAlias = Literal[
    "stop", "length", "content_filter", "tool_calls", "stop_sequence"
]


@dataclasses.dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of one token and of its alternatives.

    Args:
      token: the token's text; a token that is not whole UTF-8 is spelled `\\xNN` byte by byte.
      logprob: natural logarithm of its probability; may be NaN or infinite.
      bytes: the token's bytes.
      top_logprobs: the alternatives, themselves without alternatives.
    """

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TokenLogprob, ...] = ()


@dataclasses.dataclass(slots=True)
class ReasoningDelta:
    """More reasoning text; `logprobs` are those of the whole piece it came from."""

    text: str
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclasses.dataclass(slots=True)
class ContentDelta:
    """More answer text; `logprobs` are those of the whole piece it came from."""

    text: str
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call was announced; its arguments follow."""

    id: str
    name: str


@dataclasses.dataclass(slots=True)
class CallArguments:
    """More JSON text of the arguments of the call announced last."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """The output ended.

    Args:
      reason: why; "stop_sequence" only when one of the request's stop strings ended it.
      stop_sequence: that string, else None.
      completion_tokens: tokens of all accepted pieces.
      reasoning_tokens: tokens of the reasoning text, None when unknown.
    """

    reason: FinishedReason
    stop_sequence: str | None
    completion_tokens: int
    reasoning_tokens: int | None


Delta: TypeAlias = ReasoningDelta | ContentDelta | CallStart | CallArguments

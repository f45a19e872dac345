"""What one step is to do, as integers.

Decides nothing: it is what the scheduler says to the device side, and what comes back. Never holds
an array. In: the scheduler's decisions. Out: rows, copies and events, in the order they happen.

The device side runs a plan in this order: `restores`, `prefill`, `decode`, `saves`; and plans in
the order of their numbers. Rows refer to sequences, whose slot and pages stay as they are until the
next plan is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ds_jax.engine import sequence as sequences
from ds_jax.engine.stop import Detokenizer
from ds_jax.errors import DsJaxError
from ds_jax.records import GenerateRequest, TokenEvent, TokenLogprob

if TYPE_CHECKING:
    from ds_jax.structured.grammar import Grammar


class Chunk(NamedTuple):
    """Tokens start .. stop of a sequence's prompt, or of what it is computed again from.

    `sequence.replay` says which of these rows are written and what lies in front of them.
    """

    sequence: sequences.Sequence
    start: int
    stop: int
    samples: bool  # the last chunk: a token is sampled after it

    @property
    def token_ids(self) -> list[int]:
        """The ids of the chunk."""
        return self.sequence.tokens[self.start : self.stop]

    def lookback_ids(self, back: int) -> list[int]:
        """Up to `back` ids in front of the chunk, oldest first."""
        return self.sequence.tokens[max(0, self.start - back) : self.start]

    @property
    def write_from(self) -> int:
        """Compressed rows of positions below it are found in shared pages and not written."""
        replay = self.sequence.replay
        return replay.hit if replay is not None else 0


class DecodeRow(NamedTuple):
    """One row of a sequence whose newest token is on the device.

    `start` is its position if every draft in flight is accepted; the device knows the true one.
    """

    sequence: sequences.Sequence
    start: int


class Copy(NamedTuple):
    """A state between a slot and the place a handle stands for; it is that of `length` tokens."""

    rank: int
    slot: int
    handle: int
    length: int


@dataclasses.dataclass(slots=True)
class Plan:
    """One step of all ranks.

    Attributes:
      number: of the step, from 0; plans without rows have none of their own.
      restores: states copied into slots before anything runs.
      prefill: chunks, at most one a sequence.
      decode: rows of one token and its drafts.
      saves: states copied out of slots after everything has run.
      events: what is to be told to the callers, in order.
      ended: sequences whose final event is among them: finished, cancelled, refused or failed.
      preempted: sequences that lost slot and pages and wait again.
      tables: sequences whose list of pages has changed; the same ones may have ended since.
    """

    number: int
    restores: list[Copy] = dataclasses.field(default_factory=list[Copy])
    prefill: list[Chunk] = dataclasses.field(default_factory=list[Chunk])
    decode: list[DecodeRow] = dataclasses.field(default_factory=list[DecodeRow])
    saves: list[Copy] = dataclasses.field(default_factory=list[Copy])
    events: list[TokenEvent] = dataclasses.field(default_factory=list[TokenEvent])
    ended: list[sequences.Sequence] = dataclasses.field(default_factory=list[sequences.Sequence])
    preempted: list[sequences.Sequence] = dataclasses.field(
        default_factory=list[sequences.Sequence]
    )
    tables: list[sequences.Sequence] = dataclasses.field(default_factory=list[sequences.Sequence])

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to launch; such a plan is answered by one result."""
        return bool(self.prefill or self.decode)

    @property
    def readers(self) -> list[sequences.Sequence]:
        """Sequences that the step brings tokens for, in the order of its result."""
        return [c.sequence for c in self.prefill if c.samples] + [r.sequence for r in self.decode]


class PendingGrammar(Protocol):
    """A grammar that is being compiled elsewhere."""

    def poll(self) -> Grammar | None:
        """The grammar, or None while it is not ready; never waits. Raises why there is none."""
        ...


class Submit(NamedTuple):
    """A request arrives; its id is not that of a request under way.

    `detokenizer`: a new one, needed where the request has stop strings. `grammar`: what its output
    follows; the request waits for it beside the queue until `GrammarReady` or `GrammarRefused`.
    """

    request: GenerateRequest
    seed: int
    detokenizer: Detokenizer | None = None
    grammar: PendingGrammar | None = None


class GrammarReady(NamedTuple):
    """The grammar of a request is compiled: the request can run. Unknown ids are ignored."""

    request_id: str


class GrammarRefused(NamedTuple):
    """There is no grammar for a request: it ends. Unknown ids are ignored."""

    request_id: str
    error: DsJaxError


class Cancel(NamedTuple):
    """The caller of a request went away; unknown ids are ignored."""

    request_id: str


class StepResult(NamedTuple):
    """Tokens of a step, one entry a reader; results come in the order of plans.

    Attributes:
      number: of the plan.
      tokens: ids each reader got: one, or with drafts the accepted ones and one more.
      logprobs: one a token, where somebody asked for them.
      failed: readers that failed on the device (by place), and why.
      drafts: confidences of the drafts that each reader accepted, where there are drafts.
    """

    number: int
    tokens: Sequence[Sequence[int]]
    logprobs: Sequence[Sequence[TokenLogprob] | None] | None = None
    failed: Mapping[int, str] | None = None
    drafts: Sequence[Sequence[float]] | None = None


class StepFailed(NamedTuple):
    """A step raised: its sequences end, and everything the device held is lost.

    Plans launched after it are void: no result is to be sent for them.
    """

    number: int
    reason: str


Event = Submit | Cancel | GrammarReady | GrammarRefused | StepResult | StepFailed

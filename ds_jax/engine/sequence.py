"""A request inside the engine.

Decides how received tokens become events, and when the sequence has ended by itself. Never decides
when it runs: the scheduler moves it between states. In: tokens of finished steps. Out:
`TokenEvent`s, exactly one of which is final.

Two lengths are kept apart. `tokens` are known: the prompt and every output the host has received.
`computed` and `sampled` count what is launched, as if every draft were accepted; a result corrects
them. So a step can be planned while the one before still runs.

A sequence that loses its pages keeps its tokens: it waits again, and is computed from them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence as Many

from ds_jax import records
from ds_jax.engine.stop import Piece, StopMatcher
from ds_jax.errors import DsJaxError
from ds_jax.kvcache.keys import KeyChain
from ds_jax.kvcache.replay import Replay
from ds_jax.records import FinishReason, TokenEvent


class State(enum.Enum):
    """Where a sequence stands."""

    WAITING = "waiting"  # no slot, no pages
    PREFILL = "prefill"  # tokens up to `target` are launched in chunks
    DECODE = "decode"  # the next token is on the device or on its way
    ENDED = "ended"  # its final event is out


@dataclasses.dataclass(eq=False, slots=True)
class Sequence:
    """Methods mutate it; the scheduler also sets the fields of the second and third group.

    Attributes:
      request: what was asked for.
      seed: seed of its draws.
      number: place in the order of arrival.
      limit: outputs at most.
      ends: token ids that end it.
      chain: keys of its pages.
      deadline: when it ends at the latest, in the scheduler's time; None: never.
      matcher: finds its stop strings; None: it has none.

      state, rank, slot, pages: where it is; pages in order of position.
      target: tokens to launch in chunks before it decodes.
      computed: positions launched.
      sampled: outputs launched, received ones included.
      in_flight: steps that will still bring tokens.
      published: pages in front that have been offered to the prefix index.
      saves: states that are being stored: (pages in front, handle, likely to be used).
      replay: what the prefix index has found; None: nothing is computed yet.
      cuts: positions where a chunk must end, because a state is stored there.
      last_save: key of the last state that was stored behind its prompt.

      tokens: prompt and received outputs.
      received: outputs received, held back ones included.
      emitted: tokens shown.
      cached_tokens: prompt tokens not computed at the first admission.
      preemptions: how often it lost its pages.
      finish_reason: why it ended.
    """

    request: records.GenerateRequest
    seed: int
    number: int
    limit: int
    ends: frozenset[int]
    chain: KeyChain
    deadline: float | None = None
    matcher: StopMatcher | None = None

    state: State = State.WAITING
    rank: int = -1
    slot: int = -1
    pages: list[int] = dataclasses.field(default_factory=list[int])
    target: int = 0
    computed: int = 0
    sampled: int = 0
    in_flight: int = 0
    published: int = 0
    saves: list[tuple[int, int, bool]] = dataclasses.field(
        default_factory=list[tuple[int, int, bool]]
    )
    replay: Replay | None = None
    cuts: tuple[int, ...] = ()
    last_save: bytes | None = None

    tokens: list[int] = dataclasses.field(default_factory=list[int])
    received: int = 0
    emitted: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    finish_reason: FinishReason | None = None

    def __post_init__(self):
        self.tokens.extend(self.request.prompt_token_ids)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def most_positions(self) -> int:
        """Positions it can come to need, drafts not counted."""
        return self.prompt_tokens + self.limit

    @property
    def committed(self) -> int:
        """Positions whose rows hold known tokens, once the launched steps have run."""
        if self.computed < self.target:
            return self.computed
        return max(self.target, len(self.tokens) - 1)

    def wait_again(self) -> None:
        """Loses slot, pages and everything computed; keeps every output."""
        self.state = State.WAITING
        self.rank = self.slot = -1
        self.pages = []
        self.saves = []
        self.target = self.computed = self.published = 0
        self.replay = None
        self.cuts = ()
        self.last_save = None
        self.preemptions += 1

    def receive(
        self,
        token_ids: Many[int],
        logprobs: Many[records.TokenLogprob] | None = None,
        drafts: Many[float] = (),
    ) -> list[TokenEvent]:
        """Takes the tokens of a step, in order, until one of them ends the sequence.

        Args:
          logprobs: one a token, where they were asked for.
          drafts: confidences of the first tokens, which were drafts.
        """
        assert self.state is not State.ENDED, "tokens for a sequence that has ended"
        matcher = self.matcher
        if matcher is None and len(token_ids) == 1 and self.received + 1 < self.limit:
            token = token_ids[0]  # by far the most frequent case, spelled out: it is twice as fast
            if token not in self.ends:
                self.tokens.append(token)
                self.received += 1
                self.emitted += 1
                logprob = None if logprobs is None else logprobs[0]
                name, index = self.request.request_id, self.emitted - 1
                if not index:
                    usage = records.Usage(self.prompt_tokens, 1, self.cached_tokens)
                    return [TokenEvent(name, 0, token, None, None, logprob, usage=usage)]
                return [TokenEvent(name, index, token, None, None, logprob)]
        shown = list[Piece]()
        for number, token in enumerate(token_ids):
            if token in self.ends:
                return self.end(FinishReason.STOP, shown)
            logprob = logprobs[number] if logprobs is not None else None
            draft = drafts[number] if number < len(drafts) else None
            self.tokens.append(token)
            self.received += 1
            if matcher is None:
                shown.append(Piece(token, None, logprob, draft))
            else:
                shown += matcher.push(token, logprob, draft)
                if matcher.matched is not None:
                    return self.end(FinishReason.STOP, shown)
            if self.received >= self.limit:
                return self.end(FinishReason.LENGTH, shown)
        return self._events(shown)

    def end(
        self,
        reason: FinishReason,
        shown: Many[Piece] = (),
        error: DsJaxError | None = None,
    ) -> list[TokenEvent]:
        """Ends the sequence: what is shown, what was held back, and the final event."""
        assert self.state is not State.ENDED, "a sequence ends once"
        self.state, self.finish_reason = State.ENDED, reason
        pieces, text, matched = list(shown), None, None
        if self.matcher is not None:
            matched = self.matcher.matched
            if matched is None:
                pieces += self.matcher.finish()
            if pieces and pieces[-1].token_id is None:
                text = pieces.pop().text
        last = pieces.pop() if pieces else None
        events = self._events(pieces)
        if last is not None:
            text = (last.text or "") + (text or "") if self.matcher is not None else None
        final = TokenEvent(
            request_id=self.request.request_id,
            index=self.emitted,
            token_id=last.token_id if last is not None else None,
            finish_reason=reason,
            text=text,
            logprob=last.logprob if last is not None else None,
            matched_stop=matched,
            usage=records.Usage(
                self.prompt_tokens, self.emitted + (last is not None), self.cached_tokens
            ),
            error=error,
            draft=last.draft if last is not None else None,
        )
        self.emitted += last is not None
        return [*events, final]

    def _events(self, pieces: Many[Piece]) -> list[TokenEvent]:
        name, first = self.request.request_id, self.emitted
        self.emitted += len(pieces)
        early = None if first else records.Usage(self.prompt_tokens, 1, self.cached_tokens)
        return [
            TokenEvent(
                name,
                first + n,
                p.token_id,
                None,
                p.text,
                p.logprob,
                usage=None if n else early,
                draft=p.draft,
            )
            for n, p in enumerate(pieces)
        ]

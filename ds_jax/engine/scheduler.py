"""Which sequences the next step serves: pure decisions on integers.

Decides admission, chunks, decode rows, preemption and endings. Never sees an array, never looks at
a clock: time is an argument. In: events since the last plan. Out: the next `Plan`.

Rules, for each data-parallel rank:
1. Every sequence that can decode gets its row. Decode never waits for prefill.
2. What is left of the step's tokens, at least a quarter, is prefill: running chunks first, then
   the head of the queue. Nobody overtakes the head.
3. The queue is in order of arrival. A level of priority is worth `PRIORITY_PLACES` places, so
   every request is overtaken by a bounded number of others. A request whose grammar is being
   compiled enters it afterwards, at the place of its arrival.
4. A sequence is admitted with all pages it has to compute, on the rank that `balance` chooses.
5. When a decode row finds no page, the sequence with the longest output on that rank is computed
   again later, from everything it has; it keeps its place in the queue. A preemption pays for
   another sequence's progress, and every admission ends with a new token: so all come to an end.

Results may come one plan late: lengths are optimistic, a sequence that turns out to have ended has
run one row for nobody.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

from ds_jax.engine import balance
from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import (
    Cancel,
    Chunk,
    DecodeRow,
    Event,
    GrammarReady,
    GrammarRefused,
    Plan,
    StepFailed,
    StepResult,
    Submit,
)
from ds_jax.engine.queue import OrderedSequences
from ds_jax.engine.rank import Rank
from ds_jax.engine.sequence import Sequence, State
from ds_jax.engine.stop import StopMatcher
from ds_jax.errors import DsJaxError, RequestError, StepError
from ds_jax.records import FinishReason

PRIORITY_PLACES = 64


class Scheduler:
    """All sequences of a replica. `schedule` mutates it; nothing else does."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.ranks = [Rank(limits, number) for number in range(limits.ranks)]
        self.num_preemptions = 0
        self._live: dict[str, Sequence] = {}
        self._compiling: dict[str, Sequence] = {}  # their grammars are; they keep their number
        self._waiting = OrderedSequences()
        self._deadlines = OrderedSequences()
        self._flights: collections.deque[Plan] = collections.deque()
        self._launched: list[Sequence] = []  # chunks of the last plan, to be published
        self.num_requests = 0
        self.num_steps = 0

    @property
    def is_idle(self) -> bool:
        """No request is under way."""
        return not self._live

    @property
    def num_running(self) -> int:
        """Sequences with a slot."""
        return sum(len(rank.running) for rank in self.ranks)

    @property
    def num_waiting(self) -> int:
        """Sequences without one."""
        return len(self._live) - self.num_running

    def schedule(self, events: Iterable[Event], now_s: float) -> Plan:
        """Takes what has happened and plans the next step.

        Args:
          events: in the order they happened, results in that of plans.
          now_s: seconds on any clock that does not go back.

        Complexity: linear in running sequences and new tokens.
        """
        plan = Plan(self.num_steps)
        for sequence in self._launched:
            if sequence.slot >= 0 and sequence.state is not State.ENDED:
                self.ranks[sequence.rank].publish(sequence)
        self._launched = []
        self._apply(plan, list(events), now_s)
        blocked = self._decode(plan)
        self._prefill(plan, blocked)
        for rank in self.ranks:
            plan.tables += rank.changed
            rank.changed = {}
        if plan.has_rows:
            self.num_steps += 1
            self._flights.append(plan)
            self._launched = [chunk.sequence for chunk in plan.prefill]
        return plan

    def check_integrity(self) -> None:
        """Asserts that every sequence is in one place and nothing has leaked."""
        for rank in self.ranks:
            rank.check_integrity()
        beside = self._compiling.values()
        slotted = [s for rank in self.ranks for s in rank.running.values()]
        known = sorted(s.number for s in [*slotted, *self._waiting.live(), *beside])
        assert known == sorted(s.number for s in self._live.values()), f"sequences {known}"

    # Events ---------------------------------------------------------------------------------------

    def _apply(self, plan: Plan, events: list[Event], now_s: float) -> None:
        """A cancelled request counts as cancelled even if its last token is here as well.

        A cancel is for what was submitted in front of it: its id may be in use again behind it.
        """
        for event in events:
            if isinstance(event, Submit):
                self._submit(plan, event, now_s)
            elif isinstance(event, Cancel) and event.request_id in self._live:
                self._end(plan, self._live[event.request_id], FinishReason.CANCELLED)
            elif isinstance(event, GrammarReady) and event.request_id in self._compiling:
                self._wait(self._compiling.pop(event.request_id))
            elif isinstance(event, GrammarRefused) and event.request_id in self._compiling:
                sequence = self._compiling[event.request_id]
                self._end(plan, sequence, FinishReason.ERROR, event.error)
        for event in events:
            if isinstance(event, StepResult):
                self._receive(plan, event)
            elif isinstance(event, StepFailed):
                self._fail(plan, event)
        while (late := self._deadlines.first(now_s)) is not None:
            self._end(plan, late, FinishReason.DEADLINE)

    def _submit(self, plan: Plan, event: Submit, now_s: float) -> None:
        request, params = event.request, event.request.params
        assert request.request_id not in self._live, f"{request.request_id} is under way already"
        ends = frozenset(params.stop_token_ids)
        sequence = Sequence(
            request=request,
            seed=event.seed,
            number=self.num_requests,
            limit=min(params.max_tokens, self.limits.context - len(request.prompt_token_ids)),
            ends=ends if params.ignore_eos else ends | self.limits.end_token_ids,
            chain=self.ranks[0].index.chain(request.tenant, request.images),
            deadline=None if request.deadline_s is None else now_s + request.deadline_s,
        )
        self.num_requests += 1
        self._live[request.request_id] = sequence
        error = self._refusal(event)
        if error is not None:
            self._end(plan, sequence, FinishReason.ERROR, error)
            return
        if params.stop and event.detokenizer is not None:
            sequence.matcher = StopMatcher(params.stop, event.detokenizer)
        if sequence.deadline is not None:
            self._deadlines.push(sequence.deadline, sequence)
        if event.grammar is not None:
            self._compiling[request.request_id] = sequence
            return
        self._wait(sequence)

    def _refusal(self, event: Submit) -> RequestError | None:
        """Why a request can never run here."""
        request, limits = event.request, self.limits
        tokens, room = len(request.prompt_token_ids), limits.context
        if tokens >= room:
            cause = "max_context" if room == limits.max_context else "the number of pages"
            return RequestError(
                f"the prompt has {tokens} tokens, a sequence can have {room} with its output; "
                f"shorten it or raise {cause}",
                param="prompt",
                code="context_length_exceeded",
            )
        if request.params.stop and event.detokenizer is None:
            return RequestError(
                f"stop={list(request.params.stop)}: stop strings need a tokenizer; give "
                "stop_token_ids instead",
                param="stop",
            )
        return None

    def _receive(self, plan: Plan, result: StepResult) -> None:
        flight = self._flights.popleft()
        readers, failed = flight.readers, result.failed or {}
        assert flight.number == result.number, f"result {result.number}, {flight.number} is due"
        assert len(readers) == len(result.tokens), f"{len(result.tokens)} of {len(readers)} readers"
        prefilled, page_tokens = len(readers) - len(flight.decode), self.limits.page_tokens
        for place, sequence in enumerate(readers):
            sequence.in_flight -= 1
            if sequence.state is State.ENDED:
                continue
            if place in failed:
                self._end(plan, sequence, FinishReason.ERROR, StepError(failed[place]))
                continue
            tokens = result.tokens[place]
            if place >= prefilled and sequence.slot >= 0:
                rejected = self.limits.row_tokens - len(tokens)
                sequence.computed -= rejected
                sequence.sampled -= rejected
            logprobs = result.logprobs[place] if result.logprobs is not None else None
            drafts = result.drafts[place] if result.drafts is not None else ()
            plan.events += sequence.receive(tokens, logprobs, drafts)
            if sequence.slot >= 0 and len(sequence.tokens) > (sequence.published + 1) * page_tokens:
                self.ranks[sequence.rank].publish(sequence)
            if sequence.finish_reason is not None:
                self._ended(plan, sequence)

    def _fail(self, plan: Plan, failure: StepFailed) -> None:
        """Ends a step's sequences; computes all others again, for the device holds nothing now."""
        flight = self._flights[0]
        assert flight.number == failure.number, f"failure of {failure.number}"
        for void in self._flights:
            for sequence in void.readers:
                sequence.in_flight = 0
        self._flights.clear()
        error = StepError(f"step {failure.number} failed: {failure.reason}")
        for row in [*flight.prefill, *flight.decode]:
            if row.sequence.state is not State.ENDED:
                self._end(plan, row.sequence, FinishReason.ERROR, error)
        for rank in self.ranks:
            for sequence in list(rank.running.values()):
                self._preempt(plan, rank, sequence)
            rank.index.clear()

    def _end(
        self,
        plan: Plan,
        sequence: Sequence,
        reason: FinishReason,
        error: DsJaxError | None = None,
    ) -> None:
        plan.events += sequence.end(reason, error=error)
        self._ended(plan, sequence)

    def _ended(self, plan: Plan, sequence: Sequence) -> None:
        """Gives everything back; a row in flight runs before whatever is planned from now on."""
        plan.ended.append(sequence)
        del self._live[sequence.request.request_id]
        self._compiling.pop(sequence.request.request_id, None)
        if sequence.slot >= 0:
            self.ranks[sequence.rank].release(sequence)
        self._waiting.trim(len(self._live))
        self._deadlines.trim(len(self._live))

    # Decisions ------------------------------------------------------------------------------------

    def _wait(self, sequence: Sequence) -> None:
        place = sequence.number - PRIORITY_PLACES * sequence.request.priority
        self._waiting.push(place, sequence)

    def _preempt(self, plan: Plan, rank: Rank, sequence: Sequence) -> None:
        rank.release(sequence)
        sequence.wait_again()
        self._wait(sequence)
        plan.preempted.append(sequence)
        self.num_preemptions += 1

    def _decode(self, plan: Plan) -> set[int]:
        """A row for everybody who can decode; returns ranks that ran out of pages."""
        limits, blocked = self.limits, set[int]()
        step, size = limits.row_tokens, limits.page_tokens
        for rank in self.ranks:
            running = rank.running.values()
            ready = [s for s in running if s.state is State.DECODE and s.sampled < s.limit]
            short = [s for s in ready if s.computed + step > len(s.pages) * size]
            for sequence in sorted(short, key=lambda s: (s.received, s.number)):
                while sequence.slot >= 0 and not rank.grow(sequence, sequence.computed + step):
                    victim = max(running, key=lambda s: (s.received, s.number))
                    self._preempt(plan, rank, victim)
                    blocked.add(rank.number)
            for sequence in ready:
                if sequence.slot < 0:
                    continue
                plan.decode.append(DecodeRow(sequence, sequence.computed))
                sequence.computed += step
                sequence.sampled += step
                sequence.in_flight += 1
                if not limits.drafts and sequence.computed % size == 0:
                    copy = rank.save(sequence, sequence.computed, likely=False)
                    if copy is not None:
                        plan.saves.append(copy)
        return blocked

    def _prefill(self, plan: Plan, blocked: set[int]) -> None:
        """Chunks of running sequences, then of new ones, while the step has tokens left."""
        limits = self.limits
        rooms = [limits.step_tokens] * limits.ranks
        for row in plan.decode:
            rooms[row.sequence.rank] -= limits.row_tokens
        rooms = [max(room, limits.least_prefill) for room in rooms]
        started = set[int]()  # ranks with a chunk
        for rank in self.ranks:
            for s in list(rank.running.values()):
                if s.state is State.PREFILL:
                    first = rank.number not in started
                    stop = limits.chunk_stop(
                        s.computed, s.target, s.cuts, rooms[rank.number], first=first
                    )
                    if stop > s.computed:
                        started.add(rank.number)
                        rooms[rank.number] -= stop - s.computed
                        self._launch(plan, rank, s, stop)
        while (head := self._head()) is not None:
            head.chain.extend(head.tokens)
            open_ranks = [r for r in self.ranks if rooms[r.number] > 0 and r.number not in blocked]
            chosen = balance.choose(open_ranks, head)
            if chosen is None:
                return
            rank, offer = chosen
            first, start = rank.number not in started, offer.replay.start
            stop = limits.chunk_stop(
                start, len(head.tokens), offer.cuts, rooms[rank.number], first=first
            )
            if offer.under_way or stop == start:
                return
            self._waiting.pop()
            copy = rank.admit(head, offer)
            if copy is not None:
                plan.restores.append(copy)
            started.add(rank.number)
            rooms[rank.number] -= stop - start
            self._launch(plan, rank, head, stop)

    def _head(self) -> Sequence | None:
        """The sequence to admit next; none while its last tokens are still on their way."""
        head = self._waiting.first()
        return None if head is None or head.in_flight else head

    def _launch(self, plan: Plan, rank: Rank, sequence: Sequence, stop: int) -> None:
        samples = stop == sequence.target
        plan.prefill.append(Chunk(sequence, sequence.computed, stop, samples))
        sequence.computed = stop
        if samples:
            sequence.state = State.DECODE
            sequence.sampled += 1
            sequence.in_flight += 1
        copy = rank.save(sequence, stop, likely=stop in sequence.cuts)
        if copy is not None:
            plan.saves.append(copy)

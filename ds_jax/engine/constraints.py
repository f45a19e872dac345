"""Sequences whose output follows a grammar, between the plan and the device.

Decides which rows of launched steps are drawn again under a mask, and which sequence cannot go on.
Never plans, never compiles, never waits for a grammar. In: plans, what was launched for them, the
tokens of the plan before. Out: masked draws, reports, faults, events for the scheduler.

A forward pass needs no mask, only its draw does. So the steps of a plan are launched as ever; while
they run, the tokens of the plan before are read and the masks made; then the rows that need one are
drawn again on the logits the step has left on the device. The draws of all other rows are those of
the step. A row whose grammar has not started keeps its draw as well.

Where steps verify drafts, told words hold the drafts of the next step too. They are cut at the
first one that the grammar refuses, anchors and drafts get their masks, and the step's logits of
them are judged again (`judge`). Who asks for more than plain sampling has no drafts.

A matcher follows the tokens that its sequence is known to have. It outlives preemption; where
tokens were taken that a failed step has lost, it is made again from those that are left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

import jax
import numpy as np

from ds_jax.engine import controls, judge, launches
from ds_jax.engine.launches import Launch
from ds_jax.engine.plan import Event, GrammarReady, GrammarRefused, PendingGrammar, Plan, Submit
from ds_jax.engine.reports import Report
from ds_jax.engine.runner import Runner
from ds_jax.engine.sequence import Sequence
from ds_jax.engine.step import StepOutput
from ds_jax.errors import DsJaxError, RequestError
from ds_jax.speculative.state import Told
from ds_jax.structured import trigger
from ds_jax.structured.grammar import Grammar
from ds_jax.structured.masks import Blocks, Filled, Filler, Job
from ds_jax.structured.matcher import GrammarFault, Matcher
from ds_jax.structured.trigger import Trigger


@dataclasses.dataclass(slots=True)
class Held:
    """The grammar of a sequence under way, and where its output stands in it."""

    grammar: Grammar
    trigger: Trigger | None
    matcher: Matcher


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """A row of a step behind which a token is drawn.

    Attributes:
      sequence: whose it is.
      place: of the row in the step, among those of its rank.
      position: of the token that is drawn.
      reader: number of the sequence among the readers of the plan.
    """

    sequence: Sequence
    place: int
    position: int
    reader: int


class Constraints:
    """All constrained sequences of a replica. Methods mutate it, but for `concern`."""

    def __init__(self, runner: Runner):
        self._runner = runner
        self._pending: dict[str, tuple[PendingGrammar, Trigger | None]] = {}
        self._held: dict[str, Held] = {}
        self._filler: Filler | None = None

    def expect(self, events: Iterable[Event]) -> None:
        """Notes the grammars of requests that arrive."""
        for event in events:
            if isinstance(event, Submit) and event.grammar is not None:
                request = event.request.params.grammar
                assert request is not None, "a pending grammar was asked for"
                name = event.request.request_id
                self._pending[name] = (event.grammar, trigger.of(request))

    def poll(self) -> list[Event]:
        """What has become of grammars that are being compiled."""
        events: list[Event] = []
        for name, (pending, start) in list(self._pending.items()):
            try:
                grammar = pending.poll()
                if grammar is None:
                    continue
                self._held[name] = Held(grammar, start, grammar.matcher(start))
            except Exception as error:  # whatever it is, only this request is refused
                events.append(GrammarRefused(name, _refusal(error)))
            else:
                events.append(GrammarReady(name))
            del self._pending[name]
        return events

    def drop(self, ended: Iterable[Sequence]) -> None:
        """Forgets sequences that have ended."""
        for sequence in ended:
            name = sequence.request.request_id
            self._pending.pop(name, None)
            self._held.pop(name, None)

    def concern(self, plan: Plan) -> bool:
        """Whether a reader of the plan is constrained."""
        return bool(self._held) and any(s.request.params.grammar is not None for s in plan.readers)

    def draw(
        self, launched: Iterable[tuple[Launch, StepOutput]], told: np.ndarray | None
    ) -> tuple[jax.Array | None, list[Report], dict[int, str]]:
        """Draws the rows again that need a mask.

        Args:
          launched: the steps of one plan.
          told: [ranks * slots] newest tokens or [.. words] of the plan before; None: there is none.

        Returns: what the plan tells of every slot, None if nothing was drawn; log probabilities on
          their way; readers that cannot go on, and why.
        """
        last: jax.Array | None = None
        reports: list[Report] = []
        failed: dict[int, str] = {}
        for step, output in launched:
            rows: list[Drawn] = []
            jobs: list[Job] = []
            drafting: list[Drawn] = []
            forced: list[list[int]] = []
            blocks: list[Job] = []
            for row in drawn(step, self._runner.ranks):
                sequence = row.sequence
                held = self._held.get(sequence.request.request_id)
                if held is None or sequence.request.params.grammar is None:
                    continue
                full = sequence.request.params.needs_full_sampling
                drafts = output.judged is not None and not full
                try:
                    goes_on = self._follow(held, sequence, told)
                    ahead = held.matcher.forced_tokens() if drafts and goes_on else []
                except GrammarFault as fault:
                    failed[row.reader] = str(fault)
                    continue
                if goes_on and drafts:
                    assert told is not None, "a sequence that decodes has been told of"
                    proposed = Told.read(told[[self._slot(sequence)]]).drafts[0]
                    drafting.append(row)
                    forced.append(ahead)
                    blocks.append(Job(held.matcher, proposed, row.place, sequence.rank))
                elif goes_on and (full or held.matcher.needs_row):
                    rows.append(row)
                    jobs.append(Job(held.matcher, (), row.place, sequence.rank, always=full))
            if jobs:
                single = self._fill_with().fill(jobs)
                failed |= {rows[n].reader: str(fault) for n, fault in single.faults.items()}
                if single.owners:
                    found, last = self._draw(output, rows, single)
                    reports += found
            if blocks:
                width = self._runner.layout.drafts + 1
                filled = self._fill_with().fill_blocks(blocks, width)
                failed |= {drafting[n].reader: str(fault) for n, fault in filled.faults.items()}
                if filled.owners:
                    last = self._judge(output, drafting, forced, filled)
        return last, reports, failed

    def _slot(self, sequence: Sequence) -> int:
        return sequence.rank * self._runner.layout.num_slots + sequence.slot

    def _follow(self, held: Held, sequence: Sequence, told: np.ndarray | None) -> bool:
        """Takes the tokens the sequence has; False: it ends with the last of them."""
        first = sequence.prompt_tokens
        if held.matcher.length > sequence.received:
            held.matcher = held.grammar.matcher(held.trigger)
        for token in sequence.tokens[first + held.matcher.length :]:
            held.matcher.accept(token)
        if sequence.in_flight > 1:
            assert told is not None, "a plan in flight has tokens"
            words = told[self._slot(sequence)]
            tokens = [int(words)] if told.ndim == 1 else words[1 : 1 + words[0]].tolist()
            for token in tokens:
                if token in sequence.ends:
                    return False
                held.matcher.accept(token)
        return not held.matcher.has_ended

    def _fill_with(self) -> Filler:
        if self._filler is None:
            self._filler = Filler(
                next(iter(self._held.values())).grammar.vocabulary,
                self._runner.sampler.mask_buckets,
                num_logits=controls.NOWHERE,
                ranks=self._runner.ranks,
            )
        return self._filler

    def _judge(
        self, output: StepOutput, rows: Many[Drawn], forced: Many[list[int]], filled: Blocks
    ) -> jax.Array:
        sequences = {place: rows[index].sequence for place, index in filled.owners.items()}
        words = judge.pack(
            self._runner.layout.drafts,
            [s.request.params for s in sequences.values()],
            [s.seed for s in sequences.values()],
            [s.slot for s in sequences.values()],
            [filled.valid[index] for index in filled.owners.values()],
            [forced[index] for index in filled.owners.values()],
            list(sequences),
            len(filled.places),
        )
        return self._runner.judge(output, filled.places, words, filled.rows)

    def _draw(
        self, output: StepOutput, rows: Many[Drawn], filled: Filled
    ) -> tuple[list[Report], jax.Array]:
        owners = [(place, rows[index]) for place, index in filled.owners.items()]
        params = [row.sequence.request.params for _, row in owners]
        for (_, row), asked in zip(owners, params, strict=True):
            s = row.sequence
            if asked.counts_tokens and row.position == s.target:  # behind its prompt
                self._runner.sampler.remember(s.rank, s.slot, s.tokens, s.prompt_tokens)
        words = controls.pack_full(
            params,
            [row.sequence.seed for _, row in owners],
            [row.sequence.slot for _, row in owners],
            [row.position for _, row in owners],
            [place for place, _ in owners],
            len(filled.rows),
        )
        report, newest = self._runner.draw_masked(output, filled.targets, words, filled.rows)
        readers = tuple(
            (place, row.reader, asked.top_logprobs)
            for (place, row), asked in zip(owners, params, strict=True)
            if asked.top_logprobs is not None
        )
        return ([Report(report, readers=readers)] if readers else []), newest


def drawn(step: Launch, ranks: int) -> Iterator[Drawn]:
    """The rows of a step behind which a token is drawn, in the order of its readers."""
    used, readers = [0] * ranks, iter(step.places)
    for chunk in step.chunks:
        rank = chunk.sequence.rank
        used[rank] += chunk.stop - chunk.start if step.key.flat else 1
        if chunk.samples:
            yield Drawn(chunk.sequence, used[rank] - 1, chunk.stop, next(readers))
    for row in step.rows:
        rank = row.sequence.rank
        used[rank] += 1
        position = launches.position(step, row) + 1
        yield Drawn(row.sequence, used[rank] - 1, position, next(readers))


def _refusal(error: Exception) -> DsJaxError:
    if isinstance(error, RequestError):
        return error
    return RequestError(
        f"the grammar could not be compiled ({type(error).__name__}: {error})",
        status=501 if isinstance(error, ImportError) else 500,
        param="grammar",
        code="grammar_failed",
    )

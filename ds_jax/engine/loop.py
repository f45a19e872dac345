"""The loop of a replica: plans a step, launches it, and reads the one before while it runs.

Decides the order of planning, launching and reading, and what happens when a step fails. Never
decides what a step serves (the scheduler does), never knows threads. In: events. Out: token events.

A plan is launched as restores, prefill, decode, saves, draws under masks. The device keeps the
newest token of every slot, so one copy a plan tells all readers' tokens. With `overlap` two plans
are in flight: the result of one is read after the next was launched, or between its steps and its
draws under masks, which depend on it. A step that raises ends its sequences; the state
is made anew and all others are computed again.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterable

import jax
import numpy as np

from ds_jax.engine import controls, launches, reports, stats, vocabulary
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.constraints import Constraints
from ds_jax.engine.launches import Launch
from ds_jax.engine.limits import Limits
from ds_jax.engine.packing import Packer
from ds_jax.engine.plan import Event, Plan, StepFailed, StepResult
from ds_jax.engine.reports import Report
from ds_jax.engine.runner import Runner
from ds_jax.engine.scheduler import Scheduler
from ds_jax.engine.speculation import Drafted, Speculation
from ds_jax.engine.step import StepOutput
from ds_jax.records import GenerateRequest, TokenEvent

IN_FLIGHT = 2
MOST_EXECUTIONS = 4  # of a plan at once, where devices talk: too many can deadlock virtual ones


@dataclasses.dataclass(slots=True)
class Flight:
    """A launched plan.

    Attributes:
      number: of the plan.
      newest: [ranks * slots] on the device, the tokens of all readers among them.
      places: slot of each reader among those of all ranks.
      record: how long its parts have taken.
      reports: what the device says of tokens whose log probabilities are asked for.
      failed: readers that cannot go on, and why.
      drafted: how its words are read where steps verify drafts.
    """

    number: int
    newest: jax.Array
    places: list[int]
    record: stats.StepRecord
    reports: list[Report] = dataclasses.field(default_factory=list)
    failed: dict[int, str] = dataclasses.field(default_factory=dict)
    drafted: Drafted | None = None


class Loop:
    """One replica's scheduler and device. `turn` mutates it; nothing else does.

    Args:
      limits: those of the runner's sizes.
      overlap: read a result one plan late, while the next plan runs.
      clock: seconds, for deadlines and records.
    """

    def __init__(
        self,
        runner: Runner,
        limits: Limits,
        *,
        overlap: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.runner = runner
        self.scheduler = Scheduler(limits)
        self.speculation = Speculation(runner.buckets, limits.ranks) if limits.drafts else None
        self.overlap = overlap
        self.log = stats.StepLog()
        self.watcher: stats.Watcher | None = None  # notes when the device is done, if given
        self.is_warm = False  # every program is there: sizes need not be held together
        self._clock = clock
        self._packer = Packer(
            runner.ranks, runner.layout.num_slots, runner.buckets.pages[-1], runner.back
        )
        self._flights: collections.deque[Flight] = collections.deque()
        self._events: list[Event] = []  # found while launching, for the next plan
        self._draining = False  # the last plan had no rows
        self._widest = (0, 0)  # context and sequences of this busy period
        self._goes_on = False  # somebody wants more than one token in it
        self._prompt_logprobs: reports.PromptLogprobs = {}
        self._constraints = Constraints(runner)
        self._told: np.ndarray | None = None  # by the newest result

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return self.scheduler.is_idle and not self._flights and not self._events

    @property
    def is_stuck(self) -> bool:
        """Nothing runs although something is under way: time or an event has to come."""
        return self._draining and not self._flights and not self._events

    def check(self, request: GenerateRequest, *, has_grammars: bool = False) -> None:
        """Raises RequestError for ids and sampling this replica cannot have; any thread may ask.

        Args:
          has_grammars: grammars are compiled for it.
        """
        rule, model = self.scheduler.limits.rule, self.runner.context.model
        vocabulary.check_ids(request.prompt_token_ids, "the prompt", model.vocab_size)
        controls.check(
            request.params,
            model.vocab_size,
            skips_rows=rule.mode != "off",
            has_grammars=has_grammars,
        )

    def turn(self, events: Iterable[Event], deliver: Callable[[list[TokenEvent]], None]) -> None:
        """Reads what is due, plans the next step and launches it.

        Args:
          events: what has happened outside.
          deliver: gets the events for callers; called once the step is launched, or before where
            a program must be compiled first.
        """
        start = self._clock()
        events = list(events)
        self._constraints.expect(events)
        due = [*events, *self._constraints.poll(), *self._events, *self._read()]
        self._events = []
        read = self._clock()
        plan = self.scheduler.schedule(due, read)
        planned = self._clock()
        self._constraints.drop(plan.ended)
        told = reports.attach(plan.events, self._prompt_logprobs)
        self._draining = not plan.has_rows
        if self.scheduler.is_idle:
            self._widest, self._goes_on = (0, 0), False
        record = stats.StepRecord(plan_s=planned - read, read_s=read - start)
        if plan.has_rows:
            self._packer.update(plan.tables)
            steps = self._steps(plan)
            self.runner.programs.ask([*(step.key for step in steps), *self._awaited()])
            if told and not all(self.runner.programs.is_ready(step.key) for step in steps):
                deliver(told)
                told = []
            self._start(plan, steps, record)
        launched = self._clock()
        record.launch_s += launched - planned
        if told:
            deliver(told)
        record.deliver_s = self._clock() - launched

    # Launching ------------------------------------------------------------------------------------

    def _steps(self, plan: Plan) -> list[Launch]:
        held = () if self.is_warm else self._held_together(plan)
        steps = launches.split(plan, self.runner.buckets, *held)
        return steps if self.speculation is None else self.speculation.choose(steps)

    def _awaited(self) -> list[StepKey]:
        """The program that this busy period needs next and that is not there yet."""
        if self.is_warm or not self._goes_on:
            return []
        context, sequences = self._widest
        buckets, programs = self.runner.buckets, self.runner.programs
        key = buckets.flat if buckets.flat_rows else buckets.decode(sequences, context)
        return [] if programs.is_ready(key) else [key]

    def _held_together(self, plan: Plan) -> tuple[int, int]:
        """Sizes of this busy period: they grow and do not shrink, so few programs are made."""
        limits, context, sequences = self.scheduler.limits, *self._widest
        rows = [row.sequence for row in [*plan.prefill, *plan.decode]]
        context = max([context, *(s.most_positions for s in rows)])
        self._goes_on |= any(s.request.params.max_tokens > 1 for s in rows)
        live = self.scheduler.num_running + self.scheduler.num_waiting
        sequences = max(sequences, min(-(-live // limits.ranks), limits.slots))
        self._widest = min(context, limits.max_context), sequences
        return self._widest

    def _start(self, plan: Plan, steps: list[Launch], record: stats.StepRecord) -> None:
        record.decode_rows = len(plan.decode)
        record.prefill_tokens = sum([chunk.stop - chunk.start for chunk in plan.prefill])
        record.executions = len(steps)
        try:
            flight = self._launch(plan, steps, record)
        except Exception as error:
            self._recover(plan.number, error)
            return
        self._flights.append(flight)
        if self.watcher is not None:
            self.watcher.watch(record, flight.newest)

    def _launch(self, plan: Plan, steps: list[Launch], record: stats.StepRecord) -> Flight:
        runner, packer = self.runner, self._packer
        places = [packer.place(sequence) for sequence in plan.readers]
        flight = Flight(plan.number, runner.state.recent, places, record)
        constrained = self._constraints.concern(plan)
        launched: list[tuple[Launch, StepOutput]] = []
        if self.speculation is not None:
            flight.drafted = self.speculation.drafted(steps, plan.readers)
        if plan.restores:
            runner.load_states(plan.restores)
        for number, step in enumerate(steps, 1):
            output = runner.start(step.key, packer.pack(step))
            if number == 1:
                record.launched_at = self._clock()
            if reports.asks(step):
                output, found = reports.ask(runner, step, output)
                flight.reports += found
            assert output.newest is not None, "a step that draws tells what it has drawn"
            flight.newest = output.newest
            if constrained:
                launched.append((step, output))
            if runner.ranks > 1 and number % MOST_EXECUTIONS == 0:
                flight.newest.block_until_ready()
        if plan.saves:
            runner.save_states(plan.saves)
        if constrained:
            self._draw(flight, launched, record)
        flight.newest.copy_to_host_async()
        for report in flight.reports:
            report.words.copy_to_host_async()
        return flight

    def _draw(
        self, flight: Flight, launched: list[tuple[Launch, StepOutput]], record: stats.StepRecord
    ) -> None:
        """Draws under masks, once the plan before is done."""
        before = self._told
        if self._flights:
            start = self._clock()
            before = jax.device_get(self._flights[-1].newest)
            waited = self._clock() - start
            self._flights[-1].record.wait_s += waited
            record.launch_s -= waited
        newest, found, flight.failed = self._constraints.draw(launched, before)
        flight.reports += found
        if newest is not None:
            flight.newest = newest

    # Reading --------------------------------------------------------------------------------------

    def _read(self) -> list[Event]:
        """Results that are due: all but the newest where plans overlap, the oldest at least."""
        left = IN_FLIGHT - 1 if self.overlap else 0
        if self._awaited():  # launching will wait for it: what is known must not
            left = 0
        if self._draining:
            left = min(left, max(len(self._flights) - 1, 0))
        events: list[Event] = []
        while len(self._flights) > left:
            flight = self._flights[0]
            try:
                events.append(self._result(flight))
            except Exception as error:
                self._flights.clear()
                self.runner.reset()
                return [*events, StepFailed(flight.number, _reason(error))]
            self._flights.popleft()
        return events

    def _result(self, flight: Flight) -> StepResult:
        start = self._clock()
        newest = self._told = jax.device_get(flight.newest)
        flight.record.wait_s += self._clock() - start
        self.log.add(flight.record)
        told, drafts = newest[flight.places], None
        if self.speculation is None or flight.drafted is None:
            tokens = [[token] for token in told.tolist()]
        else:
            now = self._clock()
            tokens, drafts = self.speculation.read(flight.number, flight.drafted, told, now)
        logprobs = None
        if flight.reports:
            logprobs = reports.read(flight.reports, len(tokens), self._prompt_logprobs)
        return StepResult(flight.number, tokens, logprobs, flight.failed, drafts)

    def _recover(self, number: int, error: Exception) -> None:
        """A plan could not be launched: reads what was launched before it, then starts anew."""
        while self._flights:
            flight = self._flights.popleft()
            try:
                self._events.append(self._result(flight))
            except Exception as earlier:
                number, error = flight.number, earlier
                break
        self._flights.clear()
        self._events.append(StepFailed(number, _reason(error)))
        self.runner.reset()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

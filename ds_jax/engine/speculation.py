"""The host's part of speculation: how many drafts the next step verifies, and what became of them.

Decides the compiled size of a step that verifies drafts and the budget of every rank, or that the
step rests. Never decides whose drafts they are (the device does, by younger confidences), never
runs anything. In: launches, told words, measured times. Out: launches with sizes and budgets,
tokens, statistics.

The budget is decided from confidences two steps old: with a step in flight, these are the youngest
that are known; with none, the youngest but one. What is left of a compiled size is filled up.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ds_jax.engine.buckets import Buckets, StepKey
from ds_jax.engine.launches import Launch
from ds_jax.engine.sequence import Sequence as Running
from ds_jax.engine.sequence import State
from ds_jax.speculative import plan
from ds_jax.speculative.state import Told
from ds_jax.speculative.worth import Worth


@dataclasses.dataclass(frozen=True)
class Drafted:
    """What a plan's result has to be read with.

    Attributes:
      key: of the step that verifies drafts; None: there is none in the plan.
      alone: nothing else ran, so its time is that of this step.
      prefilled: readers in front of those of that step.
      readers: sequences in order.
      planned_ms: time expected; None: the curve does not know.
    """

    key: StepKey | None
    alone: bool
    prefilled: int
    readers: tuple[Running, ...]
    planned_ms: float | None = None


@dataclasses.dataclass
class Known:
    """Survivals [K] of a sequence's newest drafts and of those before; empty: none."""

    live: np.ndarray
    before: np.ndarray
    confidence: np.ndarray


NOTHING = np.zeros(0, np.float32)


class Speculation:
    """Rates, curves and statistics of one replica. Methods mutate it.

    Args:
      buckets: sizes of steps.
      ranks: data-parallel ranks.
    """

    def __init__(self, buckets: Buckets, ranks: int):
        self.buckets = buckets
        self.ranks = ranks
        self.planners: dict[StepKey, plan.Planner] = {}  # by the step with room for all drafts
        self.resting: dict[StepKey, plan.Planner] = {}  # the same, of the step that makes none
        self._worth = Worth()
        self._known: dict[int, Known] = {}
        self._drafted: set[int] = set()  # sequences whose newest step makes drafts
        self._last: tuple[int, float] | None = None  # number and end of the last step alone
        drafts = buckets.drafts
        self.verified = np.zeros(drafts, np.int64)
        self.accepted = np.zeros(drafts, np.int64)
        # confidences and accepted drafts of blocks verified whole, while somebody asks for them
        self.samples: list[tuple[np.ndarray, int]] | None = None
        self.rows = 0
        self.tokens = 0
        self.error = 0.0
        self.sizes: collections.Counter[int] = collections.Counter()
        self.rested = 0  # steps
        self.planned_ms = self.measured_ms = 0.0
        self.timed = 0

    def learn(self, times_ms: Mapping[StepKey, float]) -> None:
        """Takes measured times of steps; only these sizes are chosen from now on."""
        groups: dict[StepKey, dict[int, float]] = {}
        resting: dict[StepKey, dict[int, float]] = {}
        for key, time in times_ms.items():
            kind = resting if key.rests else groups
            kind.setdefault(self._full(key), {})[key.verify_rows] = time
        self.planners = {
            full: plan.Planner(plan.Curve.of(g), without=full.sequences)
            for full, g in groups.items()
        }
        self.resting = {full: plan.Planner(plan.Curve.of(g)) for full, g in resting.items()}

    def choose(self, steps: Sequence[Launch]) -> list[Launch]:
        """The launches, those that verify drafts with their size and budgets."""
        for step in steps:
            self._drafted -= {chunk.sequence.number for chunk in step.chunks}
        return [self._sized(s) if s.key.verify_rows else s for s in steps]

    def _full(self, key: StepKey) -> StepKey:
        """The step with room for all drafts."""
        rows = key.sequences * (1 + self.buckets.drafts)
        return dataclasses.replace(key, verify_rows=rows, rests=False)

    def _sized(self, launch: Launch) -> Launch:
        mine: list[list[Running]] = [[] for _ in range(self.ranks)]
        for row in launch.rows:
            mine[row.sequence.rank].append(row.sequence)
        numbers = {row.sequence.number for row in launch.rows}
        self._known = {n: known for n, known in self._known.items() if n in numbers}
        key, planner = launch.key, self.planners.get(launch.key)
        if planner is not None:
            seen: list[np.ndarray] = []
            rates = [self.rates(m, seen) for m in mine if m]
            self._worth.saw(np.array(seen))
            plain, most = self.resting.get(launch.key), max(map(len, mine))
            if plain is not None and self._worth.rests(most, planner, plain):
                return self._at_rest(launch)
            sizes = [planner.size(len(r), planner.budget(r)) or 0 for r in rates]
            key = dataclasses.replace(key, verify_rows=max(sizes))
            assert key.verify_rows, "no step holds all drafts"
        self._drafted = numbers
        each = key.drafts_of_one(self.buckets.drafts)
        budgets = [max(0, min(key.verify_rows - len(m), len(m) * each)) for m in mine]
        self.sizes[key.verify_rows] += 1
        return dataclasses.replace(launch, key=key, budgets=tuple(budgets))

    def _at_rest(self, launch: Launch) -> Launch:
        self._drafted = set()
        self.rested += 1
        key = self.buckets.resting(launch.key)
        assert key is not None, "its time was measured"
        return dataclasses.replace(launch, key=key, budgets=(0,) * self.ranks)

    def rates(self, sequences: Sequence[Running], seen: list[np.ndarray]) -> np.ndarray:
        """Survivals two steps old, float32 [R K]; appends those that are known to `seen`."""
        known: list[np.ndarray] = []
        for s in sequences:
            found = self._known.get(s.number)
            if s.request.params.needs_full_sampling:  # its drafts are never verified
                known.append(np.zeros(self.buckets.drafts, np.float32))
            elif found is None or s.number not in self._drafted:
                known.append(NOTHING)
            else:  # beside the step that is planned here, another may be in flight
                known.append(found.live if s.in_flight > 1 else found.before)
        seen += [k for k in known if len(k)]
        comes = [s.number in self._drafted for s in sequences]
        return plan.known_rates(known, self.buckets.drafts, comes)

    def drafted(self, steps: Sequence[Launch], readers: Sequence[Running]) -> Drafted:
        """What is needed to read the result of these launches."""
        verify = next((s for s in steps if s.key.verify_rows), None)
        if verify is None:
            return Drafted(None, False, len(readers), tuple(readers))
        planner, time = self._planner(verify.key), None
        if planner is not None:
            time = planner.step_ms(len(verify.rows), verify.key.verify_rows)
        first = len(readers) - len(verify.rows)
        return Drafted(verify.key, len(steps) == 1, first, tuple(readers), time)

    def _planner(self, key: StepKey) -> plan.Planner | None:
        return (self.resting if key.rests else self.planners).get(self._full(key))

    def read(
        self, number: int, drafted: Drafted, rows: np.ndarray, now_s: float
    ) -> tuple[list[list[int]], list[Sequence[float]]]:
        """Tokens of every reader, from its told words; counts what became of drafts.

        Also the confidence of each draft among them: all tokens of a reader but the last.

        Args:
          number: of the plan.
          rows: int32 [readers words].
          now_s: when its result was there.
        """
        told = Told.read(rows)
        drafts: list[Sequence[float]] = [()] * len(told.tokens)
        for place, sequence in enumerate(drafted.readers[drafted.prefilled :], drafted.prefilled):
            if sequence.state is not State.ENDED:  # it ended while this step ran: nobody reads it
                if drafted.key is None or not drafted.key.rests:
                    drafts[place] = self._count(sequence, told, place)
                self._note(sequence, told, place)
        self._time(number, drafted, now_s)
        return told.tokens, drafts

    def _count(self, sequence: Running, told: Told, place: int) -> Sequence[float]:
        known = self._known.get(sequence.number)
        verified, accepted = int(told.verified[place]), len(told.tokens[place]) - 1
        self.verified[:verified] += 1
        self.accepted[:accepted] += 1
        self.rows += 1
        self.tokens += accepted + 1
        if known is not None and verified:
            gap = told.accept_prob[place][:verified] - known.confidence[:verified]
            self.error += float(np.abs(gap).sum())
            if self.samples is not None and verified == len(known.confidence):
                self.samples.append((known.confidence, accepted))
        if not accepted:
            return ()
        past = told.accept_prob[place] if known is None else known.confidence
        return past[:accepted].tolist()

    def _note(self, sequence: Running, told: Told, place: int) -> None:
        """Confidences of the drafts that a step has made; one that rests makes none, but behind a
        token that was drawn under a grammar.
        """
        if not told.drafts[place]:
            self._known.pop(sequence.number, None)
            return
        known = self._known.get(sequence.number)
        sure = np.nan_to_num(told.confidence[place].astype(np.float32), nan=0.0)
        live = np.cumprod(np.clip(sure, 0, 1), dtype=np.float32)
        before = known.live if known is not None else NOTHING
        self._known[sequence.number] = Known(live, before, sure)

    def _time(self, number: int, drafted: Drafted, now_s: float) -> None:
        """The time between two results is that of the second step, if both ran alone."""
        last, self._last = self._last, (number, now_s) if drafted.alone else None
        if last is None or not drafted.alone or last[0] != number - 1 or drafted.key is None:
            return
        if drafted.planned_ms is None:
            return
        time_ms = (now_s - last[1]) * 1e3
        planner = self._planner(drafted.key)
        assert planner is not None, "its time was planned"
        planner.measured(len(drafted.readers), drafted.key.verify_rows, time_ms, 0.0)
        self.planned_ms += drafted.planned_ms
        self.measured_ms += time_ms
        self.timed += 1

    def stats(self) -> dict[str, int | float]:
        """Numbers since the start; lengths are tokens a sequence and step."""
        rows, verified = max(self.rows, 1), int(self.verified.sum())
        out: dict[str, int | float] = {
            "mean_accepted_length": self.tokens / rows if self.rows else 1.0,
            "mean_verified_length": verified / rows,
            "confidence_error": self.error / max(verified, 1),
            "drafting_rounds_total": self.rows,
            "drafts_verified_total": verified,
            "drafts_accepted_total": int(self.accepted.sum()),
            "planned_step_ms": self.planned_ms / max(self.timed, 1),
            "measured_step_ms": self.measured_ms / max(self.timed, 1),
        }
        for k in range(self.buckets.drafts):
            out[f"verified_at_{k + 1}"] = int(self.verified[k])
            out[f"accepted_at_{k + 1}"] = int(self.accepted[k])
        out["steps_without_drafts"] = self.rested
        for size, count in sorted(self.sizes.items()):
            out[f"steps_of_{size}_rows"] = count
        return out

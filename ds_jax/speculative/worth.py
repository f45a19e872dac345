"""Whether drafts pay at all.

Decides when steps stop making drafts and when they start again. Never decides how many are verified
(`plan`), never measures. In: survivals that steps have told, times of both kinds of steps. Out: yes
or no.

While steps rest, nothing is told about drafts. What they would be worth is reckoned with the
survivals of the last steps that made some; every so often a few steps try whether text has changed.
The survivals are those that budgets are made of, so the decision knows no more than a budget does.
"""

from __future__ import annotations

import numpy as np

from ds_jax.speculative.plan import Planner

RECENT, TRIED = 8.0, 2.0  # steps that the typical survivals remember; of a trial
MARGIN = 1.03  # how much faster drafts have to be before steps make some again
TRIAL = 4  # steps of a trial: the first has no drafts yet, and outcomes come two steps late
FIRST, LONGEST = 64, 1024  # steps of rest between trials; doubled each time that one fails


class Worth:
    """What drafts are worth to one replica, with all numbers of sequences. Methods mutate it."""

    def __init__(self) -> None:
        self.typical: np.ndarray | None = None  # [K] survivals
        self._rests = False  # but for trials
        self._rested = 0  # steps since the last trial
        self._trial = 0  # steps of a trial that are left
        self._tries = False  # the trial's outcome is still to be judged
        self._patience = FIRST

    def saw(self, rates: np.ndarray) -> None:
        """Survivals [sequences K] that the budgets of a step were made of."""
        if not len(rates):
            return
        mean = rates.mean(axis=0, dtype=np.float64)
        if self.typical is None:
            self.typical = mean
        else:
            self.typical += (mean - self.typical) / (TRIED if self._tries else RECENT)

    def rests(self, sequences: int, drafting: Planner, plain: Planner) -> bool:
        """Whether the next step makes and verifies no drafts.

        Args:
          sequences: of the step, on the rank that has most.
          drafting, plain: times of steps that make drafts, and of those that do not, in
            milliseconds.
        """
        if self.typical is None:
            return False
        if self._trial:
            self._trial -= 1
            return False
        self._tries = False
        time_ms = plain.step_ms(sequences, sequences)
        assert time_ms is not None, "the step that rests holds all sequences"
        typical = np.tile(self.typical.astype(np.float32), (sequences, 1))
        gain = drafting.best(typical)[1] * time_ms / sequences
        self._rests = gain < (MARGIN if self._rests else 1.0)
        if not self._rests:
            self._rested, self._patience = 0, FIRST
            return False
        if self._rested >= self._patience:
            self._rested, self._trial, self._tries = 0, TRIAL - 1, True
            self._patience = min(2 * self._patience, LONGEST)
            return False
        self._rested += 1
        return True

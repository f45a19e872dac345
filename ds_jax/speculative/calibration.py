"""How well confidences tell what is accepted, and the temperatures that make them do so.

Decides measures and the fit. Never runs a model; host only. In: logits of confidences [N K] and
which prefixes of drafts were accepted. Out: temperatures, errors.

The fit is sequential: survival k is survival k - 1 times sigmoid(logit / T_k), and T_k is the one
of 41 values from 0.1 to 10 with the smallest error of survival k, the first of equals.
"""

from __future__ import annotations

import dataclasses

import numpy as np

BINS = 15
GRID = np.logspace(-1.0, 1.0, 41)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Temperatures [K], and the expected calibration error of each survival before and after."""

    temperatures: np.ndarray
    error_before: np.ndarray
    error_after: np.ndarray


def error(probability: np.ndarray, outcome: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: sum over equal bins of share * abs(mean p - mean outcome)."""
    probability = np.asarray(probability, np.float64)
    outcome = np.asarray(outcome, np.float64)
    which = np.clip((probability * bins).astype(np.int64), 0, bins - 1)
    count = np.bincount(which, minlength=bins)
    gap = np.bincount(which, probability, bins) - np.bincount(which, outcome, bins)
    return float(np.abs(gap[count > 0]).sum() / max(len(probability), 1))


def auc(score: np.ndarray, outcome: np.ndarray) -> float:
    """Probability that an accepted one has the higher score, ties half; NaN if all are alike."""
    score, outcome = np.asarray(score, np.float64), np.asarray(outcome) > 0.5
    positive, negative = int(outcome.sum()), int((~outcome).sum())
    if not positive or not negative:
        return float("nan")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return float((rank[outcome].sum() - positive * (positive + 1) / 2) / (positive * negative))


def survivals(logits: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
    """Products of calibrated confidences [N K]."""
    scaled = np.asarray(logits, np.float64) / np.asarray(temperatures, np.float64)[None, :]
    return np.cumprod(_sigmoid(scaled), axis=1)


def fit(logits: np.ndarray, accepted: np.ndarray, grid: np.ndarray = GRID) -> Fit:
    """Temperatures from drafts that were all verified.

    Args:
      logits: of confidences at temperature 1, [N K].
      accepted: 1 where drafts 1..k were all accepted, [N K].
    """
    count = logits.shape[1]
    before = survivals(logits, np.ones(count))
    survival, chosen, errors = np.ones(len(logits)), [], []
    for k in range(count):
        tried = [survival * _sigmoid(np.asarray(logits[:, k], np.float64) / t) for t in grid]
        found = [error(p, accepted[:, k]) for p in tried]
        best = int(np.argmin(found))
        survival = tried[best]
        chosen.append(grid[best])
        errors.append(found[best])
    first = [error(before[:, k], accepted[:, k]) for k in range(count)]
    return Fit(np.array(chosen), np.array(first), np.array(errors))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -60.0, 60.0)))

"""Sampling in NumPy, float64, one row at a time: written from the formulas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def shaped(
    logits: np.ndarray,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    bias: Sequence[tuple[int, float]] = (),
) -> np.ndarray:
    """Logits after bias, repetition, frequency and presence penalty, in this order."""
    x = np.array(logits, np.float64)
    for token, value in bias:
        x[token] += value
    for token in {*prompt, *output}:
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
    for token in set(output):
        x[token] -= frequency * list(output).count(token) + presence
    return x


def probabilities(scaled: np.ndarray) -> np.ndarray:
    """Softmax."""
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def kept(scaled: np.ndarray, top_p: float = 1.0, top_k: int = -1, min_p: float = 0.0) -> np.ndarray:
    """Walks tokens from the most likely one on: until top_p is reached, top_k are kept, or a
    token is less than min_p times as likely as the first.
    """
    probs = probabilities(scaled)
    stays, total = np.zeros(len(scaled), bool), 0.0
    for count, token in enumerate(np.argsort(-scaled, kind="stable")):
        if (total >= top_p and top_p < 1) or (top_k > 0 and count >= top_k):
            break
        if probs[token] < min_p * probs.max():
            break
        stays[token] = True
        total += probs[token]
    return stays


def distribution(
    logits: np.ndarray,
    temperature: float,
    top_p: float = 1.0,
    top_k: int = -1,
    min_p: float = 0.0,
    **shape: object,
) -> np.ndarray:
    """What a token is drawn from: everything in its order."""
    scaled = shaped(logits, **shape) / temperature  # type: ignore[arg-type]
    probs = probabilities(scaled) * kept(scaled, top_p, top_k, min_p)
    return probs / probs.sum()


def logprobs(logits: np.ndarray) -> np.ndarray:
    """Log softmax."""
    x = np.asarray(logits, np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def top(logits: np.ndarray, count: int) -> list[int]:
    """The most likely ids; among equals the lower one first."""
    return np.argsort(-np.asarray(logits), kind="stable")[:count].tolist()

"""Which positions of a training row become blocks of the drafter, and what is asked of them.

Decides anchors and which labels count. Never runs a model. In: a mask of tokens that count.
Out: anchors, labels and masks.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Blocks of K labels behind anchors; A of them in each of B rows.

    Attributes:
      anchors: int [B A], position of the last known token; 0 where not kept.
      keep: bool [B A].
      labels: int [B A K], positions of the labels, clipped to the row; 0 where not kept.
      counted: bool [B A K], labels that count: all in front of them in the block count too.
    """

    anchors: np.ndarray
    keep: np.ndarray
    labels: np.ndarray
    counted: np.ndarray


def choose(mask: np.ndarray, random: np.ndarray, count: int, size: int) -> Blocks:
    """Up to `count` anchors a row, uniformly without repetition among those that are possible.

    Args:
      mask: float [B S], tokens that count are above 0.5; an anchor and its first label must.
      random: float [B S - 1], any independent numbers: the smallest become anchors.
      count: anchors a row (A).
      size: labels of a block (K).
    """
    counts = mask > 0.5
    possible = counts[:, :-1] & counts[:, 1:]
    keys = np.where(possible, random, np.inf)
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    keep = np.take_along_axis(possible, order, axis=1)
    if keep.shape[1] < count:
        pad = ((0, 0), (0, count - keep.shape[1]))
        order, keep = np.pad(order, pad), np.pad(keep, pad)
    last = mask.shape[1]
    sorted_anchors = np.sort(np.where(keep, order, last), axis=1)
    keep = sorted_anchors < last
    anchors = np.where(keep, sorted_anchors, 0)
    labels = anchors[:, :, None] + 1 + np.arange(size)[None, None, :]
    inside = labels < last
    labels = np.where(keep[:, :, None], np.minimum(labels, last - 1), 0)
    rows = np.arange(len(mask))[:, None, None]
    counted = inside & counts[rows, labels] & keep[:, :, None]
    return Blocks(anchors, keep, labels, np.logical_and.accumulate(counted, axis=2))

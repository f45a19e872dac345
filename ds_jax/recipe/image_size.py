"""How large an image becomes for the model, and how many tokens it takes.

Decides sizes and counts alone. Never sees a pixel. In: a width and a height in pixels. Out: the
size to scale to and the number of tokens.

An image is cut into patches of 14 x 14 pixels, 3 x 3 patches make a cell, and a cell is a token;
each row of cells ends with one more token, and two tokens frame the image.
"""

from __future__ import annotations

import dataclasses
import math

PATCH_PIXELS = 14
CELL_PIXELS = 3 * PATCH_PIXELS
MIN_PIXELS = 544 * 544
MAX_TOKENS = 1024
FRAME_TOKENS = 2
MAX_ROUNDS = 100  # random sizes of any shape settle within 10


class CalcResizeError(ValueError):
    """Fitting an image found no size that stays as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """Where an image size ends: pixels of both sides and tokens."""

    width: int
    height: int
    tokens: int


def fit(width: int, height: int) -> Fit:
    """The size that the model sees of an image: repeats `_round` until nothing changes.

    Args:
      width: pixels, from 0.
      height: pixels, from 0.

    Returns:
      Sides that are multiples of 14 and at most 1024 tokens.

    Raises:
      CalcResizeError: the sizes never repeat. No such size is known.
    """
    for _ in range(MAX_ROUNDS):
        fitted = _round(width, height)
        if (fitted.width, fitted.height) == (width, height):
            return fitted
        width, height = fitted.width, fitted.height
    raise _no_end(width, height)


def fit_below(width: int, height: int, max_side: int) -> Fit:
    """`fit` of the largest size of about this shape with no side above `max_side` (whole cells).

    Raises:
      CalcResizeError: as `fit`.
    """
    for _ in range(MAX_ROUNDS):
        fitted = fit(width, height)
        longer = max(fitted.width, fitted.height)
        if longer <= max_side:
            return fitted
        scale = max_side / longer
        width = min(max_side, _whole_patches(math.ceil(fitted.width * scale)))
        height = min(max_side, _whole_patches(math.ceil(fitted.height * scale)))
    raise _no_end(width, height)


def limit_longer_side(width: int, height: int, maximum: int) -> tuple[int, int]:
    """Scales both sides so that the longer one is at most `maximum` pixels, each at least 1."""
    longer = max(width, height)
    if longer <= maximum:
        return width, height
    scale = maximum / longer
    return max(1, _nearest(width * scale)), max(1, _nearest(height * scale))


def _round(width: int, height: int) -> Fit:
    """One round: enlarge what is too small, fill up patches, shrink what takes too many tokens."""
    if 0 < width * height < MIN_PIXELS:
        scale = math.sqrt(MIN_PIXELS / (width * height))
        width, height = int(width * scale), int(height * scale)
    full_width, full_height = _whole_patches(width), _whole_patches(height)
    if _tokens(full_width, full_height) > MAX_TOKENS:
        full_width, full_height = _shrunk(width, height)
    return Fit(full_width, full_height, _tokens(full_width, full_height))


def _shrunk(width: int, height: int) -> tuple[int, int]:
    """The largest size of about this shape that takes at most MAX_TOKENS.

    With rows = columns * ratio: rows * (columns + 1) = MAX_TOKENS - FRAME_TOKENS.
    """
    budget = MAX_TOKENS - FRAME_TOKENS
    ratio = height / width if width else math.inf
    columns = math.sqrt(budget / ratio + 0.25) - 0.5
    rows = columns * ratio
    if columns < 1:
        return CELL_PIXELS, budget // 2 * CELL_PIXELS
    if rows < 1:
        return (budget - 1) * CELL_PIXELS, CELL_PIXELS
    scale = min(int(columns) * CELL_PIXELS / width, int(rows) * CELL_PIXELS / height)
    return (
        int(width * scale / PATCH_PIXELS) * PATCH_PIXELS,
        int(height * scale / PATCH_PIXELS) * PATCH_PIXELS,
    )


def _whole_patches(pixels: int) -> int:
    return -(-pixels // PATCH_PIXELS) * PATCH_PIXELS


def _cells(pixels: int) -> int:
    return -(-(pixels // PATCH_PIXELS) // 3)


def _tokens(width: int, height: int) -> int:
    return _cells(height) * (_cells(width) + 1) + FRAME_TOKENS


def _nearest(value: float) -> int:
    """The nearest integer, halves upwards (`value` is not negative)."""
    down = math.floor(value)
    return down + (value - down >= 0.5)


def _no_end(width: int, height: int) -> CalcResizeError:
    return CalcResizeError(
        f"image resize did not converge after {MAX_ROUNDS} iterations, "
        f"last result: {width}x{height}"
    )

"""Points and lines as an SVG image.

Decides ticks, colours and the form. Never measures, imports nothing to draw with. In: named series
of points. Out: the text of an SVG file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 40, 56
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
Point = tuple[float, float, str]  # x, y, and a word beside it


def svg(series: Mapping[str, Sequence[Point]], title: str, x_label: str, y_label: str) -> str:
    """Series of points joined by lines, both axes from 0."""
    points = [point for line in series.values() for point in line]
    xs, ys = ticks(max(p[0] for p in points)), ticks(max(p[1] for p in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (WIDTH - LEFT - RIGHT) * x / xs[-1], (HEIGHT - TOP - BOTTOM) * y / ys[-1]
        return LEFT + across, HEIGHT - BOTTOM - up

    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 18, title, "start"),
    ]
    for x in xs:
        at, _ = place(x, 0)
        out.append(_line(at, TOP, at, bottom, "#ddd"))
        out.append(_text(at, bottom + 18, f"{x:g}", "middle"))
    for y in ys:
        _, at = place(0, y)
        out.append(_line(LEFT, at, right, at, "#ddd"))
        out.append(_text(LEFT - 8, at + 4, f"{y:g}", "end"))
    out.append(_text((LEFT + right) / 2, HEIGHT - 14, x_label, "middle"))
    middle = (TOP + bottom) / 2
    turn = f' transform="rotate(-90 18 {middle:.0f})"'
    out.append(_text(18, middle, y_label, "middle", turn))
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y, _ in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (*_, word) in zip(places, line, strict=True):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            out.append(_text(x + 7, y - 6, word, "start"))
        height = TOP + 10 + 18 * number
        out.append(_line(right + 12, height, right + 32, height, colour))
        out.append(_text(right + 38, height + 4, name, "start"))
    return "\n".join([*out, "</svg>\n"])


def ticks(most: float) -> list[float]:
    """About five round numbers from 0 to one not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / 5
    unit = 10 ** math.floor(math.log10(raw))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if f * unit >= raw * (1 - 1e-9))
    return [round(n * step, 12) for n in range(math.ceil(most / step - 1e-9) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{1 if colour == "#ddd" else 2}"/>'
    )


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'

"""Line charts as inline SVG, for the HTML report: learning curves, and whatever else is a few series of numbers.

Pure: text out, nothing is written. Every name is escaped. Values that are not finite leave a gap in their line.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 440, 200, 52, 12, 24, 12
PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2")


class Curves(Struct, frozen=True):
    """Some series over their index, which counts from 1 and is called `over`."""

    title: str
    series: Mapping[str, Sequence[float]]
    over: str = "step"


def figure(curves: Curves) -> str:
    """The chart with its title and legend; one without a finite value says so."""
    values = [value for line in curves.series.values() for value in line if math.isfinite(value)]
    title = html.escape(curves.title)
    if not values:
        return f"<figure><figcaption>{title}: no values</figcaption></figure>"
    scale = Scale(values, max(len(line) for line in curves.series.values()))
    body = "".join(_line(scale, line, colour) for line, colour in zip(curves.series.values(), _colours(), strict=False))
    return (
        f"<figure><figcaption>{title}{_legend(curves)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{html.escape(title, quote=True)}">'
        f"{_axes(scale, html.escape(curves.over))}{body}</svg></figure>"
    )


class Scale:
    """Where a value of a series goes on the paper."""

    def __init__(self, values: Sequence[float], count: int) -> None:
        self.low, self.high, self.count = min(values), max(values), count
        self._span = (self.high - self.low) or 1.0

    def x(self, index: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (index / (self.count - 1) if self.count > 1 else 0.5)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / self._span


def _line(scale: Scale, line: Sequence[float], colour: str) -> str:
    return "".join(_piece(scale, piece, colour) for piece in _pieces(line))


def _pieces(line: Sequence[float]) -> Iterator[list[tuple[int, float]]]:
    """The runs of finite values, with their indices."""
    piece: list[tuple[int, float]] = []
    for index, value in enumerate(line):
        if math.isfinite(value):
            piece.append((index, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _piece(scale: Scale, piece: Sequence[tuple[int, float]], colour: str) -> str:
    if len(piece) == 1:
        index, value = piece[0]
        return f'<circle cx="{scale.x(index):.1f}" cy="{scale.y(value):.1f}" r="2" fill="{colour}"/>'
    points = " ".join(f"{scale.x(index):.1f},{scale.y(value):.1f}" for index, value in piece)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _axes(scale: Scale, over: str) -> str:
    floor = HEIGHT - BOTTOM
    frame = f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="currentColor" opacity=".35"/>'
    marks = [
        (LEFT - 6, TOP + 4, "end", f"{scale.high:.3g}"),
        (LEFT - 6, floor, "end", f"{scale.low:.3g}"),
        (LEFT, HEIGHT - 8, "start", "1"),
        (WIDTH - RIGHT, HEIGHT - 8, "end", f"{over} {scale.count}"),
    ]
    return frame + "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="currentColor">{text}</text>'
        for x, y, anchor, text in marks
    )


def _legend(curves: Curves) -> str:
    return "".join(
        f' <span style="color:{colour}">● {html.escape(name)}</span>'
        for name, colour in zip(curves.series, _colours(), strict=False)
    )


def _colours() -> Iterator[str]:
    while True:
        yield from PALETTE

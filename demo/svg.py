"""Plots as SVG text, by hand: a frame with axes, and the few marks that the report needs.

Colours are CSS classes that the page defines for light and dark. Every plot has a title and a description for those who
do not see it, and names its axes with their units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44
Point = tuple[float, float]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from ``low`` to at least ``high``, about this many."""
    span = max(high - low, 1e-9)
    raw = span / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    first = math.floor(low / step)
    return [step * i for i in range(first, math.ceil(high / step - 1e-9) + 1)]


def number(value: float) -> str:
    """As an axis shows it: 12, 2.5, 40 k, 1.2 M."""
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if unit == ' M' else 1e3):g}{unit}"
    return f"{value:g}"


class Plot:
    """A frame from ``x`` to ``y`` ranges in data units; marks are added, then ``svg`` gives the text."""

    def __init__(
        self, title: str, description: str, x: Point, y: Point, *, height: int = 260, left: int = LEFT
    ) -> None:
        self._head = (title, description)
        self._x, self._y = x, y
        self._height, self._left = height, left
        self._marks: list[str] = []

    def px(self, x: float) -> float:
        """Where a value lies across."""
        low, high = self._x
        return self._left + (x - low) / (high - low) * (WIDTH - self._left - RIGHT)

    def py(self, y: float) -> float:
        """Where a value lies down."""
        low, high = self._y
        return self._height - BOTTOM - (y - low) / (high - low) * (self._height - TOP - BOTTOM)

    def axes(
        self,
        x_label: str,
        y_label: str,
        *,
        x_ticks: Sequence[float] | None = None,
        x_text: Callable[[float], str] = number,
        y_ticks: Sequence[float] = (),
    ) -> Plot:
        """Grid lines, numbers and labels with units."""
        bottom = self._height - BOTTOM
        for y in y_ticks:
            at = self.py(y)
            self.add(f'<line class="grid" x1="{self._left}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            self.text(self._left - 8, at + 4, number(y), "end")
        for x in ticks(*self._x, 8) if x_ticks is None else x_ticks:
            if self._x[0] <= x <= self._x[1]:
                self.text(self.px(x), bottom + 18, x_text(x), "middle")
        self.add(f'<line class="axis" x1="{self._left}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
        middle = (self._left + WIDTH - RIGHT) / 2
        self.text(middle, self._height - 6, x_label, "middle", "label")
        if y_label:
            y = (TOP + bottom) / 2
            self.add(
                f'<text class="label" text-anchor="middle" transform="translate(14 {y:.0f}) rotate(-90)">'
                f"{escape(y_label)}</text>"
            )
        return self

    def add(self, mark: str) -> None:
        """SVG as it is."""
        self._marks.append(mark)

    def text(self, x: float, y: float, words: str, anchor: str = "start", cls: str = "tick") -> None:
        """Words at a place in pixels."""
        self.add(f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, points: Iterable[Point], cls: str) -> None:
        """A line through points in data units."""
        path = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in points)
        self.add(f'<polyline class="line {cls}" points="{path}"/>')

    def area(self, points: Sequence[Point], cls: str) -> None:
        """What lies under a line."""
        base = self.py(self._y[0])
        path = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in points)
        first, last = self.px(points[0][0]), self.px(points[-1][0])
        self.add(f'<polygon class="area {cls}" points="{first:.1f},{base:.1f} {path} {last:.1f},{base:.1f}"/>')

    def column(self, x: float, width: float, y: float, cls: str, tip: str) -> None:
        """An upright bar from 0; ``x`` and ``width`` in pixels."""
        top, base = self.py(y), self.py(0)
        self.add(
            f'<rect class="{cls}" x="{x:.1f}" y="{min(top, base):.1f}" width="{width:.1f}" '
            f'height="{abs(base - top):.1f}" rx="2"><title>{escape(tip)}</title></rect>'
        )

    def event(self, x: float, words: str, cls: str, *, row: int = 0) -> None:
        """A moment: an upright line with its name, on the side where there is room."""
        at = self.px(x)
        bottom = self._height - BOTTOM
        self.add(f'<line class="event {cls}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
        room = at + 7 * len(words) < WIDTH - RIGHT
        self.text(at + (6 if room else -6), TOP + 12 + 16 * row, words, "start" if room else "end", f"note {cls}")

    def svg(self) -> str:
        """The whole."""
        return svg(*self._head, self._height, self._marks)


def svg(title: str, description: str, height: float, marks: Iterable[str]) -> str:
    """Marks as a picture of the common width."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}. {escape(description)}">'
        f"{''.join(marks)}</svg>"
    )

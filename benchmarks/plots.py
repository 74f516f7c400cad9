"""Line charts as SVG files that stand alone: readable on light and dark pages, with a legend and names for those who do
not see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from demo.svg import LEFT, WIDTH, Plot, number, ticks

HEIGHT = 300
LEGEND_COLUMNS, LEGEND_STEP = 3, 20
# Told apart by the colour-blind too; the second of each pair is for dark pages.
COLOURS = (
    ("#0072b2", "#56b4e9"), ("#d55e00", "#ff8c42"), ("#009e73", "#2fd6a8"), ("#b0558f", "#e08cc4"), ("#8a6d00", "#e8c547"),
    ("#5b4bb7", "#a79bf0"), ("#5f6b76", "#aab4be"), ("#a11d33", "#ff7d8f"), ("#3d7a1e", "#9bd573"), ("#00707a", "#4fd0dc"),
    ("#1b1b1b", "#f2f2f2"), ("#7a4a21", "#c9975e"),
)  # fmt: skip
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .label, .title { fill: #111 }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #ddd } .axis { stroke: #555 } .line { fill: none; stroke-width: 2 } .page { fill: #fff }
@media (prefers-color-scheme: dark) {
text { fill: #bbb } .label, .title { fill: #eee } .grid { stroke: #333 } .axis { stroke: #999 } .page { fill: #0d1117 } }
"""


class Line(NamedTuple):
    """One series; ``dashed`` sets others' lines apart from Penstock's."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def marks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis that reach over both ends: 1, 2, 5, 10 …; powers of ten over four decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 4 else (1,)
    every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    begin = max((at for at in every if at <= low * 1.001), default=every[0])
    end = min((at for at in every if at >= high * 0.999), default=every[-1])
    return [at for at in every if begin <= at <= end]


def chart(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = True,
    log_y: bool = False,
    x_text: Callable[[float], str] = number,
) -> str:
    """The SVG text. Logarithmic axes need values above 0; a linear y begins at 0. Raises ``ValueError`` without points."""
    every = [point for line in lines for point in line.points]
    if not every:
        raise ValueError(f"the chart {title!r} has no points; leave it out")
    across, up = sorted({x for x, _ in every}), [y for _, y in every]
    y_ticks = marks(min(up) * 0.9, max(up) * 1.1) if log_y else ticks(0, max(up) * 1.05)
    scale_x = math.log10 if log_x else float
    scale_y = math.log10 if log_y else float
    ends = scale_x(across[0]), scale_x(across[-1])
    room = max((ends[1] - ends[0]) * 0.03, 1e-3)
    about = f"{y_label} against {x_label}: {', '.join(line.name for line in lines)}."
    plot = Plot(
        title, about, (ends[0] - room, ends[1] + room), (scale_y(y_ticks[0]), scale_y(y_ticks[-1])), height=HEIGHT
    )
    plot.axes(x_label, y_label, x_ticks=())
    for y in y_ticks:
        at = plot.py(scale_y(y))
        plot.add(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 16}" y1="{at:.1f}" y2="{at:.1f}"/>')
        plot.text(LEFT - 8, at + 4, number(y), "end")
    for x in _apart(across, scale_x, plot):
        plot.text(plot.px(scale_x(x)), HEIGHT - 26, x_text(x), "middle")
    for place, line in enumerate(lines):
        _draw(plot, line, place, [(scale_x(x), scale_y(y)) for x, y in sorted(line.points)])
    return _file(plot.svg(), title, lines)


def _apart(across: Sequence[float], scale: Callable[[float], float], plot: Plot) -> list[float]:
    """Those values that have room for their number."""
    kept: list[float] = []
    for x in across:
        if not kept or plot.px(scale(x)) - plot.px(scale(kept[-1])) >= 44:
            kept.append(x)
    return kept


def _draw(plot: Plot, line: Line, place: int, points: Sequence[tuple[float, float]]) -> None:
    plot.line(points, f"s{place % len(COLOURS)}" + (" dashed" if line.dashed else ""))
    for x, y in points:
        tip = escape(line.name)
        plot.add(
            f'<circle class="d{place % len(COLOURS)}" cx="{plot.px(x):.1f}" cy="{plot.py(y):.1f}" r="3.2">'
            f"<title>{tip}</title></circle>"
        )


def _file(plot: str, title: str, lines: Sequence[Line]) -> str:
    """The plot between its title and its legend, with the colours of both kinds of page."""
    rows = -(-len(lines) // LEGEND_COLUMNS)
    top, height = 30, 30 + HEIGHT + 10 + rows * LEGEND_STEP
    inner = plot.replace("<svg ", f'<svg y="{top}" width="{WIDTH}" height="{HEIGHT}" ', 1)
    legend = []
    for place, line in enumerate(lines):
        x = LEFT + place % LEGEND_COLUMNS * ((WIDTH - LEFT) // LEGEND_COLUMNS)
        y = top + HEIGHT + 14 + place // LEGEND_COLUMNS * LEGEND_STEP
        cls = f"line s{place % len(COLOURS)}" + (" dashed" if line.dashed else "")
        legend.append(f'<line class="{cls}" x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}"/>')
        legend.append(f'<text x="{x + 34}" y="{y}">{escape(line.name)}</text>')
    light, dark = ("".join(_colour(i, pair[which]) for i, pair in enumerate(COLOURS)) for which in (0, 1))
    style = f"{STYLE}.dashed {{ stroke-dasharray: 6 4 }} {light} @media (prefers-color-scheme: dark) {{ {dark} }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f'<style>{style}</style><rect class="page" width="{WIDTH}" height="{height}"/>'
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>{inner}{"".join(legend)}</svg>\n'
    )


def _colour(place: int, colour: str) -> str:
    return f".s{place} {{ stroke: {colour} }} .d{place} {{ fill: {colour} }} "

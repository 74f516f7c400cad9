"""One HTML page: figures, tables with bars, and a time line. It needs nothing besides itself, and runs no script."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape

from penstock.streams.spark.report.style import STYLE

ROWS_MAX = 400
"""The longest table that is shown whole."""


@dataclasses.dataclass(frozen=True)
class Table:
    """``numbers``: the columns that are figures; ``bar``: the one of them that is drawn, too."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int]]
    numbers: Sequence[int] = ()
    bar: int | None = None


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, and below it sentences and tables. ``facts``: names with their values."""

    title: str
    lines: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    spans: Sequence[TimeSpan] = ()


@dataclasses.dataclass(frozen=True)
class TimeSpan:
    """A bar of the time line, in milliseconds from the job's begin. ``within``: it is a part of the one above."""

    name: str
    begin_ms: int
    end_ms: int
    note: str = ""
    within: bool = False


@dataclasses.dataclass(frozen=True)
class Page:
    """``verdict``: one sentence; ``good``: whether it is what one hoped for."""

    title: str
    about: str
    verdict: str
    good: bool
    tiles: Sequence[tuple[str, str]]
    sections: Sequence[Section]


def html_of(page: Page) -> str:
    """The page's text."""
    tiles = "".join(f"<li>{_text(name)}<b>{_text(value)}</b></li>" for name, value in page.tiles)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(page.title)}</title><style>{STYLE}</style></head><body><main>"
        f'<header><p class="about">{_text(page.about)}</p><h1>{_text(page.title)}</h1>'
        f'<p class="{"good" if page.good else "bad"}">{_text(page.verdict)}</p></header>'
        f'<ul class="tiles">{tiles}</ul>{"".join(map(_section, page.sections))}</main></body></html>\n'
    )


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration_text(milliseconds: float) -> str:
    """A duration for people."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _text(value: object) -> str:
    return escape(str(value))


def _section(section: Section) -> str:
    lines = "".join(f"<p>{_text(line)}</p>" for line in section.lines)
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in section.facts)
    return (
        f"<section><h2>{_text(section.title)}</h2>{lines}"
        + (f"<dl>{facts}</dl>" if facts else "")
        + "".join(map(_table, section.tables))
        + (_time_line(section.spans) if section.spans else "")
        + "</section>"
    )


def _table(table: Table) -> str:
    largest = max([int(row[table.bar]) for row in table.rows] or [0]) if table.bar is not None else 0
    shown = table.rows[:ROWS_MAX]
    head = "".join(f'<th scope="col"{_kind(i, table)}>{_text(name)}</th>' for i, name in enumerate(table.columns))
    body = "".join(
        "<tr>" + "".join(_cell(cell, i, table, largest) for i, cell in enumerate(row)) + "</tr>" for row in shown
    )
    left = len(table.rows) - len(shown)
    more = f"<p>and {left:,} more rows</p>" if left else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(cell: str | int, i: int, table: Table, largest: int) -> str:
    shown = f"{cell:,}" if isinstance(cell, int) else _text(cell)
    if i == table.bar and largest:
        shown += f'<span class="bar" style="width:{100 * int(cell) / largest:.1f}%"></span>'
    return f"<td{_kind(i, table)}>{shown}</td>"


def _kind(i: int, table: Table) -> str:
    return ' class="number"' if i in table.numbers else ""


def _time_line(spans: Sequence[TimeSpan]) -> str:
    whole = max(max(s.end_ms for s in spans), 1)
    rows = "".join(
        f'<div class="span{" within" if s.within else ""}"><span class="name">{_text(s.name)}</span>'
        f'<span class="track"><i style="left:{100 * s.begin_ms / whole:.2f}%;'
        f'width:{100 * max(s.end_ms - s.begin_ms, 0) / whole:.2f}%"></i></span>'
        f'<span class="took">{duration_text(s.end_ms - s.begin_ms)}</span>'
        f'<span class="note">{_text(s.note)}</span></div>'
        for s in spans
    )
    return f'<div class="time">{rows}</div>'

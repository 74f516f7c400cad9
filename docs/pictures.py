"""The pictures of the concepts page, as SVG that takes its colours from the page, so that they suit both themes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

WIDTH = 720
MARK = "var(--md-accent-fg-color)"
TEXT = "var(--md-default-fg-color)"
LIGHT = "var(--md-default-fg-color--lightest)"
FAINT = "var(--md-default-fg-color--light)"


def svg(title: str, height: int, parts: Sequence[str]) -> str:
    """A picture with its title for those who do not see it."""
    return (
        f'<svg class="picture" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg" font-size="14" fill="{TEXT}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, said: str, anchor: str = "middle", fill: str = TEXT) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(said)}</text>'


def box(
    x: float, y: float, width: float, height: float, said: str = "", fill: str = LIGHT, dashed: bool = False
) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    shape = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{FAINT}"{dash}/>'
    )
    return shape + (text(x + width / 2, y + height / 2 + 5, said) if said else "")


def dot(x: float, y: float, said: str = "", fill: str = MARK) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="7" fill="{fill}"/>' + (text(x, y - 12, said) if said else "")


def line(
    x1: float, y1: float, x2: float, y2: float, arrow: bool = False, colour: str = FAINT, dashed: bool = False
) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    out = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="2"{dash}/>'
    if arrow and y1 == y2:
        out += f'<path d="M{x2:g} {y2:g} l-9 -5 v10 z" fill="{colour}"/>'
    elif arrow:
        out += f'<path d="M{x2:g} {y2:g} l-5 -9 h10 z" fill="{colour}"/>'
    return out


def time_axis(y: float, labels: Sequence[str], x: float = 60, step: float = 200) -> list[str]:
    """An axis of event time with a label at every step."""
    out = [line(x, y, WIDTH - 20, y, arrow=True), text(WIDTH - 20, y + 22, "event time", "end", FAINT)]
    for number, label in enumerate(labels):
        out += [line(x + number * step, y - 5, x + number * step, y + 5), text(x + number * step, y + 22, label)]
    return out


def window() -> str:
    parts = [box(60, 30, 198, 70, fill="none"), box(260, 30, 198, 70, fill="none"), box(460, 30, 198, 70, fill="none")]
    parts += [text(159, 22, "3 events"), text(359, 22, "2 events"), text(559, 22, "1 event")]
    parts += [dot(x, 65) for x in (90, 150, 220, 300, 410, 520)]
    return svg(
        "Six events in three tumbling windows of a minute", 150, [*parts, *time_axis(115, ["12:00", "12:01", "12:02"])]
    )


def watermark() -> str:
    parts = [dot(100, 70, "1"), dot(215, 70, "2"), dot(145, 70, "3"), dot(350, 70, "4"), dot(290, 70, "5")]
    parts += [dot(180, 70, "6", "var(--md-code-hl-number-color)"), line(255, 20, 255, 120, colour=MARK, dashed=True)]
    parts += [text(262, 20, "watermark after event 5: nothing earlier is expected", "start"), text(180, 100, "late")]
    return svg(
        "Events numbered by arrival. The watermark lies behind the latest event time; event 6 comes after it and is late",
        160,
        [*parts, *time_axis(115, ["12:00", "12:01", "12:02"])],
    )


def pane() -> str:
    parts = [text(60, 24, "one window, 12:00 to 12:01, three panes", "start")]
    for x, name, discarding, accumulating in (
        (60, "early", "2", "2"),
        (280, "on time", "3", "5"),
        (500, "late", "1", "6"),
    ):
        parts += [box(x, 40, 180, 34, name), text(x + 90, 98, f"discarding: {discarding}")]
        parts += [text(x + 90, 120, f"accumulating: {accumulating}")]
    parts += [line(260, 36, 260, 126, colour=MARK, dashed=True), text(260, 146, "the watermark passes 12:01")]
    return svg("A window that is emitted early, on time and late", 156, parts)


def join() -> str:
    parts = [
        text(14, 55, "orders", "start"),
        text(14, 115, "payments", "start"),
        line(90, 50, 690, 50),
        line(90, 110, 690, 110),
    ]
    parts += [dot(180, 50), dot(360, 50), dot(600, 50), dot(240, 110), dot(400, 110), dot(500, 110)]
    parts += [
        line(180, 57, 240, 103, colour=MARK),
        line(360, 57, 400, 103, colour=MARK),
        line(600, 57, 500, 103, colour=MARK),
    ]
    parts += [box(260, 30, 200, 100, fill="none", dashed=True), text(360, 24, "within = 1 min of this order")]
    return svg("Orders and payments with the same key join where their times are within a minute", 150, parts)


def exactly_once() -> str:
    parts = [box(10, 50, 110, 44, "read"), line(122, 72, 148, 72, arrow=True), box(150, 50, 120, 44, "process")]
    parts += [line(272, 72, 298, 72, arrow=True), box(300, 20, 230, 110, fill="none", dashed=True)]
    parts += [box(315, 30, 200, 26, "outputs"), box(315, 62, 200, 26, "changelogs"), box(315, 94, 200, 26, "positions")]
    parts += [text(415, 150, "one transaction: all or nothing"), line(532, 72, 558, 72, arrow=True)]
    parts += [box(560, 50, 150, 44, "local stores")]
    parts += [text(200, 120, "crash here: as if it"), text(200, 138, "had not been read")]
    parts += [text(635, 120, "crash here: restored"), text(635, 138, "from the changelogs")]
    return svg(
        "Outputs, changelogs and positions are committed in one transaction, local stores are written after it",
        165,
        parts,
    )


def lockstep() -> str:
    parts = [text(10, 24, "independent operators: the whole batch at once", "start")]
    for at, name in enumerate(("filter", "map", "count")):
        parts += [box(10 + at * 240, 36, 200, 40, f"{name}: records 1 2 3")]
        if at:
            parts.append(line(at * 240 - 28, 56, at * 240 + 8, 56, arrow=True))
    parts.append(text(10, 112, "operators that could see each other's order: record by record", "start"))
    for at, name in enumerate(("1: join, count", "2: join, count", "3: join, count")):
        parts += [box(10 + at * 240, 124, 200, 40, name)]
        if at:
            parts.append(line(at * 240 - 28, 144, at * 240 + 8, 144, arrow=True))
    return svg(
        "A batch runs through operators as a whole, or record by record in lockstep, with the same answer", 180, parts
    )


PICTURES: dict[str, Callable[[], str]] = {
    "window": window,
    "watermark": watermark,
    "pane": pane,
    "join": join,
    "exactly-once": exactly_once,
    "lockstep": lockstep,
}

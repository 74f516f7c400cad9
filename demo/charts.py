"""The plots about the run: throughput, what was left per partition, take-over and restore, and the views that came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from demo.findings import Drain, Findings, Report
from demo.svg import TOP, WIDTH, Plot, svg, ticks

BIN_S = 0.5
_RIGHT_OF_BARS = 130


def throughput(drain: Drain) -> str:
    """Records of the stream per second, between commits as they were seen."""
    points = list(_rates(drain))
    last_s = max(drain.done_s, BIN_S)
    y_ticks = ticks(0, max((y for _, y in points), default=1.0))
    plot = Plot(
        "Throughput",
        f"Records committed per second, over {last_s:.0f} seconds; the kill and the take-over are marked.",
        (0, last_s),
        (0, y_ticks[-1]),
    ).axes("seconds since the workers were started", "records per second", y_ticks=y_ticks)
    if points:
        plot.area(points, "one")
        plot.line(points, "one")
    _mark_kill(plot, drain)
    return plot.svg()


def _rates(drain: Drain) -> Iterator[tuple[float, float]]:
    """The mean of each bin of time."""
    before_s, before = 0.0, 0
    for sample in drain.samples:
        if sample.at_s - before_s < BIN_S:
            continue
        if sample.at_s > drain.done_s + BIN_S:
            return
        now = drain.of_stream(sample)
        yield min(sample.at_s, drain.done_s), max(now - before, 0) / (sample.at_s - before_s)
        before_s, before = sample.at_s, now


def _mark_kill(plot: Plot, drain: Drain) -> None:
    if drain.kill is not None:
        plot.event(drain.kill.at_s, f"SIGKILL {drain.kill.worker}", "bad")
        if drain.takeover_s is not None:
            plot.event(drain.kill.at_s + drain.takeover_s, "taken over", "good", row=1)


def left_before(drain: Drain) -> str:
    """What each partition of the stream still held, the killed worker's in another colour."""
    ends = {name: drain.ends[name] for name in drain.stream_partitions}
    y_ticks = ticks(0, max(ends.values(), default=1) or 1)
    last_s = max(drain.done_s, BIN_S)
    plot = Plot(
        "Records left per partition",
        "For each partition of the stream, how many records were not committed yet; nobody commits until "
        "the workers have started, and those of the killed worker stand still until the other commits for them.",
        (0, last_s),
        (0, y_ticks[-1]),
    ).axes("seconds since the workers were started", "records not yet committed", y_ticks=y_ticks)
    lost = set() if drain.kill is None else set(drain.kill.left)
    for name, end in ends.items():
        points = [(s.at_s, float(end - s.committed.get(name, 0))) for s in drain.samples if s.at_s <= last_s]
        if end and points:
            plot.line(points, "two" if name in lost else "one")
    _mark_kill(plot, drain)
    return plot.svg()


def bars(title: str, description: str, rows: list[tuple[str, float, str, str]], unit: str) -> str:
    """Lying bars: name, value, what stands behind it, class."""
    most = max((value for _, value, _, _ in rows), default=1.0) or 1.0
    left, step = 230, 34
    height = TOP + step * len(rows) + 26
    marks: list[str] = []
    for place, (name, value, said, cls) in enumerate(rows):
        y = TOP + place * step
        width = max(value / most * (WIDTH - left - _RIGHT_OF_BARS), 1.5)
        marks.append(f'<text class="name" x="{left - 10}" y="{y + 17}" text-anchor="end">{name}</text>')
        marks.append(f'<rect class="{cls}" x="{left}" y="{y + 3}" width="{width:.1f}" height="20" rx="2"/>')
        marks.append(f'<text class="value" x="{left + width + 8:.1f}" y="{y + 17}">{said}</text>')
    marks.append(f'<text class="label" x="{left}" y="{height - 8}">{unit}</text>')
    return svg(title, description, height, marks)


def takeovers(report: Report) -> str:
    """How long the killed workers' partitions stood still."""
    rows = [
        (f"{p.title}", p.drain.takeover_s, f"{p.drain.takeover_s:.1f} s", "fill-two")
        for p in report.pipelines
        if p.drain is not None and p.drain.takeover_s is not None
    ]
    return bars(
        "Take-over",
        "Seconds from the kill until the other worker has committed for each partition of the stream.",
        rows,
        "seconds from SIGKILL to the next commit of every partition of the stream",
    )


def restores(report: Report) -> str:
    """What a worker with an empty folder had to read."""
    rows = [
        (f"{p.title}: {how}", float(restored.records), f"{restored.records:,} in {restored.seconds:.2f} s", cls)
        for p in report.pipelines
        for how, restored, cls in (
            ("changelog", p.from_changelog, "fill-two"),
            ("snapshot", p.from_snapshot, "fill-one"),
        )
        if restored is not None
    ]
    return bars(
        "Restore",
        "Records read from changelogs to restore a deleted state folder: without snapshots, and with them.",
        rows,
        "records read from changelogs before the stores stood again",
    )


def campaign_views(found: Findings) -> str:
    """Every campaign's views in every window: one dot each, and the mean of a window as a line."""
    windows = _by_window(found.answer)
    starts = sorted(windows)
    most = max((max(v) for v in windows.values()), default=1)
    y_ticks = ticks(0, most)
    plot = Plot(
        "Views per campaign and window",
        f"{len(found.answer):,} counts in {len(starts)} windows of ten seconds.",
        (-0.5, max(len(starts), 1) - 0.5),
        (0, y_ticks[-1]),
    )
    every = -(-len(starts) // 10) or 1
    shown = [float(i) for i in range(0, len(starts), every)]
    plot.axes(
        "start of the window (UTC)",
        "views of a campaign in 10 s",
        x_ticks=shown,
        x_text=lambda i: f"{datetime.fromtimestamp(starts[int(i)] / 1000, UTC):%H:%M:%S}",
        y_ticks=y_ticks,
    )
    for place, start in enumerate(starts):
        counts = windows[start]
        for n, count in enumerate(counts):
            # Spread over the width of the window in a fixed pattern, so that equal counts do not hide each other.
            across = place + ((n * 37) % 100 / 100 - 0.5) * 0.6
            plot.add(f'<circle class="dot" cx="{plot.px(across):.1f}" cy="{plot.py(count):.1f}" r="2"/>')
        mean = sum(counts) / len(counts)
        plot.line([(place - 0.38, mean), (place + 0.38, mean)], "two")
    return plot.svg()


def _by_window(answer: Mapping[str, Any]) -> dict[int, list[int]]:
    windows: dict[int, list[int]] = {}
    for name, count in sorted(answer.items()):
        windows.setdefault(int(name.rpartition("@")[2]), []).append(int(count))
    return windows

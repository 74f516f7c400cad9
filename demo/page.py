"""The report as one HTML page that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from demo import charts, flight_charts
from demo.findings import Findings, Report
from demo.flights import SOURCE
from demo.page_style import STYLE
from demo.summary import measurements


def as_page(report: Report) -> str:
    """The page's text."""
    parts = [_verdict(report), _measured(report), _takeover(report)]
    parts += [_RESULTS[p.name](p) for p in report.pipelines if p.name in _RESULTS]
    parts += [_restore(report), _comparison(report), _checks(report), _topologies(report), _run(report)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Penstock demo</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 1) -> str:
    """A table; columns from ``numbers_from`` on are set to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if i >= numbers_from else ''}>{escape(cell)}</{tag}>" for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(title: str, picture: str, caption: str, legend: Sequence[tuple[str, str]] = ()) -> str:
    """A plot with its title, what its colours mean, and what is to be seen."""
    keys = "".join(f'<span><i class="{cls}"></i>{escape(name)}</span>' for cls, name in legend)
    keys = f'<p class="legend">{keys}</p>' if keys else ""
    return (
        f'<figure><h3>{escape(title)}</h3>{keys}<div class="wide">{picture}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n"


def _verdict(report: Report) -> str:
    failed = report.failed
    said = "Every check passed" if not failed else f"{len(failed)} of {len(report.checks)} checks failed"
    differences = f"{report.differences:,}" if report.differences else "none"
    records = sum(p.records for p in report.pipelines)
    tiles = [
        (f"{records:,}", "records through two workers, exactly-once"),
        (f"{len(report.checks) - len(failed)} / {len(report.checks)}", "checks passed"),
        (differences, "differences between stream and batch"),
    ]
    takeovers = [p.drain.takeover_s for p in report.pipelines if p.drain is not None]
    if seen := [s for s in takeovers if s is not None]:
        tiles.append((f"{max(seen):.1f} s", "longest take-over after SIGKILL"))
    shown = "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for value, name in tiles)
    names = "".join(f"<li>{escape(c.name)}: {escape(c.said)}</li>" for c in failed)
    return (
        f'<header><p class="kicker">Penstock demo</p><h1 class="{"bad" if failed else "good"}">{said}</h1>'
        f'<p class="lead">{escape(_what_ran(report))}</p>'
        f'{f"<ul class=failed>{names}</ul>" if names else ""}<ul class="tiles">{shown}</ul></header>\n'
    )


def _what_ran(report: Report) -> str:
    """What ran, and why it matters, in two sentences."""
    names = " and ".join(f"“{p.title}”" for p in report.pipelines) or "nothing"
    ran = (
        f"Two worker processes computed {names} from a real Kafka; one of them was killed halfway, a state folder was "
        "deleted and restored, and Spark computed everything a second time."
    )
    if report.failed:
        return f"{ran} Every answer should have come out as if nothing had happened; the list says which did not."
    return f"{ran} Every answer came out as if nothing had happened: no record was lost, and none was counted twice."


def _measured(report: Report) -> str:
    rows = [dict(measurements(p)) for p in report.pipelines]
    names = dict.fromkeys(name for row in rows for name in row)
    head = ["", *(p.title for p in report.pipelines)]
    return _section("What was measured", table(head, ([n, *(r.get(n, "") for r in rows)] for n in names)))


def _takeover(report: Report) -> str:
    parts: list[str] = [
        "<p>Two worker processes emptied the input under exactly-once. Halfway, the one with more before it was killed "
        "with SIGKILL. The brokers noticed when its session ran out, after six seconds, and gave its partitions to the "
        "other, which restored their state and went on.</p>"
    ]
    for p in report.pipelines:
        if p.drain is None:
            continue
        parts.append(
            figure(
                f"{p.title}: throughput",
                charts.throughput(p.drain),
                "Records of the stream whose results are committed, per second. Nothing is counted twice after the gap.",
            )
        )
        parts.append(
            figure(
                f"{p.title}: records left per partition",
                charts.left_before(p.drain),
                "Lines are level until the workers have started. After the kill, those of the killed worker's partitions "
                "stay level until the other worker commits for them.",
                (("fill-one", "partitions of the worker that stayed"), ("fill-two", "partitions of the killed worker")),
            )
        )
    parts.append(
        figure(
            "Take-over",
            charts.takeovers(report),
            "Of the stream's partitions. The session timeout of six seconds is part of it.",
        )
    )
    return _section("A worker is killed, the other takes over", *parts)


def _views(p: Findings) -> str:
    return _section(
        p.title,
        f"<p>{escape(p.what)}</p>",
        figure(
            "Views per campaign and window",
            charts.campaign_views(p),
            "Each dot is a campaign; every one was counted a second time from the generator's numbers.",
            (("fill-one", "a campaign"), ("fill-two", "mean of the window")),
        ),
    )


def _flights(p: Findings) -> str:
    return _section(
        p.title,
        f"<p>{escape(p.what)}</p>",
        figure(
            "How late flights left, day by day in 2013",
            flight_charts.calendar(p.answer),
            f"Weeks run from left to right, Monday on top. A pointer on a day shows its numbers. Data: {SOURCE}.",
        ),
        figure(
            "Rain",
            flight_charts.rain(p.answer),
            "A departure counts as in the rain when the last report before it measured any.",
            (("fill-one", "dry hours"), ("fill-two", "rain")),
        ),
    )


_RESULTS: Mapping[str, Callable[[Findings], str]] = {"ysb": _views, "flights": _flights}


def _restore(report: Report) -> str:
    return _section(
        "A state folder is deleted and restored",
        "<p>Spark compacted the changelogs into sorted snapshots. More records came, so that the changelogs had a tail. "
        "Then the folder was deleted, and restored twice: from the changelogs alone, and from the snapshots and the "
        "tail. The worker restored the second way went on with the last records.</p>",
        figure(
            "Restore",
            charts.restores(report),
            "A snapshot is ingested as files; only what came after it is read from the log.",
            (("fill-two", "changelogs alone"), ("fill-one", "snapshots, then the tail")),
        ),
    )


def _comparison(report: Report) -> str:
    rows = [
        [p.title, f"{c.kind} {c.name}", c.mode, f"{c.stream_rows:,}", f"{c.batch_rows:,}", f"{c.differences:,}"]
        for p in report.pipelines
        for c in p.comparisons
    ]
    cautions = "".join(f"<li>{escape(c)}</li>" for p in report.pipelines for c in p.cautions)
    return _section(
        "Spark replays the range, and the answers are compared",
        "<p>The same topologies ran once more, as a Spark batch over the same range of the log.</p>",
        table(["pipeline", "compared", "by", "stream", "batch", "differences"], rows, 3),
        f"<p>What limits the comparison:</p><ul>{cautions}</ul>" if cautions else "",
    )


def _checks(report: Report) -> str:
    rows = [["passed" if c.passed else "FAILED", c.name, c.said] for c in report.checks]
    return _section("Checks", table(["", "check", "seen"], rows, 3))


def _topologies(report: Report) -> str:
    parts = [
        f"<details><summary>{escape(p.title)}</summary><pre>{escape(p.describe)}</pre>"
        f"<p>As a Mermaid chart:</p><pre>{escape(p.mermaid)}</pre></details>"
        for p in report.pipelines
    ]
    return _section("Topologies", *parts)


def _run(report: Report) -> str:
    steps = table(["step", "seconds"], ([name, f"{seconds:.1f}"] for name, seconds in report.steps))
    return _section("The run", steps, table(["machine", ""], (list(pair) for pair in report.machine)))

"""``python -m benchmarks.publish``: ``benchmarks/REPORT.md`` and its plots, from the results in ``benchmarks/results``.

Results are lines of JSON with a ``kind``: ``machine``, ``roofline``, ``drain``, ``restore``, ``latency``, ``latencies``,
``heap`` and ``curve`` come from the benchmark's own commands. Any other benchmark takes part by writing lines of kind
``table`` (``title``, ``text``, ``head``, ``rows``) and ``chart`` (``title``, ``text``, ``x_label``, ``y_label``, ``lines``:
name to points, ``log_x``, ``log_y``); of equal titles the last counts.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import burst, captions, goals, heap, linear_road, nexmark, plots, report, roofline
from benchmarks.calm import typical
from benchmarks.captions import Machines
from benchmarks.ceiling import Ceilings
from benchmarks.goals import Result, Results
from benchmarks.harness import RESULTS
from benchmarks.measured import Ceiling
from benchmarks.plots import Line
from benchmarks.report import markdown
from benchmarks.workloads import WORKLOADS, Variant
from demo.svg import number

HERE = Path(__file__).parent
CURVES = {
    "records": ("Cost against records drained", "records drained"),
    "keys": ("Cost against keys", "keys"),
    "partitions": ("Cost against partitions", "partitions of every topic"),
    "processes": ("Cost against worker processes", "processes"),
    "windows": ("Cost against the size of windows", "milliseconds of a window"),
}


class Report:
    """The text, and the plots beside it by file name."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.plots: dict[str, str] = {}

    def add(self, *texts: str) -> None:
        """Paragraphs, headings or tables; empty ones are left out."""
        self._parts += filter(None, texts)

    def plot(self, title: str, svg: str) -> None:
        """A plot, under a name made of its title."""
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".svg"
        self.plots[name] = svg
        self.add(f"![{title}](plots/{name})")

    def text(self) -> str:
        """The whole."""
        return "\n\n".join(self._parts) + "\n"


def read(folder: Path) -> Iterator[Result]:
    """Every result, the files by name, with its ``file`` and the name of the machine above it, ``on``. Raises
    ``ValueError`` naming a line that is none."""
    for path in sorted(folder.glob("*.jsonl")):
        on = ""
        for place, line in enumerate(path.read_text().splitlines(), 1):
            try:
                found = json.loads(line)
                if (kind := found["kind"]) in ("machine", "roofline"):
                    on = (found if kind == "machine" else found["machine"]).get("machine", "")
                yield {**found, "kind": kind, "file": path.stem, "on": on}
            except (json.JSONDecodeError, KeyError, TypeError) as exc:
                raise ValueError(f"{path.name}:{place} is no result ({exc}); remove the line") from exc


def with_ceilings(every: Sequence[Result]) -> list[Result]:
    """The results, drains with their ceilings by their machine's last roofline: a share is of what is published beside
    it, whatever was known when it was measured."""
    ceilings = {r.get("on", ""): Ceilings.of_rows(r["rows"]) for r in every if r["kind"] == "roofline"}
    out = []
    for r in every:
        mine = ceilings.get(r.get("on", ""))
        if mine is not None and r["kind"] == "drain" and not r["void"]:
            r = {**r, "ceiling": mine.of(WORKLOADS[r["workload"]], r)}
        out.append(r)
    return out


def machines(results: Results) -> str:
    """Each machine and set of versions once, with the files of results that it made."""
    seen: dict[str, dict[str, Any]] = {}
    files: dict[str, list[str]] = {}
    rooflines = [{**r["machine"], "file": r.get("file", "roofline")} for r in results.of("roofline")]
    for found in results.of("machine") + rooflines:
        facts = {key: value for key, value in found.items() if key not in ("kind", "at", "file", "on")}
        place = json.dumps(facts, sort_keys=True)
        seen[place] = facts
        if (file := found.get("file", "")) not in files.setdefault(place, []):
            files[place].append(file)
    rows = []
    for place, facts in seen.items():
        what = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, Linux {facts['kernel']}"
        known = ("machine", "cpu", "cores", "memory_gb", "kernel", "commit")
        versions = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in known)
        rows.append([facts["commit"], what, ", ".join(files[place]), versions])
    return markdown(["commit", "machine", "results", "versions"], rows)


def curves(results: Results, report_: Report, on: Machines) -> None:
    """One plot per part."""
    points = [r for r in results.of("curve") if not r["void"]]
    for part, (title, x_label) in CURVES.items():
        lines = []
        of_part = [r for r in points if r["part"] == part]
        for series in sorted({_series(r) for r in of_part}):
            costs: dict[int, list[float]] = {}
            for r in of_part:
                if _series(r) == series:
                    costs.setdefault(r["x"], []).append(r["cpu_s_per_million"])
            middle = [(float(x), statistics.median(some)) for x, some in costs.items()]
            lines.append(Line(", ".join(filter(None, series)), middle, series[1] != "penstock"))
        if lines:
            report_.add(f"### {title}", on.caption(of_part, lambda r: r["workload"]))
            report_.plot(title, plots.chart(title, lines, x_label, "CPU-seconds per million records"))
            cells = [[line.name, *(f"{y:.2f} at {number(x)}" for x, y in sorted(line.points))] for line in lines]
            width = max(map(len, cells))
            report_.add(
                markdown(["series", *["CPU s/M"] * (width - 1)], [row + [""] * (width - len(row)) for row in cells])
            )


def _series(point: Result) -> tuple[str, str, str]:
    """Workload, system and settings of a point of a curve."""
    return point["workload"], point["system"], " ".join(f"{k}={v}" for k, v in point.get("set", {}).items())


def latencies(results: Results, report_: Report, on: Machines) -> None:
    """p50 and p99 against the rate, one plot per table, guarantee and quantile, and the figures."""
    points = [{"keys": Variant.keys, **r} for r in results.of("latencies")]
    for keys, guarantee in sorted({(r["keys"], r["guarantee"]) for r in points}):
        some = [r for r in points if (r["keys"], r["guarantee"]) == (keys, guarantee)]
        report_.add(f"### {guarantee}, a table of {keys:,} rows", on.caption(some, lambda r: r["series"]))
        fine = typical(some)
        for name, field in (("p50", "p50_ms"), ("p99", "p99_ms")):
            lines = []
            for series in dict.fromkeys(r["series"] for r in fine):
                found = {float(r["rate_per_s"]): r[field] for r in fine if r["series"] == series}
                lines.append(Line(series, sorted(found.items()), not series.startswith(("batches", "adaptive"))))
            if lines and len({r["rate_per_s"] for r in fine}) > 1:
                title = f"{name} of enrich against rate, {guarantee}, {number(keys)} rows"
                report_.plot(title, plots.chart(title, lines, "clicks per second", f"{name}, milliseconds", log_y=True))
        report_.add(report.latency_table([{**r, "system": r["series"]} for r in some]))


def charts(results: Results, report_: Report, on: Machines) -> None:
    """What other benchmarks brought, by title, tables and charts in the order of their first lines."""
    brought = {
        (r["title"], r["kind"]): r for kind in ("table", "chart") for r in map(remade(results), results.of(kind))
    }
    titles = dict.fromkeys(r["title"] for kind in ("table", "chart") for r in results.of(kind))
    for title in titles:
        some = [brought[title, kind] for kind in ("table", "chart") if (title, kind) in brought]
        report_.add(f"## {title}")
        for found in some:
            report_.add(found.get("text", ""), on.caption([found]))
            if found["kind"] == "table":
                report_.add(markdown(found["head"], [[str(cell) for cell in row] for row in found["rows"]]))
            else:
                lines = [Line(name, [(x, y) for x, y in points]) for name, points in found["lines"].items()]
                scales = {"log_x": found.get("log_x", True), "log_y": found.get("log_y", False)}
                report_.plot(title, plots.chart(title, lines, found["x_label"], found["y_label"], **scales))


def remade(results: Results) -> Callable[[Result], Result]:
    """A kept table, made again from the results behind it where its benchmark keeps those: what a verdict is said of may
    be told more exactly than when it was measured."""

    def make(found: Result) -> Result:
        if found["title"] == nexmark.TITLE and (lines := results.of("nexmark")):
            head, rows = nexmark.brought(lines)
            text = nexmark.about(row[head.index("system")] for row in rows)
            return {**found, "text": text, "head": head, "rows": rows}
        if found["title"] == linear_road.TITLE and (lines := results.of("linear_road")):
            head, rows = linear_road.table(lines, "verdict")
            return {**found, "text": linear_road.about(lines), "head": head, "rows": rows}
        if found["title"] == burst.TITLE and (lines := results.of("burst")):
            head, rows = burst.table(lines)
            return {**found, "text": burst.about(lines), "head": head, "rows": rows}
        return found

    return make


def goals_table(found: Sequence[goals.Finding]) -> str:
    """Every goal and what was measured."""
    return markdown(["goal", "needed", "measured (default / tuned peer)", "verdict"], [list(row) for row in found])


def not_reached(found: Sequence[goals.Finding]) -> str:
    """What was measured and falls short, a line each; and what was not measured."""
    short = [f"- {row.what}: {row.measured}, {row.needed} needed" for row in found if row.verdict == "not reached"]
    unknown = [row.what for row in found if row.verdict == "not measured"]
    parts = ["\n".join(short) or "Nothing of what was measured falls short."]
    if unknown:
        parts.append(f"Not measured: {'; '.join(unknown)}.")
    return "\n\n".join(parts)


def render(every: Iterable[Result]) -> Report:
    """The report of these results."""
    every = list(every)
    results, made, on = Results(every), Report(), Machines(every)
    found = goals.findings(results)
    counts = {
        verdict: sum(row.verdict == verdict for row in found) for verdict in ("reached", "not reached", "not measured")
    }
    made.add("# Penstock beside its peers: the report")
    made.add("Made by `make bench-report` from the files in `results/`; a change by hand is lost.")
    made.add("**Goals:** " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + ".")
    made.add(f"## Method\n\n{captions.METHOD}")
    made.add(f"## Machine and versions\n\n{machines(results)}")
    made.add(f"## Goals\n\n{captions.GOALS}", on.caption(goals.used(results), goals.name))
    made.add(goals_table(found), captions.goals_too_low(found))
    made.add(f"## What is not reached\n\n{not_reached(found)}")
    measured(results, made, on)
    charts(results, made, on)
    if rooflines := results.of("roofline"):
        rows = [Ceiling(**row) for row in rooflines[-1]["rows"]]
        made.add("## Roofline\n\nWhat the machine can do at most, one thing at a time.", on.caption(rooflines[-1:]))
        made.add(roofline.table(rows))
    return made


def measured(results: Results, made: Report, on: Machines) -> None:
    """The sections of what the benchmark's own commands measured."""
    if drains := results.of("drain"):
        made.add("## Throughput, cost and memory", on.caption(drains, report.label), on.ceilings(drains))
        made.add(report.drain_table(drains), captions.too_low(drains), captions.drain_notes(drains))
    if heaps := results.of("heap"):
        made.add(f"## Memory: the smallest heap that keeps 90 % of the rate\n\n{captions.HEAP}")
        made.add(on.caption(heaps, lambda r: r["workload"]), heap.table(heaps))
    if some := results.of("latencies"):
        made.add(f"## Latency\n\n{captions.latency(some)}")
        latencies(results, made, on)
    if some := results.of("latency"):
        made.add("### At the benchmark's own rate", on.caption(some, lambda r: r["system"]), report.latency_table(some))
    if restores := results.of("restore"):
        made.add(f"## Restore\n\n{captions.restore(restores)}", on.caption(restores, lambda r: r["system"]))
        made.add(on.ceilings(restores), report.restore_table(restores))
    if results.of("curve"):
        made.add("## Cost curves\n\nPenstock's CPU-seconds per million records; flat is good.")
        curves(results, made, on)


def main(argv: list[str] | None = None) -> int:
    """Write the report; 1 if there are no results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description="The report from the results.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of result files (%(default)s)")
    parser.add_argument("--to", type=Path, default=HERE, help="folder of REPORT.md and plots/ (%(default)s)")
    options = parser.parse_args(argv)
    every = with_ceilings(list(read(options.results)))
    if not every:
        print(f"no results in {options.results}: run the benchmarks with --keep NAME first")
        return 1
    made = render(every)
    folder = options.to / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, svg in made.plots.items():
        (folder / name).write_text(svg)
    (options.to / "REPORT.md").write_text(made.text())
    print(f"{options.to / 'REPORT.md'}: {len(every)} results, {len(made.plots)} plots")
    return 0


if __name__ == "__main__":
    sys.exit(main())

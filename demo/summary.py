"""The report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from demo.findings import Findings, Report


def as_tables(report: Report) -> Iterator[Table]:
    """What was measured, one column per pipeline; then the checks."""
    measured = Table(title="Measured", title_justify="left")
    measured.add_column("")
    for p in report.pipelines:
        measured.add_column(p.title, justify="right")
    rows = [dict(measurements(p)) for p in report.pipelines]
    for name in dict.fromkeys(name for row in rows for name in row):
        measured.add_row(name, *(row.get(name, "") for row in rows))
    yield measured
    checks = Table(title="Checked", title_justify="left")
    for column in ("", "check", "seen"):
        checks.add_column(column, overflow="fold")
    for check in report.checks:
        mark = "[green]✓[/green]" if check.passed else "[bold red]✗[/bold red]"
        checks.add_row(mark, check.name, check.said)
    yield checks


def measurements(p: Findings) -> Iterator[tuple[str, str]]:
    """Names and values, in the order of the run."""
    yield "records", f"{p.records:,}"
    yield "rows of tables", f"{p.table_rows:,}"
    yield "written to Kafka", _rate(p.records * 90 // 100 + p.table_rows, p.loaded_s)
    if p.drain is not None:
        yield "two workers, exactly-once", f"{p.drain.records_per_s:,.0f} records/s"
        kill = p.drain.kill
        if kill is not None:
            takeover = "not seen" if p.drain.takeover_s is None else f"{p.drain.takeover_s:.1f} s"
            yield "killed at", f"{kill.done:,} records"
            yield "take-over", takeover
        yield "all committed after", f"{p.drain.done_s - p.drain.first_s:.1f} s"
    if p.compacted is not None:
        yield "compacted by Spark", f"{p.compacted.entries:,} entries in {p.compacted.seconds:.1f} s"
    yield "tail after that", f"{p.tail_records:,} records"
    for name, restored in (
        ("restored from changelogs", p.from_changelog),
        ("restored from snapshots", p.from_snapshot),
    ):
        if restored is not None:
            yield name, f"{restored.records:,} records, {restored.seconds:.2f} s"
    yield "output records", f"{p.output_records:,}"
    if p.uncounted is not None:
        yield "lost or counted twice", f"{p.uncounted:,}" if p.uncounted else "none"
    if p.comparisons:
        yield "replayed by Spark", f"{p.replayed_records:,} records in {p.replayed_s:.1f} s"
        differences = sum(c.differences for c in p.comparisons)
        yield "differences found", f"{differences:,}" if differences else "none"


def _rate(records: int, seconds: float) -> str:
    return f"{records / max(seconds, 1e-3):,.0f} records/s"

"""``--report FILE.html``: a page about one Spark job."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.state.snapshots.manifest import Manifest
    from penstock.streams.cli.spark_options import Given
    from penstock.streams.spark.handover.job import WorkedOff
    from penstock.streams.spark.report.record import JobRecord


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add ``--report``."""
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page about the job: its plan, time, skew, rows and bytes, and what was published",
    )


@dataclasses.dataclass
class Outcome:
    """The command's own account of its job, for the page. ``rows_out``: what it has written. ``written``: the snapshots of
    a compaction. ``topologies``: of phases that run another topology than the command's first: its name and
    application id."""

    verdict: str = ""
    good: bool = True
    rows_out: int | None = None
    published: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    cautions: Sequence[str] = ()
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str | int]], Sequence[int]]] = dataclasses.field(
        default_factory=list
    )
    written: Sequence[Manifest] = ()
    topologies: dict[str, tuple[Any, str]] = dataclasses.field(default_factory=dict)

    def of_handover(self, work: WorkedOff, savepoint: str | None, no_savepoint: str | None) -> None:
        """Take over the result of a handover."""
        self.verdict = f"{counted(work.records, 'record')} processed and committed."
        self.published = [("snapshots", f"{work.stores:,}")]
        self.saved(savepoint, no_savepoint)

    def saved(self, savepoint: str | None, no_savepoint: str | None) -> None:
        """A savepoint was published, or why there is none."""
        self.published.append(("savepoint", f"none: {no_savepoint}" if savepoint is None else savepoint))


@contextmanager
def reported(args: argparse.Namespace, given: Given, command: str) -> Iterator[Outcome]:
    """Write the page when the block ends, also by an error, which it then names. Without ``--report`` nothing is done."""
    outcome = Outcome()
    if args.report is None:
        yield outcome
        return
    from penstock.state.machine.atomic_files import replace_file
    from penstock.streams.spark.report.record import recorded

    with recorded() as record:
        try:
            yield outcome
        except BaseException as exc:
            # The message is on the terminal. It may quote records, which a page must not keep.
            outcome.verdict, outcome.good = f"The job failed: {type(exc).__name__}.", False
            raise
        finally:
            target = Path(args.report)
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, _page(args, given, command, record, outcome).encode())


def _page(args: argparse.Namespace, given: Given, command: str, record: JobRecord, outcome: Outcome) -> str:
    from datetime import UTC, datetime

    from penstock.streams.spark.report.page import Page, Section, Table, html_of
    from penstock.streams.spark.report.sections import input_section, plan_sections, tiles, time_section
    from penstock.streams.topology_loading import load_topology

    topologies = {"": (args.topology, given.application_id), **outcome.topologies}
    built = {name: (load_topology(ref), app) for name, (ref, app) in topologies.items()}
    began = datetime.fromtimestamp(record.began_ms / 1000, UTC)
    sections = [Section("Published", facts=outcome.published)] if outcome.published else []
    if outcome.cautions:
        sections.append(Section("Cautions", lines=outcome.cautions))
    sections += [Section(title, tables=[Table(c, rows, numbers)]) for title, c, rows, numbers in outcome.tables]
    sections += plan_sections(record, built, outcome.written)
    ranges = input_section(record)
    sections += [time_section(record), *([ranges] if ranges is not None else [])]
    page = Page(
        title=f"{command} {given.application_id}",
        about=f"penstock {command} · {args.topology} · {began:%Y-%m-%d %H:%M:%S} UTC",
        verdict=outcome.verdict,
        good=outcome.good,
        tiles=tiles(record, outcome.rows_out),
        sections=sections,
    )
    return html_of(page)

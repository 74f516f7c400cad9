"""``make demo``: the main job end to end, every answer checked, with a table and a report page."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.streams.cli.main import WholeWordsParser, run_parsed

if TYPE_CHECKING:
    from demo.findings import Report

EVENTS = 1_000_000
EVENTS_MIN = 2_000
KEPT_NAME = "demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; its exit code."""
    parser = WholeWordsParser(
        prog="python -m demo", description="Run the main job on real Kafka and Spark, and check every answer."
    )
    parser.add_argument(
        "--events", type=int, default=EVENTS, metavar="N", help=f"advertising events (default: {EVENTS:,})"
    )
    parser.add_argument(
        "--dir", default="var/demo", metavar="DIR", help="where logs, snapshots and the replay go; emptied"
    )
    parser.add_argument("--out", metavar="FILE.html", help="the report page (default: report.html in that folder)")
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster running; penstock down --name demo ends it"
    )
    parser.set_defaults(run=run)
    return run_parsed(parser, list(sys.argv[1:] if argv is None else argv))


def run(args: argparse.Namespace) -> int:
    """Run it; 0 when every check passed, 1 when one failed."""
    from demo.pipelines import EVENTS_MAX
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.spark_options import require_spark

    if not EVENTS_MIN <= args.events <= EVENTS_MAX:
        raise SettingsError(
            f"--events {args.events}: give {EVENTS_MIN:,} to {EVENTS_MAX:,}; fewer leave no halfway, and more last longer "
            "than the topology's hour of grace"
        )
    require_spark()
    folder = _emptied(Path(args.dir))
    page = Path(args.out) if args.out else folder / "report.html"
    with interruptible():
        report = _run(args, folder)
    return _show(report, page, KEPT_NAME if args.keep else None)


def _run(args: argparse.Namespace, folder: Path) -> Report:
    import logging
    import time

    from rich.console import Console

    from demo.pipelines import pipelines
    from demo.scenario import Scenario

    (folder / "logs").mkdir()
    # What the clients say while the brokers wake up is for those who look for it.
    logging.basicConfig(filename=folder / "logs" / "demo.log", format="%(asctime)s %(name)s %(message)s")
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()

    def say(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/dim]  {what}")

    say("Kafka: starting")
    with _cluster(args.keep) as bootstrap_servers:
        return Scenario(bootstrap_servers, folder, pipelines(args.events, time.time_ns() // 1_000_000), say).run()


@contextlib.contextmanager
def _cluster(keep: bool) -> Iterator[str]:
    """A cluster's address. One that is to be kept stays, also when the run fails: then most of all it is wanted."""
    from penstock.streams.kafka.embedded import ClusterSettings, EmbeddedKafka, start_detached

    if keep:
        yield start_detached(ClusterSettings(), KEPT_NAME).bootstrap_servers
        return
    with EmbeddedKafka() as kafka:
        yield kafka.bootstrap_servers


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that everything that was started is ended. Both end in ``KeyboardInterrupt``,
    also where a library in whose call they came has made another error of it."""
    seen: list[int] = []

    def interrupt(number: int, _: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception as exc:
        if seen:
            raise KeyboardInterrupt from exc
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _emptied(folder: Path) -> Path:
    """The folder, with nothing of an earlier run. Raises ``SettingsError`` for a folder that is not the demo's."""
    from penstock.state.errors import SettingsError

    mark = folder / ".penstock-demo"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SettingsError(f"--dir {folder} holds files that are not the demo's; choose an empty folder")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    mark.touch()
    return folder


def _show(report: Report, page: Path, kept: str | None) -> int:
    from rich.console import Console

    from demo.page import as_page
    from demo.summary import as_tables

    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(as_page(report), encoding="utf-8")
    console = Console(highlight=False)
    for table in as_tables(report):
        console.print(table)
    for check in report.failed:
        console.print(f"FAILED  {check.name}: {check.said}", style="bold red", markup=False)
    differences = report.differences or "none"
    passed = len(report.checks) - len(report.failed)
    console.print(
        f"{passed} of {len(report.checks)} checks passed; differences between stream and batch: {differences}"
    )
    console.print(f"Report: {page.resolve().as_uri()}", soft_wrap=True)
    if kept is not None:
        console.print(f"The cluster is still up; penstock down --name {kept} ends it.")
    return 1 if report.failed else 0

"""``python -m tests.conformance FILE…``: run files of cases through real topologies.

A developer's tool: it evaluates the Python functions that the files hold, so give it files that you trust.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from penstock.state.errors import SettingsError
from penstock.streams.cli.main import WholeWordsParser, run_parsed

if TYPE_CHECKING:
    from tests.conformance.case_format import Case
    from tests.conformance.scenario import Player

BATCH_SIZES = (1, 1000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases of files; 0 when every case passed."""
    parser = WholeWordsParser(
        prog="python -m tests.conformance",
        description="Run files of conformance cases through real topologies. A developer's tool: the Python functions "
        "that the files hold are evaluated, so give it files that you trust.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="one JSON case per line")
    parser.add_argument(
        "--batch-size",
        type=int,
        action="append",
        metavar="N",
        help="records per batch in the test driver (default: 1, then 1000; may be repeated)",
    )
    parser.add_argument(
        "--runner",
        choices=["driver", "worker", "spark"],
        default="driver",
        help="the test driver; a worker on Kafka; or Spark, replaying what a worker left in the log",
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="the cluster for worker and spark (default: one is started for the run)",
    )
    parser.add_argument("--only", metavar="SUBSTRING", help="only cases whose id contains it")
    parser.add_argument("-v", "--verbose", action="store_true", help="name the cases that pass, too")
    parser.set_defaults(run=run)
    return run_parsed(parser, list(sys.argv[1:] if argv is None else argv))


def run(args: argparse.Namespace) -> int:
    """Run them; 1 when a case failed that an engine is bound to pass."""
    from tests.conformance.suite import Report
    from tests.conformance.suite import run as run_cases

    cases = [case for case in _read(args.files) if not args.only or args.only in case.id]
    if not cases:
        raise SettingsError(f"no case is left of {', '.join(args.files)}; see --only")
    report = Report(verbose=args.verbose)
    with ExitStack() as stack:
        for outcome in run_cases(cases, _players(args, stack)):
            for line in report.add(outcome):
                print(line, flush=True)
    for line in report.end():
        print(line)
    return int(not report.passed)


def _read(files: list[str]) -> Iterator[Case]:
    from tests.conformance.case_format import read_cases

    for name in files:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as exc:
            raise SettingsError(f"the case file {name} cannot be read: {exc.strerror}") from exc
        yield from read_cases(text.splitlines(), name)


def _players(args: argparse.Namespace, stack: ExitStack) -> dict[str, Player]:
    """The runners by name; what they need is open until ``stack`` is closed."""
    if args.runner != "driver":
        if args.batch_size:
            raise SettingsError("--batch-size is of the test driver; a worker takes what the log gives it")
        return {args.runner: _on_kafka(args, stack)}
    from tests.conformance.drive import DriverPlayer

    sizes = args.batch_size or list(BATCH_SIZES)
    if min(sizes) < 1:
        raise SettingsError(f"--batch-size {min(sizes)}: a batch has at least one record")
    lists: dict[str, Player] = {f"batches of {size}": DriverPlayer(size) for size in sizes}
    return {**lists, f"columns of {max(sizes)}": DriverPlayer(max(sizes), columns=True)}


def _on_kafka(args: argparse.Namespace, stack: ExitStack) -> Player:
    from penstock.streams.kafka.embedded import EmbeddedKafka

    servers = args.bootstrap_servers or stack.enter_context(EmbeddedKafka()).bootstrap_servers
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-conform-")))
    if args.runner == "worker":
        from tests.conformance.live import WorkerPlayer

        return WorkerPlayer(servers, folder)
    from penstock.streams.cli.spark_options import require_spark

    require_spark()
    from penstock.streams.spark.session import SparkSettings, spark_session
    from tests.conformance.on_spark import SparkPlayer

    settings = SparkSettings(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    return SparkPlayer(servers, folder, stack.enter_context(spark_session(settings)))

"""``penstock catchup``: Spark works off an application's backlog, and workers go on from there."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.streams.cli.counts import counted


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("catchup", help="work off an application's backlog in Spark, and hand it back")
    add_common(parser)
    parser.add_argument(
        "--until",
        default="end",
        metavar="POINT",
        help="the inputs' ends now (end, the default), a time in ISO's form, or what is committed (committed: only what "
        "lies in repartition topics)",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="where snapshots of the stores go, so that workers restore nothing; default: the setting snapshots",
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Catch up, and say what was done."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import inputs_of, require_spark, say, tell_savepoint

    require_spark()
    from penstock.streams.spark.handover.catch_up import catch_up

    given = inputs_of(args)
    with reported(args, given, "catchup") as page:
        done = catch_up(
            args.topology,
            given.settings,
            repository=args.repository or given.snapshots,
            until=args.until,
            progress=say,
            session=given.session,
        )
        work = done.work
        page.of_handover(work, done.savepoint, done.no_savepoint)
    print(f"{counted(work.records, 'record')} processed in {work.seconds:.1f} s; {work.stores} snapshots published")
    tell_savepoint(done.savepoint, done.no_savepoint)
    print(f"workers of {given.application_id} go on from here")
    return 0

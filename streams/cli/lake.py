"""``penstock lake``: a topic or a store as an Apache Iceberg table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.streams.spark.lake.tables import LakeResult


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.client_options import above_zero
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.schedule import add_every
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("lake", help="append a topic to an Iceberg table, or replace one by a store")
    add_common(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="TOPIC", help="append the topic's records that the table lacks")
    what.add_argument("--store", metavar="STORE", help="make the table hold the store's rows")
    parser.add_argument("--table", required=True, metavar="CATALOG.SCHEMA.TABLE", help="made when there is none")
    parser.add_argument(
        "--warehouse",
        metavar="DIR",
        help="a folder or URL that holds the tables; default: the catalog is in Spark's settings",
    )
    parser.add_argument(
        "--as-of",
        default="committed",
        metavar="committed|end|savepoint:NAME",
        help="as of which position (default: committed)",
    )
    parser.add_argument("--repository", metavar="URL", help="snapshots and savepoints; default: the setting snapshots")
    parser.add_argument("--key", metavar="SERDE", help="serde of the topic, if the topology does not know it")
    parser.add_argument("--value", metavar="SERDE", help="likewise")
    parser.add_argument(
        "--keep", type=above_zero, default=20, metavar="N", help="snapshots of the table to keep (default: 20)"
    )
    add_every(parser)
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write, once or again and again, and say what was written."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.schedule import repeated
    from penstock.streams.cli.spark_options import inputs_of, require_spark

    require_spark()
    from penstock.streams.spark.frames.application import Application

    given = inputs_of(args)
    app = Application(args.topology, given.application_id, given.connection, args.repository or given.snapshots)

    def once() -> int:
        with reported(args, given, "lake") as page:
            done = _written(args, app, given.session)
            page.rows_out = done.rows
            page.verdict = f"{counted(done.rows, 'row')} written to {done.table}."
            held = ", ".join(f"{p}: {offset:,}" for p, offset in sorted(done.offsets.items()))
            page.published = [("table", done.table), ("holds offsets up to", held)]
        print(f"{counted(done.rows, 'row')} written to {done.table} in {done.seconds:.1f} s", flush=True)
        return 0

    return repeated(args.every, once)


def _written(args: argparse.Namespace, app: Any, session: Any) -> LakeResult:
    from penstock.streams.cli.spark_options import say
    from penstock.streams.spark.lake.tables import lake_store, lake_topic

    how = {"warehouse": args.warehouse, "keep": args.keep, "session": session, "progress": say}
    if args.store is not None:
        return lake_store(app, args.store, args.table, as_of=args.as_of, **how)
    return lake_topic(app, args.topic, args.table, key=args.key, value=args.value, **how)

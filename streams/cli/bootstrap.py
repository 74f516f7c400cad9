"""``penstock bootstrap``: Spark builds a new application's stores from history, also next to the one that it replaces."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.spark.handover.bootstrap import Bootstrapped
    from penstock.streams.spark.handover.store_comparison import ComparedStores


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("bootstrap", help="build a new application's stores from history, in Spark")
    add_common(parser)
    parser.add_argument(
        "--replaces",
        metavar="OLD:TOPOLOGY",
        help="the topology of the application that this one replaces; inputs are read as far as it has committed",
    )
    parser.add_argument("--replaced-id", metavar="ID", help="the application id of the replaced one")
    parser.add_argument(
        "--switch",
        action="store_true",
        help="the replaced application's workers are stopped: end its work, read exactly as far, and compare the stores",
    )
    parser.add_argument(
        "--until",
        metavar="POINT",
        help="end (the default where nothing is replaced), a time in ISO's form, committed or savepoint:NAME (both of the "
        "replaced application)",
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="TOPIC=OTHER",
        help="write to OTHER what the topology writes to TOPIC (repeatable); outputs that are not named are dropped",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="where snapshots of the stores go, so that workers restore nothing; default: the setting snapshots",
    )
    parser.add_argument("--differences", metavar="DIR", help="where the entries go that differ at a switch, as Parquet")
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Bootstrap, and say what was done."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.client_options import pairs
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import inputs_of, require_spark, say

    require_spark()
    from penstock.streams.spark.handover.bootstrap import Predecessor, bootstrap
    from penstock.streams.spark.handover.job import tasks_of

    if (args.replaces is None) != (args.replaced_id is None):
        raise SettingsError(
            "--replaces and --replaced-id go together: the topology and the application id of one application"
        )
    given = inputs_of(args)
    with reported(args, given, "bootstrap") as page:
        done = bootstrap(
            args.topology,
            given.settings,
            replaces=None if args.replaces is None else Predecessor(args.replaces, args.replaced_id),
            switch=args.switch,
            until=args.until,
            outputs=pairs(args.output, "--output"),
            repository=args.repository or given.snapshots,
            differences=args.differences,
            progress=say,
            session=given.session,
        )
        page.of_handover(done.work, done.savepoint, done.no_savepoint)
        page.cautions = done.cautions
        if args.replaced_id is not None:
            page.topologies = {tasks_of(args.replaced_id): (args.replaces, args.replaced_id)}
        if done.stores is not None:
            page.good = done.stores.same
            page.tables.append(("Stores, old against new", *_table(done.stores), range(1, 5)))
    _tell(done, given.application_id, args)
    return 0


def _tell(done: Bootstrapped, application_id: str, args: argparse.Namespace) -> None:
    from penstock.streams.cli.spark_options import tell_savepoint

    if done.drained is not None:
        print(
            f"{done.drained.records:,} records of {args.replaced_id}'s repartition topics worked off, with its outputs"
        )
    print(f"{done.work.records:,} records processed in {done.seconds:.1f} s; {done.work.stores} snapshots published")
    tell_savepoint(done.savepoint, done.no_savepoint)
    for caution in done.cautions:
        print(f"caution: {caution}")
    if args.switch:
        _tell_stores(done)
        print(f"start the workers of {application_id}; those of {args.replaced_id} must not run again after that")
    elif args.replaced_id is not None:
        print(f"to switch, stop the workers of {args.replaced_id} and give the same command with --switch")
    else:
        print(f"workers of {application_id} go on from here")


def _tell_stores(done: Bootstrapped) -> None:
    from penstock.streams.cli.spark_options import show

    if done.stores is None:
        print("stores not compared: that needs a repository, and a savepoint of both applications")
        return
    show("stores, old against new", *_table(done.stores))
    for change in done.stores.changes:
        print(f"change: {change}")
    for e in done.stores.examples:
        print(f"store {e.name}, key {e.key}: old {e.old}, new {e.new}")
    if done.stores.table is not None and any(s.differing_rows for s in done.stores.subjects):
        print(f"all differing entries are in {done.stores.table}")


def _table(stores: ComparedStores) -> tuple[list[str], list[list[str]]]:
    """The comparisons: columns and rows."""
    rows = [
        [s.name, f"{s.old_rows:,}", f"{s.new_rows:,}", f"{s.differing_rows:,}", f"{s.differing_keys:,}"]
        for s in stores.subjects
    ]
    return ["store", "old entries", "new entries", "differing entries", "of keys"], rows

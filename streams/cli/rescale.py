"""``penstock rescale``: an application goes on with another number of partitions, with its state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.spark.handover.rescale import Rescaled


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser(
        "rescale",
        help="give an application another number of partitions, with its state, in Spark",
        description="Move the state of a stopped application to one of the same topology under another id, whose inputs or "
        "repartition topics have another number of partitions. What cannot be moved exactly is refused by name.",
    )
    add_common(parser)
    parser.add_argument(
        "--replaces",
        metavar="OLD:TOPOLOGY",
        required=True,
        help="the topology as the old application runs it; the new one has the same operators, under the same names",
    )
    parser.add_argument("--replaced-id", metavar="ID", required=True, help="the application id of the old one")
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="make the input topics that do not exist, each with N partitions and the settings of the old one",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="where the old application's snapshots are, and the new one's savepoint goes; default: the setting snapshots",
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Rescale, and say what was done."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import inputs_of, require_spark, say

    require_spark()
    from penstock.streams.spark.handover.bootstrap import Predecessor
    from penstock.streams.spark.handover.job import tasks_of
    from penstock.streams.spark.handover.rescale import rescale

    if args.partitions is not None and args.partitions < 1:
        raise SettingsError(f"--partitions {args.partitions}: give 1 or more")
    given = inputs_of(args)
    with reported(args, given, "rescale") as page:
        page.topologies = {tasks_of(args.replaced_id): (args.replaces, args.replaced_id)}
        done = rescale(
            args.topology,
            given.settings,
            replaces=Predecessor(args.replaces, args.replaced_id),
            partitions=args.partitions,
            repository=args.repository or given.snapshots,
            progress=say,
            session=given.session,
        )
        page.verdict = f"{given.application_id} goes on with the state of {args.replaced_id}."
        page.rows_out = done.entries
        page.saved(done.savepoint, done.no_savepoint)
        page.cautions = _cautions(done)
        tasks = [(number, old, new) for number, (old, new) in sorted(done.tasks.items())]
        page.tables.append(("Tasks, old and new", ["sub-topology", "old", "new"], tasks, range(3)))
    _tell(done, given.application_id, args)
    return 0


def _tell(done: Rescaled, application_id: str, args: argparse.Namespace) -> None:
    from penstock.streams.cli.spark_options import tell_savepoint

    if done.drained is not None:
        print(f"{done.drained.records:,} records of {args.replaced_id} worked off, with its outputs")
    for number, (old, new) in sorted(done.tasks.items()):
        print(f"sub-topology {number}: {old} tasks, now {new}")
    if done.entries is None:
        print(f"the state was written by an earlier run; handed over in {done.seconds:.1f} s")
    else:
        print(f"{done.entries:,} entries written to the new changelogs in {done.seconds:.1f} s")
    tell_savepoint(done.savepoint, done.no_savepoint)
    for caution in _cautions(done):
        print(f"caution: {caution}")
    print(f"start the workers of {application_id}; those of {args.replaced_id} are refused from now on")


def _cautions(done: Rescaled) -> list[str]:
    return [f"{tp.topic} [{tp.partition}] has got records meanwhile that nobody will read" for tp in done.left]

"""``penstock replay``: run a topology as a Spark batch over a range of the log."""

from __future__ import annotations

import argparse
from typing import Any


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("replay", help="run a topology as a Spark batch over [from, to) of the log")
    add_common(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="where outputs, stores and snapshots go")
    parser.add_argument(
        "--from",
        dest="from_",
        default="start",
        metavar="start|savepoint:NAME",
        help="the application's first offset, or a savepoint of the repository (savepoint:latest)",
    )
    parser.add_argument("--to", default="committed", choices=["committed", "end"])
    parser.add_argument("--repository", metavar="URL", help="the repository that holds the savepoint")
    parser.add_argument("--recompute", action="store_true", help="compute repartition topics instead of reading them")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, and say what was done."""
    from penstock.streams.cli.spark_options import inputs_of, require_spark, show

    require_spark()
    from penstock.streams.spark.replay_job import replay

    given = inputs_of(args)
    result = replay(
        args.topology,
        application_id=given.application_id,
        connection=given.connection,
        output=args.output,
        from_=args.from_,
        to=args.to,
        repository=args.repository or given.snapshots,
        recompute=args.recompute,
        options=given.options,
        exactly_once=given.exactly_once,
        session=given.session,
    )
    done = result.replay
    rows = [
        [
            f"{t.subtopology}_{t.task}",
            f"{t.records:,}",
            f"{sum(o.rows for o in t.outputs):,}",
            f"{sum(s.rows for s in t.stores):,}",
        ]
        for t in done.tasks
    ]
    show(f"replay {done.run}", ["task", "records", "outputs", "store entries"], rows)
    for caution in done.cautions:
        print(f"caution: {caution}")
    print(f"{done.records:,} records in {result.seconds:.1f} s; published in {args.output}")
    return 0

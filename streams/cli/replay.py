"""``penstock replay``: run a topology as a Spark batch over a range of the log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.streams.batch.published import InputRange


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.client_options import above_zero
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.spark_options import add_begin, add_common

    parser = subparsers.add_parser("replay", help="run a topology as a Spark batch over [from, to) of the log")
    add_common(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="where outputs, stores and snapshots go")
    add_begin(parser)
    parser.add_argument(
        "--to",
        default="committed",
        choices=["committed", "end"],
        help="the application's committed positions, or the inputs' ends (default: committed)",
    )
    parser.add_argument("--recompute", action="store_true", help="compute repartition topics instead of reading them")
    parser.add_argument(
        "--keep",
        type=above_zero,
        default=3,
        metavar="N",
        help="replays to keep in the folder, besides pinned ones (default: 3)",
    )
    parser.add_argument("--pin", action="store_true", help="keep this one until penstock replays --unpin")
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, and say what was done."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import begin_of, inputs_of, require_spark, show

    require_spark()
    from penstock.streams.spark.replay_job import replay

    given = inputs_of(args)
    with reported(args, given, "replay") as page:
        result = replay(
            args.topology,
            output=args.output,
            to=args.to,
            recompute=args.recompute,
            keep=args.keep,
            pin=args.pin,
            **begin_of(args, given),
        )
        done = result.replay
        page.rows_out = sum(o.rows for t in done.tasks for o in t.outputs)
        page.verdict = f"{counted(done.records, 'record')} replayed."
        snapshots = sum(s.snapshot is not None for t in done.tasks for s in t.stores)
        page.published = [
            ("folder", result.output),
            ("run", done.run),
            ("outputs", ", ".join(done.output_topics) or "none"),
            ("store entries", f"{sum(s.rows for t in done.tasks for s in t.stores):,}"),
            ("snapshots", f"{snapshots:,}"),
            ("began at", f"{done.started_from}: {began(done.inputs)}"),
        ]
        page.cautions = done.cautions
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
    print(f"began at {done.started_from}: {began(done.inputs)}")
    for caution in done.cautions:
        print(f"caution: {caution}")
    print(f"{counted(done.records, 'record')} in {result.seconds:.1f} s; published in {result.output}")
    return 0


def began(inputs: Sequence[InputRange]) -> str:
    """Where each input was begun, in words."""
    later = [f"{i.topic} [{i.partition}] at offset {i.start}" for i in inputs if i.start]
    rest = "all others at offset 0" if later else "all inputs at offset 0"
    return ", ".join(later if len(later) == len(inputs) and later else [*later, rest])

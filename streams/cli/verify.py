"""``penstock verify``: hold what the stream did to what a Spark batch makes of the same range."""

from __future__ import annotations

import argparse
from typing import Any


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.spark_options import add_begin, add_common

    parser = subparsers.add_parser("verify", help="compare the stream with a Spark batch over the same range")
    add_common(parser)
    parser.add_argument("--output", metavar="DIR", help="keep the batch's outputs and stores here")
    add_begin(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify; 0 when nothing differs, 1 when something does."""
    from penstock.streams.cli.spark_options import begin_of, inputs_of, require_spark, show

    require_spark()
    from penstock.streams.spark.verification import verify

    given = inputs_of(args)
    result = verify(args.topology, output=args.output, **begin_of(args, given))
    rows = [
        [c.kind, c.name, c.mode, f"{c.stream_rows:,}", f"{c.batch_rows:,}", f"{c.differences:,}"]
        for c in result.comparisons
    ]
    show("stream against batch", ["", "name", "compared by", "stream", "batch", "differences"], rows)
    for caution in result.cautions:
        print(f"caution: {caution}")
    for c in result.comparisons:
        if c.first is not None:
            place = "an input record that could not be found" if c.first.input is None else _place(*c.first.input)
            print(
                f"{c.kind} {c.name} differs after {place}: key {c.first.key!r:.80}, "
                f"stream {c.first.stream!r:.120}, batch {c.first.batch!r:.120}"
            )
    said = "no differences" if result.same else "stream and batch DIFFER"
    print(f"{said} over {result.records:,} input records, in {result.seconds:.1f} s")
    return 0 if result.same else 1


def _place(topic: str, partition: int, offset: int) -> str:
    return f"topic {topic}, partition {partition}, offset {offset}"

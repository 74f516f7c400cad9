"""``penstock compare``: what an old and a new topology make of the same range, before anything is deployed."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.spark.what_if import WhatIf


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.spark_options import add_common, add_tolerance

    parser = subparsers.add_parser("compare", help="say what a changed topology would change, over a range of the log")
    add_common(parser)
    parser.add_argument("new", metavar="NEW:TOPOLOGY", help="the changed topology; the first one is the old one")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="begin there, with empty stores (ISO's form); default: where the application began",
    )
    parser.add_argument(
        "--until",
        default="committed",
        metavar="POINT",
        help="committed (default), end, a time in ISO's form, or savepoint:NAME",
    )
    parser.add_argument("--repository", metavar="URL", help="the repository that holds the savepoint")
    parser.add_argument(
        "--differences", metavar="DIR", help="where the differing rows go, with both values, as Parquet"
    )
    add_tolerance(parser)
    add_report(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare; 0 when nothing differs, 1 when something does."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import inputs_of, require_spark, say, show, tolerance_of
    from penstock.streams.topology_loading import load_topology

    require_spark()
    from penstock.streams.spark.what_if import NEW, OLD, what_if

    given = inputs_of(args)
    load_topology(args.new)
    with reported(args, given, "compare") as page:
        result = what_if(
            args.topology,
            args.new,
            application_id=given.application_id,
            connection=given.connection,
            since=args.since,
            until=args.until,
            repository=args.repository or given.snapshots,
            options=given.options,
            tolerance=tolerance_of(args),
            differences=args.differences,
            progress=say,
            session=given.session,
        )
        page.topologies = {NEW: (args.new, given.application_id), OLD: (args.topology, given.application_id)}
        page.verdict, page.good = f"{_verdict(result)}.", result.same
        page.rows_out = sum(s.new_rows for s in result.subjects if s.kind == "topic")
        page.tables.append(("Old against new", *_table(result), range(2, 7)))
        page.cautions = [*(f"change: {change}" for change in result.changes), *result.cautions]
        if result.table is not None and not result.same:
            page.published = [("differing rows", result.table)]
    if args.json:
        print(json.dumps({"same": result.same, **dataclasses.asdict(result)}))
        return 0 if result.same else 1
    show("old against new", *_table(result))
    for change in result.changes:
        print(f"change: {change}")
    for caution in result.cautions:
        print(f"caution: {caution}")
    for e in result.examples:
        print(f"{e.kind} {e.name}, key {e.key}: old {e.old}, new {e.new}")
    if result.table is not None and not result.same:
        print(f"all differing rows are in {result.table}")
    print(f"{_verdict(result)}, in {result.seconds:.1f} s")
    return 0 if result.same else 1


def _verdict(result: WhatIf) -> str:
    said = "nothing differs" if result.same else "the topologies DIFFER"
    return f"{said} over {result.records:,} processed records"


def _table(result: WhatIf) -> tuple[list[str], list[list[str]]]:
    """The comparisons: columns and rows."""
    columns = ["", "name", "old rows", "new rows", "differing rows", "of keys", "in metadata only"]
    rows = [
        [
            s.kind,
            s.name,
            f"{s.old_rows:,}",
            f"{s.new_rows:,}",
            f"{s.differing_rows:,}",
            f"{s.differing_keys:,}",
            f"{s.metadata_rows:,}",
        ]
        for s in result.subjects
    ]
    return columns, rows

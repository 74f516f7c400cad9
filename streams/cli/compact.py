"""``penstock compact``: changelogs to snapshots, by Spark."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.cli.spark_options import Given

_LOOK_AGAIN_S = 5.0


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.client_options import above_zero
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.schedule import add_every
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("compact", help="create snapshots of an application's stores from their changelogs")
    add_common(parser)
    parser.add_argument("--repository", metavar="URL", help="folder or fsspec URL; default: the setting snapshots")
    parser.add_argument("--store", action="append", dest="stores", metavar="NAME", help="only this store (repeatable)")
    parser.add_argument(
        "--at",
        default="committed",
        choices=["committed", "end"],
        help="the application's committed positions (makes a savepoint too), or the changelogs' ends (default: committed)",
    )
    parser.add_argument("--full", action="store_true", help="read whole changelogs, not only the part after a snapshot")
    parser.add_argument(
        "--keep",
        type=above_zero,
        default=3,
        metavar="N",
        help="snapshots of each store partition to keep (default: 3)",
    )
    parser.add_argument(
        "--keep-savepoints",
        type=above_zero,
        default=3,
        metavar="N",
        help="savepoints to keep with their snapshots, besides pinned ones (default: 3)",
    )
    parser.add_argument(
        "--trim-changelogs",
        action="store_true",
        help="delete what changelogs of key-value stores hold before their snapshots: workers then restore from these only",
    )
    add_every(parser)
    add_report(parser)
    parser.add_argument(
        "--wait",
        action="store_true",
        help="if another compaction of this application is running, wait for its end (default: skip this run)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compact, once or again and again, unless another process does."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.schedule import repeated
    from penstock.streams.cli.spark_options import inputs_of, require_spark

    require_spark()
    from penstock.streams.batch.lease import CompactionLease
    from penstock.streams.batch.places import absolute

    given = inputs_of(args)
    repository = absolute(args.repository or given.snapshots)
    if repository is None:
        raise SettingsError("there is no repository; give --repository, or the setting snapshots")
    lease = CompactionLease(repository, given.application_id)

    def once() -> int:
        while True:
            with lease.held() as other:
                if other is None:
                    return _compact(args, given, repository)
            lasts_s = max(1, (other.until_ms - time.time_ns() // 1_000_000) // 1000)
            print(
                f"{other.name} compacts {given.application_id} already, "
                + ("waiting for its end" if args.wait else "so this run is skipped; --wait waits for its end")
                + f". If that process was killed, it is in the way for {lasts_s} s at most",
                flush=True,
            )
            if not args.wait:
                return 0
            time.sleep(_LOOK_AGAIN_S)

    return repeated(args.every, once)


def _compact(args: argparse.Namespace, given: Given, repository: str) -> int:
    """Compact, and say what was done."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import say, show
    from penstock.streams.spark.compaction import compact

    with reported(args, given, "compact") as page:
        result = compact(
            args.topology,
            application_id=given.application_id,
            connection=given.connection,
            repository=repository,
            stores=args.stores,
            at=args.at,
            full=args.full,
            keep=args.keep,
            keep_savepoints=args.keep_savepoints,
            trim=args.trim_changelogs,
            progress=say,
            session=given.session,
        )
        page.written = [s.manifest for s in result.stores]
        made = [s.manifest for s in result.stores if s.read_from is not None]
        page.rows_out = sum(m.entries for m in made)
        page.verdict = f"{len(made)} snapshots written; {len(result.stores) - len(made)} are as they were."
        page.published = [("repository", repository)]
        page.saved(result.savepoint, result.no_savepoint)
        page.cautions = result.cautions
    rows = [
        [
            m.store,
            str(m.partition),
            f"{m.entries:,}",
            f"{m.size_bytes:,}",
            f"{m.changelog_offset:,}",
            "as it was" if s.read_from is None else f"read from {s.read_from:,}",
        ]
        for s in result.stores
        for m in (s.manifest,)
    ]
    show("snapshots", ["store", "partition", "entries", "bytes", "changelog offset", ""], rows)
    savepoint = f"; savepoint {result.savepoint}" if result.savepoint else ""
    if result.no_savepoint:
        print(f"no savepoint: {result.no_savepoint}")
    for caution in result.cautions:
        print(f"caution: {caution}")
    print(f"published in {repository} in {result.seconds:.1f} s{savepoint}")
    return 0

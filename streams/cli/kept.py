"""``penstock savepoints`` and ``penstock replays``: list what Spark's jobs have left, and pin what must stay."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any


def register(subparsers: Any) -> None:
    """Add the commands."""
    from penstock.streams.cli.client_options import add_settings_file

    parser = subparsers.add_parser("savepoints", help="list, pin and unpin the savepoints that compact has made")
    add_settings_file(parser)
    parser.add_argument("--repository", metavar="URL", help="folder or fsspec URL; default: the setting snapshots")
    _add_pins(parser, "a savepoint and its snapshots")
    parser.set_defaults(run=run, shown=show_savepoints)
    parser = subparsers.add_parser("replays", help="list, pin and unpin the replays in a folder")
    parser.add_argument("--output", required=True, metavar="DIR", help="where penstock replay put them")
    _add_pins(parser, "a replay")
    parser.set_defaults(run=run, shown=show_replays)


def _add_pins(parser: argparse.ArgumentParser, what: str) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--pin", metavar="NAME", help=f"keep {what} until it is unpinned")
    either.add_argument("--unpin", metavar="NAME", help=f"allow {what} to be removed again when it is old")


def run(args: argparse.Namespace) -> int:
    """The command that was given."""
    return int(args.shown(args))


def show_savepoints(args: argparse.Namespace) -> int:
    """Pin or unpin, then list."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.client_options import settings_of
    from penstock.streams.cli.spark_options import require_spark

    require_spark()
    from penstock.streams.batch.savepoint import SavepointRepository

    settings = settings_of(args.config, application_id=args.application_id)
    repository = args.repository or settings.snapshots
    if repository is None:
        raise SettingsError("there is no repository; give --repository, or the setting snapshots")
    saved, app = SavepointRepository(repository), settings.application_id
    if args.pin or args.unpin:
        saved.pin(app, args.pin or args.unpin, pinned=bool(args.pin))
    pinned, names = saved.pinned(app), saved.names(app)
    if not names:
        print(f"no savepoint of {app} is in {repository}; penstock compact makes them")
    for name in names:
        savepoint = saved.load(app, name)
        known = "exactly" if savepoint.outputs_exact else ("roughly" if savepoint.outputs else "not")
        print(
            f"{name}  {_time_of(name)}  {len(savepoint.stores)} snapshots, the outputs' offsets are {known} known"
            f"{', pinned' if name in pinned else ''}"
        )
    return 0


def show_replays(args: argparse.Namespace) -> int:
    """Pin or unpin, then list."""
    from penstock.streams.cli.spark_options import require_spark

    require_spark()
    from penstock.streams.batch.published import kept_replays, load_replay, pin_replay

    if args.pin or args.unpin:
        pin_replay(args.output, args.pin or args.unpin, pinned=bool(args.pin))
    shown = load_replay(args.output).run
    for kept in kept_replays(args.output):
        replay = load_replay(args.output, kept.run)
        state = f"{', current' if kept.run == shown else ''}{', pinned' if kept.pinned else ''}"
        print(f"{kept.run}  {_time_of(kept.run)}  {replay.topology}, {replay.records:,} records{state}")
    return 0


def _time_of(name: str) -> str:
    """When the run of this name started."""
    return f"{datetime.fromtimestamp(int(name[:13]) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"

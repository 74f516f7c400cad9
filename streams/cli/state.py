"""``penstock state``: look into an application's stores, on the disk of a worker or in a snapshot. Nothing is changed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from penstock.streams.cli.client_options import above_zero, add_settings_file, add_topology, settings_of
from penstock.streams.cli.typed_bytes import as_json, as_text, moment

if TYPE_CHECKING:
    from penstock.state.stores.store import StoreSpec
    from penstock.streams.cli.stored_entries import StoredEntries, StoreReader
    from penstock.streams.worker.settings import WorkerSettings
    from penstock.topologies.graph.topology import Topology

_SCANNED = 100


class StorePart(NamedTuple):
    """One partition of a store, where it is looked at. ``as_of_ms``: when it was known to be at this offset."""

    store: str
    kind: str
    partition: int
    entries: int
    size_bytes: int
    changelog_offset: int | None
    as_of_ms: int | None


def register(subparsers: Any) -> None:
    """Add the command and its actions."""
    parser = subparsers.add_parser("state", help="list an application's stores, and read their entries")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="each partition of each store: entries, size, how old it is")
    get = actions.add_parser("get", help="the entries of a key; of a windowed store, all its windows")
    scan = actions.add_parser("scan", help="entries in the store's order")
    for action in (listing, get, scan):
        add_topology(action)
    for action in (get, scan):
        action.add_argument("store", metavar="STORE", help="as penstock state list names it")
    get.add_argument("key", metavar="KEY", help="JSON of the key's type; a string needs no quotes")
    scan.add_argument("--from", dest="low", metavar="KEY", help="the first key (default: the lowest)")
    scan.add_argument("--to", dest="high", metavar="KEY", help="the last key (default: the highest)")
    scan.add_argument(
        "--limit", type=above_zero, default=_SCANNED, metavar="N", help=f"entries at most (default: {_SCANNED})"
    )
    for action, shown in ((listing, _list), (get, _get), (scan, _scan)):
        action.add_argument("--json", action="store_true", help="JSON: one object per line, of list one array")
        add_settings_file(action)
        where = action.add_mutually_exclusive_group()
        where.add_argument("--state-dir", metavar="DIR", help="the workers' folder (default: .penstock)")
        where.add_argument("--snapshots", metavar="URL", help="the newest snapshots of this repository instead")
        action.set_defaults(shown=shown)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was asked; 1 where a key has no entry, or something could not be read."""
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    given = {"application_id": args.application_id, "state_dir": args.state_dir}
    settings = settings_of(args.config, **given)
    return int(args.shown(args, topology, settings))


def _list(args: argparse.Namespace, topology: Topology, settings: WorkerSettings) -> int:
    from penstock.streams.cli.topics import table

    parts = sorted(
        snapshot_parts(args.snapshots, topology, settings) if args.snapshots else disk_parts(topology, settings)
    )
    if args.json:
        print(orjson.dumps([part._asdict() for part in parts], option=orjson.OPT_INDENT_2).decode())
        return 0
    rows = [
        [
            part.store,
            part.kind,
            str(part.partition),
            str(part.entries),
            f"{part.size_bytes:,}",
            "-" if part.changelog_offset is None else str(part.changelog_offset),
            "-" if part.as_of_ms is None else moment(part.as_of_ms),
        ]
        for part in parts
    ]
    print(table(["store", "kind", "partition", "entries (about)", "bytes", "changelog offset", "as of"], rows))
    return 0


def _get(args: argparse.Namespace, topology: Topology, settings: WorkerSettings) -> int:
    from penstock.streams.cli.stored_entries import StoreReader

    reader = StoreReader(spec_of(topology, args.store))
    key = key_bytes(reader, args.key)
    found = 0
    for partition, entries in _partitions(args, topology, settings, reader.spec):
        for store_key, stored in reader.of_key(entries, key):
            found += 1
            _print(args, partition, reader.shown(store_key, stored))
    if not found:
        where = args.snapshots or settings.state_dir
        print(f"penstock: store {args.store} has no entry of key {args.key} in {where}", file=sys.stderr)
    return 0 if found else 1


def _scan(args: argparse.Namespace, topology: Topology, settings: WorkerSettings) -> int:
    from penstock.streams.cli.stored_entries import StoreReader

    reader = StoreReader(spec_of(topology, args.store))
    low = None if args.low is None else key_bytes(reader, args.low)
    high = None if args.high is None else key_bytes(reader, args.high)
    left = args.limit
    for partition, entries in _partitions(args, topology, settings, reader.spec):
        for store_key, stored in reader.between(entries, low, high):
            if not left:
                print(
                    f"penstock: stopped at --limit {args.limit}; for more entries, give a larger one", file=sys.stderr
                )
                return 0
            left -= 1
            _print(args, partition, reader.shown(store_key, stored))
    return 0


def _print(args: argparse.Namespace, partition: int, shown: dict[str, Any]) -> None:
    if args.json:
        print(as_json({"partition": partition, **shown}).decode())
        return
    key = as_text(shown["key"])
    if "start" in shown:
        key = f"{key}@{moment(shown['start'])}" + (f"/{moment(shown['end'])}" if "end" in shown else "")
    for name in ("valid_from", "at"):
        if name in shown:
            key = f"{key}@{moment(shown[name])}"
    print(f"{key}\t{as_text(shown['value'])}\t{moment(shown['timestamp'])}")


def spec_of(topology: Topology, store: str) -> StoreSpec:
    """The store of this name. Raises ``SettingsError``."""
    from penstock.state.errors import SettingsError

    for spec in topology.stores:
        if spec.name == store:
            return spec
    raise SettingsError(
        f"the topology has no store {store!r}; its stores are {', '.join(s.name for s in topology.stores) or 'none'}"
    )


def key_bytes(reader: StoreReader, text: str) -> bytes:
    """The bytes of a key that a user wrote. Raises ``SettingsError``."""
    from penstock.state.errors import SettingsError, UserError

    assert reader.keys.read is not None
    if reader.keys.name == "string":
        return reader.keys.read(text)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = text
    try:
        return reader.keys.read(value)
    except (UserError, ValueError) as exc:
        raise SettingsError(f"key {text!r}: {exc}; the keys of {reader.spec.name} are {reader.keys.name}") from exc


def disk_parts(topology: Topology, settings: WorkerSettings) -> Iterator[StorePart]:
    """The store partitions in the folder of an application's workers."""
    from penstock.state.rocksdb.read_only import ReadOnlyDatabase

    for partition, number, path in _folders(topology, settings):
        with ReadOnlyDatabase(path) as database:
            for spec in topology.subtopologies[number].stores:
                if spec.name not in database.stores:
                    continue
                at = database.position(spec.name)
                yield StorePart(
                    spec.name,
                    spec.kind,
                    partition,
                    database.estimated_entries(spec.name),
                    database.size_bytes(spec.name),
                    None if at is None else at.changelog_offset,
                    None if at is None else at.wall_time_ms,
                )


def snapshot_parts(url: str, topology: Topology, settings: WorkerSettings) -> Iterator[StorePart]:
    """The newest snapshots of an application's store partitions."""
    from penstock.state.snapshots.repository import open_repository

    repository = open_repository(url)
    for of in repository.contents(settings.application_id):
        newest = repository.newest(of)
        if newest is not None and any(spec.name == of.store for spec in topology.stores):
            yield StorePart(
                of.store,
                newest.kind,
                of.partition,
                newest.entries,
                newest.size_bytes,
                newest.changelog_offset,
                newest.created_ms,
            )


def _folders(topology: Topology, settings: WorkerSettings) -> list[tuple[int, int, Path]]:
    """Partition, sub-topology and database of every task in the folder. Raises ``UserError`` where there is none."""
    from penstock.state.errors import UserError
    from penstock.state.machine.state_directory import StateDirectory

    directory = StateDirectory(settings.state_dir, settings.application_id)
    found = []
    for task in directory.tasks():
        number, _, partition = task.partition("_")
        if number.isdecimal() and partition.isdecimal() and int(number) < len(topology.subtopologies):
            found.append((int(partition), int(number), directory.database_path(task)))
    if not found:
        raise UserError(
            f"{directory.path} holds no stores; name the workers' folder with --state-dir, run this where a worker ran, or "
            "look into snapshots with --snapshots URL"
        )
    return sorted(found)


def _partitions(
    args: argparse.Namespace, topology: Topology, settings: WorkerSettings, spec: StoreSpec
) -> Iterator[tuple[int, StoredEntries]]:
    """The partitions of a store, to be read one after the other."""
    if args.snapshots:
        yield from _snapshots(args.snapshots, settings, spec)
        return
    from penstock.state.rocksdb.read_only import ReadOnlyDatabase

    for partition, number, path in _folders(topology, settings):
        if spec not in topology.subtopologies[number].stores:
            continue
        with ReadOnlyDatabase(path) as database:
            if spec.name in database.stores:
                at = database.position(spec.name)
                _say_age(spec.name, partition, None if at is None else at.wall_time_ms)
                yield partition, database


def _snapshots(url: str, settings: WorkerSettings, spec: StoreSpec) -> Iterator[tuple[int, StoredEntries]]:
    from penstock.state.errors import UserError
    from penstock.state.snapshots.repository import open_repository

    repository = open_repository(url)
    found = [of for of in repository.contents(settings.application_id) if of.store == spec.name]
    if not found:
        raise UserError(
            f"{url} holds no snapshot of store {spec.name} of {settings.application_id}; make one: penstock compact"
        )
    for of in found:
        manifest = repository.newest(of)
        if manifest is not None:
            with tempfile.TemporaryDirectory(prefix="penstock-state-") as folder:
                _say_age(spec.name, of.partition, manifest.created_ms)
                with _ingested(Path(folder), repository.fetch(manifest, Path(folder) / "fetched"), spec) as entries:
                    yield of.partition, entries


@contextmanager
def _ingested(folder: Path, files: list[Path], spec: StoreSpec) -> Iterator[StoredEntries]:
    """A snapshot's files as a database of their own."""
    from penstock.state.rocksdb.scratch import open_scratch

    backend = open_scratch(folder / "database", [spec])
    try:
        backend.ingest(spec.name, files)
        yield _Whole(backend)
    finally:
        backend.close()


class _Whole:
    """A backend with bounds that may be left out."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def range(self, store: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """StoredEntries with ``low <= key < high``, ascending."""
        found: Iterator[tuple[bytes, bytes]] = self._backend.range(store, low, high)
        return found


def _say_age(store: str, partition: int, as_of_ms: int | None) -> None:
    """Warn that what is read may be older than what a running worker knows."""
    if as_of_ms is None:
        print(f"{store} [{partition}] was never written out", file=sys.stderr)
        return
    age_s = max(time.time() - as_of_ms / 1000, 0)
    print(f"{store} [{partition}] as of {moment(as_of_ms)}, {age_s:,.0f} s ago", file=sys.stderr)

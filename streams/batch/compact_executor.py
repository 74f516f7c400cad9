"""Compaction inside the executors: changelog records to store entries, and sorted entries to table files, in bounded
memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import History, chooses, from_changelog_columns
from penstock.state.recovery.position import Position, encode_position
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.rocksdb.scratch import open_scratch
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.serdes.serde import BYTES
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition
from penstock.state.snapshots.repository import SnapshotRepository, new_attempt, open_repository
from penstock.state.stores.durable_backend import DurableBackend
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.batch.last_changes import LastChanges
from penstock.streams.batch.reading import read_range
from penstock.streams.kafka.native import choose

ENTRY_SCHEMA = pa.schema(
    [("place", pa.int32()), ("store_key", pa.binary()), ("change", pa.int64()), ("value", pa.binary())]
)
"""``place``: the store partition's number in the job. ``change`` orders the changes of one key. A null ``store_key``
only ensures that every store partition occurs; a null ``value`` deletes."""
_STAMP_BYTES = 8
_GROUP = 4_096


@dataclasses.dataclass(frozen=True)
class StoreForm:
    """The properties that determine the bytes of a store's entries: a ``StoreSpec`` without its serdes, which cannot
    be shipped."""

    name: str
    kind: StoreKind
    source_topic: str | None
    retention_ms: int | None

    @classmethod
    def of(cls, spec: StoreSpec) -> StoreForm:
        """The form of a store."""
        return cls(spec.name, spec.kind, spec.source_topic, spec.retention_ms)

    def spec(self) -> StoreSpec:
        """A store spec of this form, with bytes as keys and values."""
        return StoreSpec(
            self.name, self.kind, BYTES, BYTES, source_topic=self.source_topic, retention_ms=self.retention_ms
        )


@dataclasses.dataclass(frozen=True)
class CompactTarget:
    """One store partition to compact: its changelog ``[start, end)`` on top of ``base``, if there is one."""

    place: int
    application_id: str
    form: StoreForm
    partition: int
    facts: ChangelogFacts
    start: int
    end: int
    base: Manifest | None
    created_ms: int
    input_offsets: tuple[tuple[str, int, int], ...] | None
    stream_time_ms: int

    @property
    def of(self) -> StorePartition:
        """The subject of the snapshot."""
        return StorePartition(self.application_id, self.form.name, self.partition)

    @property
    def log(self) -> TopicPartition:
        """The changelog partition."""
        return TopicPartition(self.facts.topic, self.partition)


def to_entries(
    targets: dict[TopicPartition, list[CompactTarget]],
    batches: Iterable[pa.RecordBatch],
    *,
    repository: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Convert records to entries, each key once per batch with its last value, which makes the shuffle smaller. Late
    records that a versioned table did not accept are skipped. This follows from the order of offsets: the batches
    hold each log's records in it, from the target's start on. ``repository``: where the targets' bases are."""
    histories: dict[int, History] = {}
    for batch in batches:
        topics, partitions = batch.column("topic").to_pylist(), batch.column("partition").to_pylist()
        start = 0
        while start < batch.num_rows:
            here = (topics[start], partitions[start])
            stop = start + 1
            while stop < batch.num_rows and (topics[stop], partitions[stop]) == here:
                stop += 1
            part = batch.slice(start, stop - start)
            start = stop
            keys, values = part.column("key").to_pylist(), part.column("value").to_pylist()
            times = part.column("timestamp_ms").to_pylist()
            change = part.column("offset")[-1].as_py()
            for target in targets[TopicPartition(*here)]:
                if target.place not in histories:
                    histories[target.place] = _history(target, repository)
                columns: list[list[Any]] = [keys, values, times]
                if (taken := histories[target.place].taken(keys, times)) is not None:
                    columns = [list(compress(column, taken)) for column in columns]
                entries = from_changelog_columns(target.form.spec(), *columns)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([target.place] * len(entries), pa.int32()),
                        pa.array([k for k, _ in entries], pa.binary()),
                        pa.array([change] * len(entries), pa.int64()),
                        pa.array([v for _, v in entries], pa.binary()),
                    ],
                    schema=ENTRY_SCHEMA,
                )


def _history(target: CompactTarget, repository: str | None) -> History:
    """For the records from the target's start on."""
    spec = target.form.spec()
    if target.base is None or not chooses(spec):
        return History(spec)
    assert repository is not None, f"the base of {target.of} is in no repository"
    with TemporaryDirectory(prefix="penstock-compact-") as folder:
        base = _Base(open_repository(repository), target, Path(folder))
        try:
            return History(spec, base.entries())
        finally:
            base.close()


def compact_one(repository: str, file_bytes: int, address: ClusterAddress, target: CompactTarget) -> Manifest:
    """Read the target's changelog, and write it over its base as table files into the repository; the driver publishes the
    manifest. Every attempt uses its own file names, so a repeated or speculative one never touches another one's files.
    Raises as ``read_range``, and ``IncompatibleError`` for records that no such store wrote."""
    choose("auto")
    snapshots = open_repository(repository)
    with TemporaryDirectory(prefix="penstock-compact-") as folder:
        changes = LastChanges(target.form.spec(), _history(target, repository), Path(folder) / "changes")
        for chunk in read_range(address, target.application_id, target.log, target.start, target.end):
            changes.put(chunk)
        base = _Base(snapshots, target, Path(folder))
        seen = Seen()
        try:
            entries = merge_changes(base.entries(), seen.changes(changes.sorted()))
            return write_snapshot(snapshots, target, entries, file_bytes, seen)
        finally:
            base.close()


class Seen:
    """Statistics of the changes seen while a snapshot was written."""

    def __init__(self) -> None:
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None
        self.dropped = 0

    def entries(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Return the same entries and note their timestamps."""
        while group := list(islice(entries, _GROUP)):
            stamps = np.frombuffer(b"".join([value[:_STAMP_BYTES] for _, value in group]), ">i8")
            oldest, newest = int(stamps.min()), int(stamps.max())
            self.oldest_ms = oldest if self.oldest_ms is None else min(self.oldest_ms, oldest)
            self.newest_ms = newest if self.newest_ms is None else max(self.newest_ms, newest)
            yield from group

    def changes(self, changes: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the same changes and count the deletions."""
        for change in changes:
            self.dropped += change[1] is None
            yield change


def write_snapshot(
    repository: SnapshotRepository,
    target: CompactTarget,
    entries: Iterator[tuple[bytes, bytes]],
    file_bytes: int,
    seen: Seen | None = None,
) -> Manifest:
    """Write and upload a store partition's files; the caller publishes the manifest. ``seen``: the statistics of the
    changes."""
    attempt = new_attempt(target.created_ms)
    seen = seen or Seen()
    with TemporaryDirectory(prefix="penstock-snapshot-") as folder:
        work = Path(folder)
        files = write_ssts(work, attempt, seen.entries(entries), position=position_of(target), file_bytes=file_bytes)
        repository.upload(target.of, work, files)
    return manifest_of(target, attempt, files, seen)


def position_of(target: CompactTarget) -> bytes:
    """The position that the store of a snapshot begins with."""
    facts = target.facts
    return encode_position(
        Position(
            target.end,
            {TopicPartition(t, p): o for t, p, o in target.input_offsets or ()},
            facts.cluster_id,
            {facts.topic: facts.topic_id},
            target.created_ms,
            target.stream_time_ms,
            segment_ms=target.form.spec().segment_ms,
        )
    )


def manifest_of(target: CompactTarget, attempt: str, files: Sequence[SnapshotFile], seen: Seen) -> Manifest:
    """The manifest of a target's files."""
    facts = target.facts
    return Manifest(
        application_id=target.application_id,
        store=target.form.name,
        kind=target.form.kind,
        partition=target.partition,
        cluster_id=facts.cluster_id,
        topic=facts.topic,
        topic_id=facts.topic_id,
        changelog_offset=target.end,
        attempt=attempt,
        created_ms=target.created_ms,
        delete_retention_ms=facts.delete_retention_ms,
        segment_ms=target.form.spec().segment_ms,
        files=tuple(files),
        input_offsets=target.input_offsets,
        oldest_ms=seen.oldest_ms,
        newest_ms=seen.newest_ms,
        dropped=seen.dropped,
    )


class _Base:
    """The entries of the base snapshot; none without one."""

    def __init__(self, repository: SnapshotRepository, target: CompactTarget, folder: Path) -> None:
        self._backend: DurableBackend | None = None
        self._store = target.form.name
        if target.base is not None:
            try:
                files = repository.fetch(target.base, folder / "files")
            except StateCorruptedError as exc:
                raise StateCorruptedError(
                    f"{exc}. Compact again without it (--full), from the changelog's begin"
                ) from exc
            self._backend = open_scratch(folder / "db", [self._store])
            self._backend.ingest(self._store, files, move=True)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(()) if self._backend is None else self._backend.range(self._store, None, None)

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


def merge_changes(
    base: Iterator[tuple[bytes, bytes]], changes: Iterator[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Merge entries and changes, and drop deletions; both ascend strictly by key."""
    old = next(base, None)
    if old is None:
        for key, value in changes:
            if value is not None:
                yield key, value
        return
    new = next(changes, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            yield old
            old = next(base, None)
            continue
        if new[1] is not None:
            yield new[0], new[1]
        if old is not None and old[0] == new[0]:
            old = next(base, None)
        new = next(changes, None)

"""A changelog that is compacted by many executors at once: a store that was lost with its snapshots, or has none yet.

Usually an executor compacts a changelog partition alone (``compact_executor``), which needs no exchange. If one partition
has several times the share of an executor, its range is cut into pieces. Each is read and reduced to the last change of each
key by one executor; then each executor gets a range of the keys, takes the change of the last piece that has the key, and
writes table files of its range. The driver adds a file with the position and makes the manifest.

Only a compaction without a base is split, and only of stores whose changelog's records can be read apart from each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.state.recovery.changelog import History, chooses
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.snapshots.manifest import Manifest, SnapshotFile
from penstock.state.snapshots.repository import SnapshotRepository, open_repository
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, CompactTarget, Seen, manifest_of, position_of
from penstock.streams.batch.last_changes import LastChanges
from penstock.streams.batch.reading import read_range
from penstock.streams.batch.sorted_rows import SortedRows
from penstock.streams.kafka.native import choose

PIECE_RECORDS = 1_000_000
"""Fewer are not worth a piece."""
WORTH = 4
"""Fewer pieces do not make up for the exchange."""
PIECE_SCHEMA = pa.schema([("piece", pa.int32())])
PART_SCHEMA = pa.schema([("place", pa.int32()), ("part", pa.binary())])
_ROWS = 8_192


class ChangelogPiece(NamedTuple):
    """Records ``[start, end)`` of a target's changelog. ``number``: its place among the target's pieces."""

    target: CompactTarget
    number: int
    start: int
    end: int


class KeyRange(msgspec.Struct, frozen=True):
    """Table files of a range of a target's keys, and what ``Seen`` says of them."""

    files: tuple[SnapshotFile, ...]
    oldest_ms: int | None
    newest_ms: int | None
    dropped: int


def pieces(
    targets: Sequence[CompactTarget], slots: int, piece_records: int = PIECE_RECORDS, worth: int = WORTH
) -> list[ChangelogPiece]:
    """The pieces of the targets that are worth splitting when ``slots`` tasks run at once; the other targets have none."""
    share = max(sum(t.end - t.start for t in targets) / max(slots, 1), piece_records)
    found: list[ChangelogPiece] = []
    for target in targets:
        records = target.end - target.start
        count = min(round(records / share), slots)
        if count < worth or target.base is not None or chooses(target.form.spec()):
            continue
        cuts = [target.start + records * i // count for i in range(count + 1)]
        found += [ChangelogPiece(target, i, cuts[i], cuts[i + 1]) for i in range(count)]
    return found


def last_changes(
    address: ClusterAddress, all_pieces: Sequence[ChangelogPiece], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The last change of each key of pieces, as rows of ``ENTRY_SCHEMA`` whose ``change`` is the piece's number. The batches
    (``PIECE_SCHEMA``) name the pieces. Raises as ``read_range``, and ``IncompatibleError`` for records that no such store
    wrote."""
    choose("auto")
    for batch in batches:
        for piece in map(all_pieces.__getitem__, batch.column("piece").to_pylist()):
            yield from _of_piece(address, piece)


def _of_piece(address: ClusterAddress, piece: ChangelogPiece) -> Iterator[pa.RecordBatch]:
    target = piece.target
    spec = target.form.spec()
    with TemporaryDirectory(prefix="penstock-compact-") as folder:
        changes = LastChanges(spec, History(spec), Path(folder) / "changes")
        for chunk in read_range(address, target.application_id, target.log, piece.start, piece.end):
            changes.put(chunk)
        for keys, values in _columns(changes.sorted()):
            place = pa.repeat(pa.scalar(target.place, pa.int32()), len(keys))
            number = pa.repeat(pa.scalar(piece.number, pa.int64()), len(keys))
            yield pa.RecordBatch.from_arrays([place, keys, number, values], schema=ENTRY_SCHEMA)


def _columns(changes: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[pa.Array, pa.Array]]:
    rows: list[tuple[bytes, bytes | None]] = []
    for change in changes:
        rows.append(change)
        if len(rows) == _ROWS:
            yield _arrays(rows)
            rows = []
    if rows:
        yield _arrays(rows)


def _arrays(rows: list[tuple[bytes, bytes | None]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([k for k, _ in rows], pa.binary()), pa.array([v for _, v in rows], pa.binary())


def write_parts(
    repository: str,
    file_bytes: int,
    targets: Mapping[int, CompactTarget],
    attempts: Mapping[int, str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the entries of a range of keys into the repository, one row of ``PART_SCHEMA`` for each target. The batches
    (``ENTRY_SCHEMA``) are sorted by place, key and change, and have all rows of each of their keys. Every run has its own
    files, so a repeated task touches none of another one's."""
    snapshots = open_repository(repository)
    rows = SortedRows(batches)
    while (place := rows.place) is not None:
        seen = Seen()
        entries = seen.entries(_present(seen.changes(rows.entries(place))))
        with TemporaryDirectory(prefix="penstock-snapshot-") as folder:
            work, mark = Path(folder), uuid.uuid4().hex[:12]
            files = write_ssts(work, attempts[place], entries, position=None, mark=mark, file_bytes=file_bytes)
            snapshots.upload(targets[place].of, work, files)
        part = KeyRange(tuple(files), seen.oldest_ms, seen.newest_ms, seen.dropped)
        yield pa.record_batch(
            [pa.array([place], pa.int32()), pa.array([msgspec.json.encode(part)], pa.binary())], schema=PART_SCHEMA
        )


def _present(changes: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
    for key, value in changes:
        if value is not None:
            yield key, value


def joined(repository: SnapshotRepository, target: CompactTarget, attempt: str, parts: Sequence[KeyRange]) -> Manifest:
    """The manifest over a target's parts, and a first file with the position, which is uploaded."""
    with TemporaryDirectory(prefix="penstock-snapshot-") as folder:
        first = write_ssts(Path(folder), attempt, (), position=position_of(target))
        repository.upload(target.of, Path(folder), first)
    files = sorted((file for part in parts for file in part.files), key=_first_key)
    seen = Seen()
    seen.oldest_ms = min((p.oldest_ms for p in parts if p.oldest_ms is not None), default=None)
    seen.newest_ms = max((p.newest_ms for p in parts if p.newest_ms is not None), default=None)
    seen.dropped = sum(part.dropped for part in parts)
    return manifest_of(target, attempt, [*first, *files], seen)


def _first_key(file: SnapshotFile) -> bytes:
    assert file.first_key is not None, f"{file.name} is a part without entries"
    return file.first_key

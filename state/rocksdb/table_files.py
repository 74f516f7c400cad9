"""Table files (SST) that a RocksDB store can ingest, written from sorted entries without a database.

They have the layout of the database's own files, raw keys with the leading byte, keys strictly ascending by
unsigned bytes, and no overlap between files. The position is the first entry of the first file, so that data
and position appear in the store together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from rocksdict import SstFileWriter

from penstock.state.machine.atomic_files import sha256_of
from penstock.state.rocksdb.entry_layout import POSITION_KEY, USER_PREFIX
from penstock.state.rocksdb.error_texts import translated
from penstock.state.rocksdb.tuning import RocksDBOptions, table_options
from penstock.state.snapshots.manifest import SnapshotFile


def write_sst(
    path: Path,
    entries: Iterable[tuple[bytes, bytes]],
    *,
    position: bytes | None = None,
    options: RocksDBOptions | None = None,
) -> SnapshotFile:
    """Write all entries (store key, stored value) into one new file.

    Give ``position`` for the first file of a store only. Raises ``ValueError`` for keys that do not ascend strictly,
    and when there is nothing to write; ``EnvironmentFault`` for a full disk. Removes an unfinished file.
    """
    writer = SstFileWriter(table_options(options or RocksDBOptions()))
    try:
        with translated(path, "write the table file"):
            writer.open(str(path))
            if position is not None:
                writer[POSITION_KEY] = position
            count, first, last = _put_ascending(writer, iter(entries), None)
            if not count and position is None:
                raise ValueError(f"nothing to write into {path}: a table file holds at least one entry or the position")
            writer.finish()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return SnapshotFile(path.name, path.stat().st_size, sha256_of(path), count, first, last)


def write_ssts(
    folder: Path,
    stem: str,
    entries: Iterable[tuple[bytes, bytes]],
    *,
    position: bytes,
    file_bytes: int = 64 << 20,
    options: RocksDBOptions | None = None,
) -> list[SnapshotFile]:
    """Write a whole store into ``<stem>-00000.sst``, ``<stem>-00001.sst``…, each of about ``file_bytes``.

    The first file carries the position and exists even without entries. Raises as ``write_sst``; also ``ValueError`` if
    the first key of a file does not follow the last key of the file before.
    """
    files: list[SnapshotFile] = []
    rest = iter(entries)
    ahead: list[tuple[bytes, bytes]] = []
    last: bytes | None = None
    while True:
        run = _run(chain(ahead, rest), file_bytes)
        path = folder / f"{stem}-{len(files):05d}.sst"
        file = write_sst(path, run, position=None if files else position, options=options)
        files.append(file)
        if last is not None and file.first_key is not None and file.first_key <= last:
            raise ValueError(_not_ascending(last, file.first_key))
        last = file.last_key if file.last_key is not None else last
        # Read one entry ahead: begin a file only if it gets an entry.
        ahead = list(islice(rest, 1))
        if not ahead:
            return files


def _run(entries: Iterator[tuple[bytes, bytes]], max_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """The next entries of an iterator, until their keys and values together reach a size."""
    size = 0
    for entry in entries:
        yield entry
        size += len(entry[0]) + len(entry[1])
        if size >= max_bytes:
            return


def _put_ascending(
    writer: SstFileWriter, entries: Iterator[tuple[bytes, bytes]], last: bytes | None
) -> tuple[int, bytes | None, bytes | None]:
    prefix = USER_PREFIX
    count = 0
    first: bytes | None = None
    for key, value in entries:
        if last is None:
            first = key
        elif key <= last:
            raise ValueError(_not_ascending(last, key))
        writer[prefix + key] = value
        last = key
        count += 1
    return count, first, last


def _not_ascending(last: bytes, key: bytes) -> str:
    return (
        f"key {key[:64]!r} follows key {last[:64]!r}, but keys of table files must ascend strictly by "
        "unsigned bytes; sort the entries by store key and keep the last value of each"
    )

"""Table files (SST) that a RocksDB store can ingest, written from sorted entries without a database.

They have the layout of the database's own files, raw keys with the leading byte, keys strictly ascending by
unsigned bytes, and no overlap between files. The position is the first entry of the first file, so that data
and position appear in the store together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice, pairwise, repeat
from operator import add, lt
from pathlib import Path

from rocksdict import SstFileWriter

from penstock.state.machine.atomic_files import sha256_of
from penstock.state.rocksdb.entry_layout import POSITION_KEY, USER_PREFIX, fill
from penstock.state.rocksdb.error_texts import translated
from penstock.state.rocksdb.tuning import RocksDBOptions, table_options
from penstock.state.snapshots.manifest import SnapshotFile

_GROUP = 4_096


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
    position: bytes | None,
    mark: str = "",
    file_bytes: int = 64 << 20,
    options: RocksDBOptions | None = None,
) -> list[SnapshotFile]:
    """Write a whole store into ``<stem>-<mark>00000.sst``, ``<stem>-<mark>00001.sst``…, each of about ``file_bytes``.

    The first file carries the position and exists even without entries. ``None``: these are some entries of a store whose
    position another file carries; without entries there is no file. Raises as ``write_sst``; also ``ValueError`` if the
    first key of a file does not follow the last key of the file before.
    """
    files: list[SnapshotFile] = []
    rest = _Ahead(iter(entries))
    last: bytes | None = None
    if position is None and rest.at_end:
        return files
    while True:
        path = folder / f"{stem}-{mark}{len(files):05d}.sst"
        file = write_sst(path, rest.take(file_bytes), position=None if files else position, options=options)
        files.append(file)
        if last is not None and file.first_key is not None and file.first_key <= last:
            raise ValueError(_not_ascending(last, file.first_key))
        last = file.last_key if file.last_key is not None else last
        # Begin a file only if it gets an entry.
        if rest.at_end:
            return files


class _Ahead:
    """Entries that are read in groups, and given in runs of a size."""

    def __init__(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        self._entries = entries
        self._group: list[tuple[bytes, bytes]] = []

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        if not self._group:
            self._group = list(islice(self._entries, _GROUP))
        return not self._group

    def take(self, max_bytes: int) -> Iterator[tuple[bytes, bytes]]:
        """The next entries, until their keys and values together reach a size."""
        left = max_bytes
        while left > 0 and not self.at_end:
            group = self._group
            sizes = list(accumulate(len(k) + len(v) for k, v in group))
            if sizes[-1] < left:
                self._group = []
                left -= sizes[-1]
                yield from group
                continue
            stop = bisect_left(sizes, left) + 1
            self._group = group[stop:]
            yield from group[:stop]
            return


def _put_ascending(
    writer: SstFileWriter, entries: Iterator[tuple[bytes, bytes]], last: bytes | None
) -> tuple[int, bytes | None, bytes | None]:
    count = 0
    first: bytes | None = None
    while group := list(islice(entries, _GROUP)):
        keys = [k for k, _ in group]
        if last is None:
            first = keys[0]
        elif keys[0] <= last:
            raise ValueError(_not_ascending(last, keys[0]))
        if not all(map(lt, keys, islice(keys, 1, None))):
            low, high = next((low, high) for low, high in pairwise(keys) if high <= low)
            raise ValueError(_not_ascending(low, high))
        fill(writer, list(map(add, repeat(USER_PREFIX), keys)), [v for _, v in group])
        last = keys[-1]
        count += len(keys)
    return count, first, last


def _not_ascending(last: bytes, key: bytes) -> str:
    return (
        f"key {key[:64]!r} follows key {last[:64]!r}, but keys of table files must ascend strictly by "
        "unsigned bytes; sort the entries by store key and keep the last value of each"
    )

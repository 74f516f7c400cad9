"""The RocksDB backend: one database per task, one column family per store, no write-ahead log.

Invariants:

* A key in a column family is one leading byte and then the store's own key. ``0x01`` marks the store's entries,
  ``0x00`` the backend's own, of which there is only the position.
* A commit goes into the write buffer (``penstock.state.stores.write_buffer``), where reads find it. From there a store
  is written out by ``flush``, by ``close``, and when the buffer is too large: as one sorted table file, or together
  with other stores in one write batch. Either holds the entries and the store's position, so that no crash can separate
  them. Without a log a crash loses the commits since the last write-out or flush, separately for each store.
* A table file cannot delete a range, so a store of which keys have expired in the database is written in a batch. The
  batch and RocksDB's own buffer then hold all of its entries once more.
* A range joins the buffer and the database, a part at a time: the next entries of the buffer, and what the database has
  up to the last of them. So a reader who stops early pays for little, and each part is of one state, whatever is written
  out in between.
* A store is written out in files as large as the buffer, even if each key is put only once and the buffer combines
  nothing: the smaller the files, the more often RocksDB merges the levels below them. Many entries expire before that.
* A write-out deletes expired keys first: all its other entries were put later or have higher keys.
* ``close`` releases every handle of a column family; one that is left keeps the database locked. An open iterator is
  such a handle too.
* Damage is recorded in the folder (``DAMAGE_FILE``), which is then never opened again. Most damage appears long after
  the database was opened, when the damaged block is read.
* Ranges are read with the iterator that has a status. The convenient one (``items()``) stops at a damaged block as if
  the store ended there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from rocksdict import ColumnFamily, IngestExternalFileOptions, Rdict, ReadOptions, WriteBatch

from penstock.state.errors import IncompatibleError, StateCorruptedError, TopologyError
from penstock.state.failpoints import failpoint
from penstock.state.machine.atomic_files import replace_file
from penstock.state.native import compiled
from penstock.state.rocksdb.entry_layout import POSITION_KEY, USER_END, USER_PREFIX, fill, write_sorted
from penstock.state.rocksdb.error_texts import translated
from penstock.state.rocksdb.scans import entries_of, first_key
from penstock.state.rocksdb.tuning import RocksDBOptions, database_options, shared_bound, unlogged_writes
from penstock.state.stores.entry_cache import WrittenEntries, new_entries
from penstock.state.stores.store import PackedBytes, StoreSpec, StoreWrites, Unbased
from penstock.state.stores.write_buffer import StoreBuffer, merged

FILE_ENTRIES_MIN = 2_000
"""A write-out of fewer entries is a write batch. For many entries a table file is faster and needs the memory of one
block only; for few, a batch is faster."""
_Part = tuple[list[bytes], list[bytes | None]]
"""Keys and values; ``None`` deletes."""
PENDING_FILE = "written-out.pending"
DAMAGE_FILE = "damage.txt"
FIRST_PART, LAST_PART = 32, 4_096
"""How many entries of the buffer the first part of a range has. Each further one has eight times as many, up to the
last."""
WRITTEN_PARTS, WRITTEN_PARTS_IN_PYTHON = 2, 8
"""The part of the bound that may wait to be written out. Less in Python, where an entry takes about three times the
memory and a large buffer does not pay."""

_DEFAULT_FAMILY = "default"


class RocksDBBackend:
    """``StateBackend`` over one RocksDB database. Opens it, creates what is missing, and owns it until ``close``.
    ``damaged`` says what damage was met: then quarantine the files, and do not open them again.

    Stores that are not yet in the folder get an empty column family. Every method raises
    ``StateCorruptedError`` for damaged files, ``EnvironmentFault`` for a full or failing disk and missing
    rights, ``TopologyError`` for a store that was not named when it was opened, and ``ValueError`` after
    ``close``. Opening also raises ``RetriableError`` while another process holds the database, and
    ``IncompatibleError`` for a folder with stores that were not named.
    """

    def __init__(
        self, path: Path | str, stores: Sequence[StoreSpec | str], options: RocksDBOptions | None = None
    ) -> None:
        self._path = Path(path)
        self._options = options or RocksDBOptions()
        self._names = [s if isinstance(s, str) else s.name for s in stores]
        self.damaged: str | None = None
        self._closed = False
        self._write_options = unlogged_writes()
        entries_bytes = self._options.limits().entries_bytes
        self._bound = shared_bound(entries_bytes)
        with translated(self._path, "create the folder"):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._path / PENDING_FILE).unlink(missing_ok=True)  # of a process that was killed
        _refuse_damaged(self._path)
        _check_families(self._path, self._names)
        with translated(self._path, "open the database"):
            self._db = Rdict(
                str(self._path),
                database_options(self._options),
                column_families={name: database_options(self._options) for name in self._names},
            )
        # Per store, a lower bound of the database's keys: the search for expired ones begins there.
        self._floors: dict[str, bytes] = {}
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._buffers: dict[str, StoreBuffer] = {}
        try:
            for name in self._names:
                self._attach(name)
                self._buffers[name] = StoreBuffer(new_entries())
                self._buffers[name].began_empty = self.is_empty(name)
        except BaseException:
            self._closed = True
            self._release()
            raise
        parts = WRITTEN_PARTS if self.keeps_reads else WRITTEN_PARTS_IN_PYTHON
        self._written_max = min(entries_bytes // parts, self._options.write_out_bytes)
        self._bound.join()

    def _during(self, doing: str) -> AbstractContextManager[None]:
        return translated(self._path, doing, self._found_damaged)

    def _found_damaged(self, error: StateCorruptedError) -> None:
        if self.damaged is None:
            self.damaged = str(error)
            with suppress(OSError):  # if the disk refuses even this, the next read of the block meets the damage
                replace_file(self._path / DAMAGE_FILE, f"{error}\n".encode())

    def _attach(self, name: str) -> None:
        self._families[name] = self._db.get_column_family(name)
        self._handles[name] = self._db.get_column_family_handle(name)

    def _family(self, store: str) -> Rdict:
        try:
            return self._families[store]
        except KeyError:
            pass
        if self._closed:
            raise ValueError(f"the state in {self._path} is closed; open it again before using store {store!r}")
        raise TopologyError(
            f"store {store!r} is not among this task's stores {sorted(self._names)}; declare it in the topology"
        )

    @property
    def keeps_reads(self) -> bool:
        return not any(isinstance(b.entries, WrittenEntries) for b in self._buffers.values())

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        family, buffer = self._family(store), self._buffers[store]
        values, unknown = buffer.entries.get_many(keys)
        if unknown and (bound := buffer.dropped_below) is not None:
            unknown = [i for i in unknown if keys[i] >= bound]
        if not unknown or buffer.whole:
            return values
        asked = keys if len(unknown) == len(keys) else [keys[i] for i in unknown]
        found = self._read(family, asked)
        buffer.entries.keep_many(asked, found)
        self._shrink()
        if asked is keys:
            return found
        for i, value in zip(unknown, found, strict=True):
            values[i] = value
        return values

    def get_packed(self, store: str, data: Any, ends: Any, skip: int) -> PackedBytes | None:
        family, buffer = self._family(store), self._buffers[store]
        find = getattr(buffer.entries, "find_rows", None)
        native = compiled()
        if find is None or native is None or buffer.dropped_below is not None:
            return None
        *found, unknown = find(data, ends, skip)
        if unknown and not buffer.whole:
            asked, ends_asked, _ = native.take_rows(data, ends, None, memoryview(unknown).cast("q"))
            # Sorted, so that neighbouring keys are found in the same block.
            keys = sorted(set(native.list_rows(asked, memoryview(ends_asked).cast("q"), None)))
            buffer.entries.keep_many(keys, self._read(family, keys))
            *found, unknown = find(data, ends, skip)
            assert not unknown
            self._shrink()
        return PackedBytes(*found)

    def is_empty(self, store: str) -> bool:
        family = self._family(store)
        if self._buffers[store].changed:
            return False
        return next(self._ascending(family, USER_PREFIX, USER_END), None) is None

    def base(self, store: str, counts: Unbased) -> None:
        self._family(store)
        buffer = self._buffers[store]
        if not isinstance(buffer.entries, WrittenEntries) and buffer.dropped_below is None:
            counts.base_from(buffer.entries, buffer.whole)
        if keys := counts.unbased():
            counts.base(self.get_many(store, keys))

    def _read(self, family: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values that the database holds."""
        with self._during("read"):
            # A list is read by one batched multi-get, which also lets other threads run meanwhile.
            found: list[bytes | None] | None = family.get([USER_PREFIX + k for k in keys])
        assert found is not None  # a list of keys is answered by a list
        return found

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._family(store)
        if low is not None and high is not None and low >= high:
            return iter(())
        low = low or b""
        part = self._buffered(store, low, high, FIRST_PART, reverse)
        if part[0]:
            return self._joined(store, low, high, part, reverse)
        return self._stored(store, low, high, reverse)

    def ranges(self, store: str, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """See ``RangesAtOnce``."""
        family, buffer = self._family(store), self._buffers[store]
        dropped = buffer.dropped_below or b""
        with self._during("read"):
            found = entries_of(family, [(USER_PREFIX + max(low, dropped), USER_PREFIX + high) for low, high in bounds])
        between = buffer.entries.written_between
        for i, (low, high) in enumerate(bounds):
            keys, values = between(low, high, FIRST_PART, False)
            if len(keys) == FIRST_PART:
                found[i] = list(self.range(store, low, high))
            elif keys:
                found[i] = list(merged(iter(found[i]), keys, values, reverse=False))
        return found

    def _joined(
        self, store: str, low: bytes, high: bytes | None, part: _Part, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """A range of buffer and database, part by part. ``part``: the buffer's first one."""
        most = FIRST_PART
        while True:
            keys, values = part
            begin, end = low, high
            if len(keys) == most and reverse:
                begin = keys[0]
            elif len(keys) == most:
                end = keys[-1] + b"\x00"
            yield from merged(self._stored(store, begin, end, reverse), keys, values, reverse=reverse)
            if (begin, end) == (low, high):
                return
            low, high = (low, begin) if reverse else (end or b"", high)
            most = min(8 * most, LAST_PART)
            part = self._buffered(store, low, high, most, reverse)

    def _buffered(self, store: str, low: bytes, high: bytes | None, most: int, reverse: bool) -> _Part:
        """The first entries of the buffer in a range, or with ``reverse`` the last ones, by key."""
        return self._buffers[store].entries.written_between(low, high, most, reverse)

    def _stored(self, store: str, low: bytes, high: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """A range of the database."""
        family = self._family(store)
        if (bound := self._buffers[store].dropped_below) is not None:
            low = max(low, bound)
        first, end = USER_PREFIX + low, USER_END if high is None else USER_PREFIX + high
        return self._descending(family, first, end) if reverse else self._ascending(family, first, end)

    def _ascending(self, family: Rdict, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(end)
        with self._during("read"):
            it = family.iter(read_options)
            valid, key, value, advance = it.valid, it.key, it.value, it.next
            try:
                it.seek(first)
                while valid():
                    yield key()[1:], value()
                    advance()
                it.status()
            finally:
                del it, valid, key, value, advance  # the traceback of an error must not keep the handle

    def _descending(self, family: Rdict, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(end)
        with self._during("read"):
            it = family.iter(read_options)
            valid, key, value, advance = it.valid, it.key, it.value, it.prev
            try:
                it.seek_for_prev(end)
                # rocksdict's set_iterate_lower_bound sets the upper bound, so the lower one is compared here.
                while valid() and (found := key()) >= first:
                    yield found[1:], value()
                    advance()
                it.status()
            finally:
                del it, valid, key, value, advance

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        for write in writes:
            self._family(write.store)
        for write in writes:
            self._buffers[write.store].commit(write)
        written = sum(b.entries.written_bytes for b in self._buffers.values())
        if written > self._bound.part_bytes(self._written_max):
            self._write_out(self._names)
        self._shrink()

    def _shrink(self) -> None:
        """Keep all entries within the bound, each store in proportion. Written entries take at most half of it."""
        part = self._bound.part_bytes()
        used = sum(b.entries.used_bytes for b in self._buffers.values())
        if used > part:
            for buffer in self._buffers.values():
                buffer.entries.shrink(buffer.entries.used_bytes * part // used * 9 // 10)

    def _write_out(self, stores: Iterable[str]) -> None:
        """Write the stores' buffers into the database; afterwards each is at its last commit."""
        batch, batched = WriteBatch(raw_mode=True), []
        for store in dict.fromkeys(stores):
            buffer = self._buffers[store]
            if buffer.position is None:
                continue
            expired = None if buffer.dropped_below is None else self._pass_expired(store, buffer.dropped_below)
            if len(buffer.entries) >= FILE_ENTRIES_MIN and expired is None:
                self._take_in(store, buffer, buffer.position)
                buffer.settle()
                continue
            batch.set_default_column_family(self._handles[store])
            if expired is not None:
                # Unlike put and delete, a range deletion ignores the batch's default column family.
                batch.delete_range(*expired, self._handles[store])
            for keys, values in self._parts(store, buffer):
                fill(batch, keys, values)
            batch[POSITION_KEY] = buffer.position
            batched.append(store)
        if batched:
            with self._during("write"):
                self._db.write(batch, self._write_options)
            for store in batched:
                self._buffers[store].settle()

    def _parts(self, store: str, buffer: StoreBuffer) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """The entries written to a store, ascending; from now on the search for expired keys begins at or below the
        first."""
        parts = buffer.parts(USER_PREFIX)
        first = next(parts, None)
        if first is None:
            return iter(())
        self._floors[store] = min(self._floors.get(store, b""), first[0][0][1:])
        return chain((first,), parts)

    def _take_in(self, store: str, buffer: StoreBuffer, position: bytes) -> None:
        """Put a store's buffer into the database as one table file."""
        path = self._path / PENDING_FILE
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            with self._during("write out a table file"):
                write_sorted(path, self._parts(store, buffer), position, self._options)
                failpoint("write.file_made")
                self._families[store].ingest_external_file([str(path)], options)
        finally:
            path.unlink(missing_ok=True)

    def _pass_expired(self, store: str, bound: bytes) -> tuple[bytes, bytes] | None:
        """The range of the database's keys below the bound, to be deleted by the caller; ``None`` when there are none.

        The range starts at the first existing key, and the search for that key at the floor. If every range deletion
        started at the same key, each would overlap all earlier ones; if every search did, it would walk over everything
        ever dropped.
        """
        floor = self._floors.get(store, b"")
        if floor >= bound:
            return None
        with self._during("read"):
            found = first_key(self._families[store], USER_PREFIX + floor, USER_PREFIX + bound)
        self._floors[store] = bound
        return None if found is None else (found, USER_PREFIX + bound)

    def position(self, store: str) -> bytes | None:
        family = self._family(store)
        if (buffered := self._buffers[store].position) is not None:
            return buffered
        with self._during("read the position"):
            value: bytes | None = family.get(POSITION_KEY)
        return value

    def flush(self, stores: Sequence[str] | None = None) -> None:
        """Write out the stores (``None``: all) and wait until they are on the disk."""
        names = self._names if stores is None else stores
        families = [self._family(name) for name in names]
        failpoint("flush.begun")
        self._write_out(names)
        failpoint("flush.written")
        with self._during("flush"):
            for family in families:
                family.flush()
        failpoint("flush.done")

    def size_bytes(self, store: str) -> int:
        family = self._family(store)
        with self._during("ask for the size"):
            on_disk = family.property_int_value("rocksdb.total-sst-files-size") or 0
            in_memory = family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        return on_disk + in_memory + self._buffers[store].entries.written_bytes

    def reset(self, store: str) -> None:
        """Drop everything of one store, its position included, as if it had never been written."""
        self._family(store)
        self._floors.pop(store, None)
        self._buffers[store].clear()
        with self._during(f"empty store {store}"):
            if store == _DEFAULT_FAMILY:
                # The default column family cannot be dropped.
                self._families[store].delete_range(b"", USER_END, self._write_options)
                self._families[store].flush()
                return
            self._families.pop(store).close()
            del self._handles[store]
            self._db.drop_column_family(store)
            self._db.create_column_family(store, database_options(self._options)).close()
            self._attach(store)

    def ingest(self, store: str, files: Sequence[Path], *, move: bool = False) -> None:
        """Ingest table files made by ``write_sst`` into an empty store; all of them appear at once, position included.

        ``files``: ascending and disjoint, the position the first entry of the first. ``move`` links the files into the
        database and removes them from where they were, instead of copying (same file system only). Raises
        ``ValueError`` when the store is not empty, and ``StateCorruptedError``, leaving it empty, for files that cannot
        be ingested or have no position.
        """
        family = self._family(store)
        if self.position(store) is not None or next(self.range(store, None, None), None) is not None:
            raise ValueError(f"store {store!r} in {self._path} is not empty; reset it before ingesting a snapshot")
        options = IngestExternalFileOptions()
        options.set_move_files(move)
        self._floors.pop(store, None)
        self._buffers[store].clear()
        with translated(self._path, f"ingest a snapshot into store {store}"):
            family.ingest_external_file([str(f) for f in files], options)
        self._buffers[store].began_empty = False
        if self.position(store) is None:
            self.reset(store)
            raise StateCorruptedError(
                f"the {len(files)} files ingested into store {store!r} carry no position, so nothing says "
                "which offset they stand at; the store was emptied: restore it from its changelog and write "
                "the snapshot again"
            )

    def close(self) -> None:
        """Write out and flush every store and release the database, even if writing fails. Idempotent. A damaged
        database is released without writing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.damaged is None:
                self._write_out(self._names)
                with self._during("flush before closing"):
                    for family in self._families.values():
                        family.flush()
        finally:
            self._bound.leave()
            self._release()

    def _release(self) -> None:
        families = list(self._families.values())
        self._buffers.clear()
        self._handles.clear()
        self._families.clear()
        for family in families:
            with suppress(Exception):  # closing flushes once more; the flush before has already reported any error
                family.close()
        with suppress(Exception):
            self._db.close()


def _refuse_damaged(path: Path) -> None:
    with translated(path, "look for damage"):
        known = path / DAMAGE_FILE
        if known.exists():
            raise StateCorruptedError(
                f"damage was met in {path}: {known.read_text('utf-8', 'replace').strip()}; quarantine it and restore the "
                "task"
            )


def _check_families(path: Path, names: Sequence[str]) -> None:
    """Check that the folder is empty or holds a database with no stores other than ``names``."""
    if not (path / "CURRENT").exists():
        leftovers = sorted(p.name for p in path.iterdir() if p.suffix == ".sst" or p.name.startswith("MANIFEST-"))
        if leftovers:
            raise StateCorruptedError(
                f"{path} holds {leftovers[:3]} but no CURRENT file, so the database is "
                "incomplete; quarantine it and restore the task"
            )
        return
    with translated(path, "list the stores"):
        present = set(Rdict.list_cf(str(path)))
    unknown = sorted(present - set(names) - {_DEFAULT_FAMILY})
    if unknown:
        raise IncompatibleError(
            f"{path} holds the stores {unknown}, which the topology does not declare (it declares "
            f"{sorted(names)}); start the topology that wrote them, or give this one another application id, "
            "or remove the folder: declared stores are then restored from their snapshots and changelogs"
        )

"""The RocksDB backend: one database per task, one column family per store, no write-ahead log.

Invariants:

* A key in a column family is one leading byte and then the store's own key. ``0x01`` marks the store's
  entries, ``0x00`` marks ours; today that is only the position.
* A commit is one write batch. It holds the entries and, for each store that it touches, the position, so that
  no crash can part them. Without a log a crash loses the commits since a store's last flush, each store for
  itself.
* Every handle of a column family is released on ``close``; one that is left keeps the database locked. An
  iterator that is being read is such a handle too.
* A range is read with the iterator whose status can be asked. The convenient one (``items()``) ends at a
  damaged block as if the store ended there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from rocksdict import ColumnFamily, IngestExternalFileOptions, Rdict, ReadOptions, WriteBatch

from penstock.state.errors import IncompatibleError, StateCorruptedError, TopologyError
from penstock.state.rocksdb_errors import translated
from penstock.state.rocksdb_options import RocksDBOptions, database_options, unlogged_writes
from penstock.state.store import StoreSpec, StoreWrites

USER_PREFIX = b"\x01"
USER_END = b"\x02"
POSITION_KEY = b"\x00position"

_DEFAULT_FAMILY = "default"
_key_of = itemgetter(0)


class RocksDBBackend:
    """``StateBackend`` over one RocksDB database, which it opens, creating what is missing, and owns until
    ``close``.

    Stores that the folder does not hold yet get an empty column family. Every method raises
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
        self._closed = False
        self._write_options = unlogged_writes()
        with translated(self._path, "create the folder"):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_families(self._path, self._names)
        with translated(self._path, "open the database"):
            self._db = Rdict(
                str(self._path),
                database_options(self._options),
                column_families={name: database_options(self._options) for name in self._names},
            )
        # Per store, a key that none of its keys lies below: where the search for expired ones begins.
        self._floors: dict[str, bytes] = {}
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        for name in self._names:
            self._attach(name)

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

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        family = self._family(store)
        with translated(self._path, "read"):
            # A list is read by one batched multi-get, which also lets other threads run meanwhile.
            values: list[bytes | None] | None = family.get([USER_PREFIX + k for k in keys])
        assert values is not None  # a list of keys is answered by a list
        return values

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        family = self._family(store)
        if low is not None and high is not None and low >= high:
            return iter(())
        first = USER_PREFIX + (low or b"")
        end = USER_END if high is None else USER_PREFIX + high
        return self._descending(family, first, end) if reverse else self._ascending(family, first, end)

    def _ascending(self, family: Rdict, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(end)
        with translated(self._path, "read"):
            it = family.iter(read_options)
            it.seek(first)
            valid, key, value, advance = it.valid, it.key, it.value, it.next
            while valid():
                yield key()[1:], value()
                advance()
            it.status()

    def _descending(self, family: Rdict, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(end)
        with translated(self._path, "read"):
            it = family.iter(read_options)
            it.seek_for_prev(end)
            valid, key, value, advance = it.valid, it.key, it.value, it.prev
            # rocksdict's set_iterate_lower_bound sets the upper bound, so the lower one is compared here.
            while valid() and (found := key()) >= first:
                yield found[1:], value()
                advance()
            it.status()

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        if not writes:
            return
        for write in writes:
            self._family(write.store)
        batch = WriteBatch(raw_mode=True)
        prefix = USER_PREFIX
        floors = {w.store: self._floors.get(w.store, b"") for w in writes}
        pending: dict[str, bytes] = {}  # the lowest key that the batch puts, which the database does not hold yet
        for write in writes:
            store = write.store
            batch.set_default_column_family(self._handles[store])
            # Ascending keys keep the insertion into the memtable within the processor's caches.
            puts = sorted(write.puts, key=_key_of)
            for key, value in puts:
                if value is None:
                    del batch[prefix + key]
                else:
                    batch[prefix + key] = value
            if puts:
                pending[store] = min(pending.get(store, puts[0][0]), puts[0][0])
                floors[store] = min(floors[store], puts[0][0])
            if (bound := write.drop_below) is not None and floors[store] < bound:
                self._drop(batch, store, floors[store], bound, pending.get(store, bound))
                floors[store] = bound
                pending[store] = max(pending.get(store, bound), bound)
            batch[POSITION_KEY] = write.position
        with translated(self._path, "write"):
            self._db.write(batch, self._write_options)
        self._floors.update(floors)

    def _drop(self, batch: WriteBatch, store: str, floor: bytes, bound: bytes, pending: bytes) -> None:
        """Add the deletion of every key in ``[floor, bound)``; nothing when there is none.

        ``pending`` is the lowest key of the batch itself. The range starts at the first key there is, and the search
        for it at the floor: if every range deletion started at the same key, each would overlap all earlier ones, and
        if every search did, it would walk over all that was ever dropped.
        """
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(USER_PREFIX + bound)
        with translated(self._path, "read"):
            it = self._families[store].iter(read_options)
            it.seek(USER_PREFIX + floor)
            found = it.key() if it.valid() else USER_PREFIX + bound
            it.status()
        start = min(found, USER_PREFIX + pending)
        if start < USER_PREFIX + bound:
            # Unlike put and delete, a range deletion ignores the batch's default column family.
            batch.delete_range(start, USER_PREFIX + bound, self._handles[store])

    def position(self, store: str) -> bytes | None:
        family = self._family(store)
        with translated(self._path, "read the position"):
            value: bytes | None = family.get(POSITION_KEY)
        return value

    def flush(self, stores: Sequence[str] | None = None) -> None:
        """Write the memtables of the stores (``None``: all) to disk and wait until they are there."""
        families = [self._family(name) for name in (self._names if stores is None else stores)]
        with translated(self._path, "flush"):
            for family in families:
                family.flush()

    def size_bytes(self, store: str) -> int:
        family = self._family(store)
        with translated(self._path, "ask for the size"):
            on_disk = family.property_int_value("rocksdb.total-sst-files-size") or 0
            in_memory = family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        return on_disk + in_memory

    def reset(self, store: str) -> None:
        """Drop everything of one store, its position included: it is then as if it had never been written."""
        self._family(store)
        self._floors.pop(store, None)
        with translated(self._path, f"empty store {store}"):
            if store == _DEFAULT_FAMILY:
                # This column family cannot be dropped.
                self._families[store].delete_range(b"", USER_END, self._write_options)
                self._families[store].flush()
                return
            self._families.pop(store).close()
            del self._handles[store]
            self._db.drop_column_family(store)
            self._db.create_column_family(store, database_options(self._options)).close()
            self._attach(store)

    def ingest(self, store: str, files: Sequence[Path], *, move: bool = False) -> None:
        """Take table files made by ``write_sst`` into an empty store; all of them appear at once, position
        included.

        ``files``: ascending and disjoint, the position the first entry of the first. ``move`` links the files
        into the database and removes them from where they were, instead of copying them (same file system
        only). Raises ``ValueError`` when the store is not empty, and ``StateCorruptedError``, leaving it
        empty, for files that cannot be taken or carry no position.
        """
        family = self._family(store)
        if self.position(store) is not None or next(self.range(store, None, None), None) is not None:
            raise ValueError(f"store {store!r} in {self._path} is not empty; reset it before ingesting a snapshot")
        options = IngestExternalFileOptions()
        options.set_move_files(move)
        self._floors.pop(store, None)
        with translated(self._path, f"ingest a snapshot into store {store}"):
            family.ingest_external_file([str(f) for f in files], options)
        if self.position(store) is None:
            self.reset(store)
            raise StateCorruptedError(
                f"the {len(files)} files ingested into store {store!r} carry no position, so nothing says "
                "which offset they stand at; the store was emptied: restore it from its changelog and write "
                "the snapshot again"
            )

    def close(self) -> None:
        """Flush every store and release the database. Idempotent; releases it even when the flush fails."""
        if self._closed:
            return
        self._closed = True
        self._handles.clear()
        families = list(self._families.values())
        self._families.clear()
        try:
            with translated(self._path, "flush before closing"):
                for family in families:
                    family.flush()
        finally:
            for family in families:
                with suppress(Exception):  # it flushes once more; what that could say was said above
                    family.close()
            with suppress(Exception):
                self._db.close()


def _check_families(path: Path, names: Sequence[str]) -> None:
    """What the folder holds is a database with no other stores than ``names``, or nothing at all."""
    if not (path / "CURRENT").exists():
        leftovers = sorted(p.name for p in path.iterdir() if p.suffix == ".sst" or p.name.startswith("MANIFEST-"))
        if leftovers:
            raise StateCorruptedError(
                f"{path} holds {leftovers[:3]} but no CURRENT file, so it is no whole database; "
                "it is to be quarantined and the task restored"
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

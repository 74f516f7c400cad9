"""RocksDB for stores that are thrown away after use. A batch engine accounts for the memory of its processes, and gives
them little besides their heap (Spark: 384 MB, Python included), so no share of the machine's is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.state.stores.store import StoreSpec

BOUNDS = {
    "entries_bytes": 32 << 20,
    "block_cache_bytes": 16 << 20,
    "write_buffer_bytes": 8 << 20,
    "memtable_bytes": 4 << 20,
    "write_out_bytes": 16 << 20,
}
"""Options of ``RocksDBOptions``: those of any store in such a process."""
_STORE = "tables"


def open_scratch(folder: Path, stores: Sequence[StoreSpec | str]) -> RocksDBBackend:
    """Open stores in a folder. Raises as ``RocksDBBackend``."""
    return RocksDBBackend(folder, stores, RocksDBOptions(**BOUNDS))


@contextmanager
def read_tables(files: Sequence[Path]) -> Iterator[tuple[bytes, Iterator[tuple[bytes, bytes]]]]:
    """The position and the entries of a snapshot's table files, ascending, for a backend that cannot take the files.
    Raises ``StateCorruptedError`` for files that cannot be read or have no position, some of it while entries are read."""
    with TemporaryDirectory(prefix="penstock-tables-") as folder:
        backend = open_scratch(Path(folder), [_STORE])
        try:
            backend.ingest(_STORE, files)
            position = backend.position(_STORE)
            assert position is not None  # without one ingest refuses the files
            yield position, backend.range(_STORE, None, None)
        finally:
            backend.close()

"""A task's database, read while its worker runs or after it has stopped. Nothing is written, and no lock is taken.

A running worker writes its stores out from time to time. Changes that it has not written yet are not visible.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocksdict import AccessType, Options, Rdict, ReadOptions

from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.recovery.position import Position, decode_position
from penstock.state.rocksdb.entry_layout import POSITION_KEY, USER_END, USER_PREFIX
from penstock.state.rocksdb.error_texts import translated

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.2
_DEFAULT_FAMILY: Final = "default"


class ReadOnlyDatabase:
    """Opens the database in ``path`` as it is on the disk now. Use it in a ``with`` statement. Raises
    ``StateCorruptedError`` for files that cannot be read, and ``RetriableError`` if a worker replaced files during every
    attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path, "list the stores"):
            self.stores = sorted(set(Rdict.list_cf(str(path))) - {_DEFAULT_FAMILY})
        self._db = self._opened()

    def _opened(self) -> Rdict:
        options = Options(raw_mode=True)
        families = dict.fromkeys((*self.stores, _DEFAULT_FAMILY), options)
        for attempt in range(_ATTEMPTS):
            try:
                with translated(self._path, "read the database"):
                    return Rdict(str(self._path), options, column_families=families, access_type=AccessType.read_only())
            except StateCorruptedError as exc:  # its worker may just have removed a file that it merged
                if attempt + 1 == _ATTEMPTS:
                    raise RetriableError(f"{exc}; or its worker is merging files: try again") from exc
            time.sleep(_PAUSE_S)
        raise AssertionError  # the last attempt returns or raises

    def __enter__(self) -> ReadOnlyDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        with translated(self._path, "close the database"):
            self._db.close()

    def get(self, store: str, key: bytes) -> bytes | None:
        """The stored value of a store key."""
        with translated(self._path, "read"):
            found: bytes | None = self._db.get_column_family(store).get(USER_PREFIX + key)
        return found

    def range(self, store: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key < high``, ascending."""
        read_options = ReadOptions()
        read_options.set_iterate_upper_bound(USER_END if high is None else USER_PREFIX + high)
        with translated(self._path, "read"):
            it = self._db.get_column_family(store).iter(read_options)
            try:
                it.seek(USER_PREFIX + (low or b""))
                while it.valid():
                    yield it.key()[1:], it.value()
                    it.next()
                it.status()
            finally:
                del it

    def position(self, store: str) -> Position | None:
        """Where the store stood when it was last written out; ``None`` if it never was."""
        with translated(self._path, "read the position"):
            found = self._db.get_column_family(store).get(POSITION_KEY)
        return None if found is None else decode_position(found)

    def size_bytes(self, store: str) -> int:
        """The size of the store's files."""
        with translated(self._path, "ask for the size"):
            return self._db.get_column_family(store).property_int_value("rocksdb.total-sst-files-size") or 0

    def estimated_entries(self, store: str) -> int:
        """The estimated number of entries. RocksDB counts the position as one; it is subtracted."""
        with translated(self._path, "ask for the number of entries"):
            found = self._db.get_column_family(store).property_int_value("rocksdb.estimate-num-keys") or 0
        return max(found - 1, 0)

"""Stores in SQLite: a backend written from ``ARCHITECTURE.md`` and ``penstock.ports`` alone, for the tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.ports import PackedBytes, StoreSpec, StoreWrites, Unbased, read_tables
from penstock.state.errors import IncompatibleError, StateCorruptedError, TopologyError

TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS entries (store TEXT, key BLOB, value BLOB, PRIMARY KEY (store, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (store TEXT PRIMARY KEY, position BLOB);
"""


class SqliteBackend:
    """``DurableBackend`` over one SQLite file. Every commit is on the disk when it returns."""

    keeps_reads = False

    def __init__(self, folder: Path, stores: Sequence[StoreSpec]) -> None:
        self.damaged: str | None = None
        self._stores = {s.name for s in stores}
        folder.mkdir(parents=True, exist_ok=True)
        # The restore's thread opens it, and the loop's thread uses it then.
        self._db = sqlite3.connect(folder / "stores.sqlite", isolation_level=None, check_same_thread=False)
        try:
            self._db.executescript(TABLES)
            unknown = {name for (name,) in self._db.execute("SELECT store FROM positions")} - self._stores
        except sqlite3.DatabaseError as exc:
            self._db.close()
            raise StateCorruptedError(f"{folder} cannot be read ({exc}); quarantine it and restore the task") from exc
        if unknown:
            self._db.close()
            raise IncompatibleError(f"{folder} holds the stores {sorted(unknown)}, which are not declared; remove it")

    def _known(self, store: str) -> str:
        if store not in self._stores:
            raise TopologyError(f"store {store!r} is not among {sorted(self._stores)}; declare it in the topology")
        return store

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        find = "SELECT value FROM entries WHERE store = ? AND key = ?"
        found = (self._db.execute(find, (self._known(store), key)).fetchone() for key in keys)
        return [None if row is None else row[0] for row in found]

    def get_packed(self, store: str, data: Any, ends: Any, skip: int) -> PackedBytes | None:
        return None

    def base(self, store: str, counts: Unbased) -> None:
        counts.base(self.get_many(store, counts.unbased()))

    def is_empty(self, store: str) -> bool:
        return (
            self._db.execute("SELECT 1 FROM entries WHERE store = ? LIMIT 1", (self._known(store),)).fetchone() is None
        )

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        bounds, values = ["store = ?"], [self._known(store), *(b for b in (low, high) if b is not None)]
        bounds += ["key >= ?"] * (low is not None) + ["key < ?"] * (high is not None)
        order = "DESC" if reverse else "ASC"
        found = self._db.execute(
            f"SELECT key, value FROM entries WHERE {' AND '.join(bounds)} ORDER BY key {order}", values
        )
        return iter(found.fetchall())

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        names = [self._known(write.store) for write in writes]
        with self._db:  # rolls back what fails
            self._db.execute("BEGIN")
            for store, write in zip(names, writes, strict=True):
                for key, value in zip(*write.columns(), strict=True):
                    if value is None:
                        self._db.execute("DELETE FROM entries WHERE store = ? AND key = ?", (store, key))
                    else:
                        self._db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (store, key, value))
                if write.drop_below is not None:
                    self._db.execute("DELETE FROM entries WHERE store = ? AND key < ?", (store, write.drop_below))
                self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (store, write.position))

    def position(self, store: str) -> bytes | None:
        row = self._db.execute("SELECT position FROM positions WHERE store = ?", (self._known(store),)).fetchone()
        return None if row is None else row[0]

    def flush(self, stores: Sequence[str] | None = None) -> None:
        """Does nothing: every commit is on the disk."""

    def reset(self, store: str) -> None:
        with self._db:
            self._db.execute("BEGIN")
            for table in ("entries", "positions"):
                self._db.execute(f"DELETE FROM {table} WHERE store = ?", (self._known(store),))

    def size_bytes(self, store: str) -> int:
        find = "SELECT coalesce(sum(length(key) + length(value)), 0) FROM entries WHERE store = ?"
        return int(self._db.execute(find, (self._known(store),)).fetchone()[0])

    def ingest(self, store: str, files: Sequence[Path], *, move: bool = False) -> None:
        if self.position(store) is not None or not self.is_empty(store):
            raise ValueError(f"store {store!r} is not empty; reset it before ingesting a snapshot")
        with read_tables(files) as (position, entries):
            self.commit([StoreWrites(store, list(entries), position)])

    def close(self) -> None:
        self._db.close()

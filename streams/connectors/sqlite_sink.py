"""Rows into a table of a SQLite file, exactly once: the position is in the same transaction.

One transaction holds the rows and moves the position. It moves only if the position is where this writer left it and no
newer writer has been opened. Every opening of a partition gets a higher generation, so that a worker that was frozen, and
wakes after another one has taken over, changes nothing. A writer holds the file's lock only within a transaction. If its
process is frozen in there, all other writers of the file wait until it wakes or ends; that is how SQLite works.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby

import msgspec

from penstock.state.errors import (
    EnvironmentFault,
    PenstockError,
    ProcessingError,
    RetriableError,
    SettingsError,
    TaskMigratedError,
)
from penstock.streams.connectors.sql_statements import (
    PLACE,
    POSITIONS,
    TableSink,
    column,
    describe_position,
    listed,
    on_conflict,
)
from penstock.streams.connectors.table_rows import TableRow
from penstock.topologies.operator_api.external_sinks import SinkPartition, SinkRows, SinkWriter
from penstock.topologies.windows.durations import Duration, duration_s

_MADE = (
    f"CREATE TABLE IF NOT EXISTS {POSITIONS} (application_id TEXT, sink TEXT, topic TEXT, topic_id TEXT, "
    "partition INTEGER, next_offset INTEGER NOT NULL, generation INTEGER NOT NULL, "
    f"PRIMARY KEY ({listed(PLACE)})) WITHOUT ROWID"
)
_HERE = " AND ".join(f"{column(name)} = ?" for name in PLACE)
_OPEN = (
    f"INSERT INTO {POSITIONS} ({listed(PLACE)}, next_offset, generation) VALUES (?, ?, ?, ?, ?, ?, 1) "
    f"ON CONFLICT ({listed(PLACE)}) DO UPDATE SET generation = generation + 1"
)
_LOOK = f"SELECT next_offset, generation FROM {POSITIONS} WHERE {_HERE}"
_MOVE = f"UPDATE {POSITIONS} SET next_offset = ? WHERE {_HERE} AND generation = ? AND next_offset = ?"
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL")
_UNUSABLE = ("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_PERM")


@dataclasses.dataclass(frozen=True)
class SqliteSink(TableSink):
    """Writes a table of the SQLite file at ``path``, exactly once, under either guarantee of the worker. The table must
    exist; the positions are kept in the table ``penstock_positions`` of the same file. See ``TableSink`` for the rest.
    ``timeout``: how long to wait for the file's lock before a retry."""

    _: dataclasses.KW_ONLY
    path: str
    timeout: Duration = "5s"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path or self.path == ":memory:":
            raise SettingsError(f"path={self.path!r}; give the path of a file: one in memory is gone after a crash")

    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        return _SqliteWriter(self, partition, start)

    def describe(self) -> str:
        return f"{super().describe()}, SQLite {self.path}"


class _SqliteWriter(SinkWriter):
    def __init__(self, sink: SqliteSink, partition: SinkPartition, start: int) -> None:
        self._sink, self._partition = sink, partition
        self._statements: dict[tuple[str, ...], str] = {}
        with self._translated():
            self._db = sqlite3.connect(
                sink.path, timeout=duration_s(sink.timeout), isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated():
                self._look_at_table()
            with self._transaction():
                self._db.execute(_MADE)
                self._db.execute(_OPEN, (*partition, start))
                self.position, self._generation = self._db.execute(_LOOK, tuple(partition)).fetchone()
        except BaseException:
            self.close()
            raise

    def _look_at_table(self) -> None:
        known = [row[1] for row in self._db.execute(f"PRAGMA table_info({column(self._sink.table)})")]
        missing = [name for name in self._sink.key_columns if name not in known]
        if not known:
            raise SettingsError(f"SQLite file {self._sink.path} has no table {self._sink.table!r}; create it first")
        if missing:
            raise SettingsError(
                f"table {self._sink.table!r} of {self._sink.path} has no column {missing[0]!r}, which key= names; it has: "
                f"{', '.join(known)}"
            )
        if self._sink.mode == "upsert" and set(self._sink.key_columns) not in self._unique():
            raise SettingsError(
                f"table {self._sink.table!r} of {self._sink.path} has no primary key or unique index over "
                f"{', '.join(self._sink.key_columns)}, by which a row replaces another; create one, or use mode='append'"
            )

    def _unique(self) -> list[set[str]]:
        """The columns of each unique index."""
        table = column(self._sink.table)
        found = [{row[1] for row in self._db.execute(f"PRAGMA table_info({table})") if row[5]}]
        for _, index, unique, _, partial in self._db.execute(f"PRAGMA index_list({table})").fetchall():
            if unique and not partial:
                found.append({row[2] for row in self._db.execute(f"PRAGMA index_info({column(index)})")})
        return found

    def write(self, rows: SinkRows, position: int) -> int:
        with self._transaction():
            moved = self._db.execute(_MOVE, (position, *self._partition, self._generation, self.position))
            if moved.rowcount != 1:
                raise TaskMigratedError(
                    f"another writer of {self._partition} was opened since, or its position was changed "
                    f"({POSITIONS} where {describe_position(self._partition)})"
                )
            for statement, run in groupby(zip(rows.rows, rows.offsets, strict=True), lambda x: self._statement(x[0])):
                self._run(statement, list(run))
        self.position = position
        return position

    def _statement(self, row: TableRow) -> str:
        names = () if row.columns is None else (*row.columns,)
        made = self._statements.get(names)
        if made is None:
            made = self._statements[names] = self._made(names)
        return made

    def _made(self, names: tuple[str, ...]) -> str:
        table, key = column(self._sink.table), self._sink.key_columns
        if not names:
            return f"DELETE FROM {table} WHERE " + " AND ".join(f"{column(name)} = ?" for name in key)
        insert = f"INSERT INTO {table} ({listed(names)}) VALUES ({', '.join('?' * len(names))})"
        return insert if self._sink.mode == "append" else f"{insert} {on_conflict(key, names)}"

    def _run(self, statement: str, rows: list[tuple[TableRow, int]]) -> None:
        done = 0

        def values() -> Iterator[tuple[object, ...]]:
            nonlocal done
            for row, _ in rows:
                done += 1
                yield tuple(map(_plain, row.key if row.columns is None else row.columns.values()))

        try:
            self._db.executemany(statement, values())
        except (sqlite3.Error, OverflowError) as exc:
            if (of := _fault(exc)) is not None:
                raise of(f"SQLite file {self._sink.path}: {exc}") from exc
            row, offset = rows[done - 1]
            raise ProcessingError(
                f"sink {self._partition}: table {self._sink.table!r} refuses the row of offset {offset} ({exc}): "
                f"{(row.columns or row.key)!r:.200}. Change the table or the record, or filter such records out"
            ) from exc

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            of = _fault(exc) or SettingsError
            raise of(f"SQLite file {self._sink.path}: {exc}") from exc

    def close(self) -> None:
        self._db.close()


def _fault(error: Exception) -> Callable[[str], PenstockError] | None:
    """The class of a fault that is not a row's."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(_BUSY):
        return RetriableError
    return EnvironmentFault if name.startswith(_UNUSABLE) else None


def _plain(value: object) -> object:
    """A value that SQLite stores: lists and fields within fields become JSON."""
    if isinstance(value, list | dict | tuple):
        return msgspec.json.encode(value).decode()
    return value

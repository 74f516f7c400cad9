"""Rows into a table of Postgres, exactly once: the position is in the same transaction, and that is one statement.

The statement arrives at the server as a whole and needs no second word of the client. So a worker that is frozen, at any
moment, holds no lock, and when it wakes it changes nothing. If a new writer nevertheless waits for a lock of the one before
it, such as of one that writes row by row, it ends that one's session.

Postgres holds a statement's rows against constraints all at once, in no order. If it refuses them, they are written again
row by row, in their order and in one transaction. That says which row is refused, or succeeds.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from penstock.state.errors import (
    EnvironmentFault,
    PenstockError,
    ProcessingError,
    RetriableError,
    SettingsError,
    TaskMigratedError,
)
from penstock.streams.connectors import postgres_statements as sql
from penstock.streams.connectors.sql_statements import POSITIONS, TableSink, describe_position, quoted
from penstock.topologies.operator_api.external_sinks import SinkPartition, SinkRows, SinkWriter
from penstock.topologies.windows.durations import Duration, duration_ms, duration_s

_REFUSED = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "does not support SSL",
    "certificate",
)
_MISSING_TABLE, _NO_RIGHT = "42P01", "42501"
_MADE_BY_ANOTHER = (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject)
"""The table was made at the same moment: its name, or that of its type, was there."""
_OF_ROWS = ("09", "21", "22", "23", "2F", "38", "39", "42", "44", "54", "P0")
"""Classes of errors that a row's values or columns cause, in the table itself or in its triggers."""
_AGAIN = ("08", "25", "40", "53", "55", "57")
"""Classes of errors after which the same may succeed."""


@dataclasses.dataclass(frozen=True)
class PostgresSink(TableSink):
    """Writes a table of Postgres (12 or later), exactly once, under either guarantee of the worker. The table must exist;
    the positions are kept in the table ``penstock_positions`` of the same database. See ``TableSink`` for the rest. Needs
    the extra ``postgres``.

    ``conninfo``: as libpq takes it, such as ``postgresql://shop@db.example/shop``; what it lacks, such as the password,
    comes from libpq's variables and files.

    ``statement_timeout``: how long one statement may take, ``lock_timeout``: how much of it waiting for a lock; after
    that the write is repeated. ``connect_timeout``: of each connection, and how much longer than a statement an answer
    may take."""

    _: dataclasses.KW_ONLY
    conninfo: str = dataclasses.field(default="", repr=False)
    connect_timeout: Duration = "5s"
    lock_timeout: Duration = "5s"
    statement_timeout: Duration = "30s"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("connect_timeout", "lock_timeout", "statement_timeout"):
            if duration_ms(getattr(self, name)) == 0:
                raise SettingsError(f"{name}={getattr(self, name)!r}; give a duration above 0")
        try:
            conninfo_to_dict(self.conninfo)
        except psycopg.Error as exc:
            raise SettingsError(
                f"conninfo: {_text(exc)}; give postgresql://USER@HOST/DATABASE, or 'host=… dbname=…'"
            ) from None

    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        return _PostgresWriter(self, partition, start)

    def describe(self) -> str:
        return f"{super().describe()}, Postgres"


class _PostgresWriter(SinkWriter):
    def __init__(self, sink: PostgresSink, partition: SinkPartition, start: int) -> None:
        self._sink, self._partition = sink, partition
        self._name = f"penstock {uuid.uuid4()}"
        try:
            self._db = _connected(sink, self._name)
        except psycopg.Error as exc:
            raise _translated(exc) from exc
        try:
            self._statements = sql.TableStatements(
                sink.table, sink.key_columns, sink.mode == "append", self._look_at_table()
            )
            self._make_positions()
            self.position, self._generation = self._take(start)
        except _RowError as exc:
            self.close()
            raise EnvironmentFault(f"Postgres: {exc}") from exc
        except BaseException:
            self.close()
            raise

    def _look_at_table(self) -> tuple[str, ...]:
        """The table's columns that a row can set."""
        table, key = self._sink.table, self._sink.key_columns
        known = [name for (name,) in self._ask(sql.COLUMNS, [quoted(table)])]
        if not known:
            raise SettingsError(f"Postgres has no table {table!r} here; create it first, or name its schema")
        missing = next((name for name in key if name not in known), None)
        if missing is not None:
            raise SettingsError(
                f"table {table!r} has no column {missing!r}, which key= names; it has: {', '.join(known)}"
            )
        unique = [set(names) for (names,) in self._ask(sql.UNIQUE, [quoted(table)])]
        if self._sink.mode == "upsert" and set(key) not in unique:
            raise SettingsError(
                f"table {table!r} has no primary key or unique index over {', '.join(key)}, by which a row replaces "
                "another; create one, or use mode='append'"
            )
        return tuple(known)

    def _make_positions(self) -> None:
        """Creating a table that exists needs a right that writing does not."""
        if self._ask(sql.FIND_POSITIONS, []) == [(None,)]:
            with suppress(*_MADE_BY_ANOTHER):
                self._ask(sql.MAKE_POSITIONS, [], but=_MADE_BY_ANOTHER)

    def _take(self, start: int) -> tuple[int, int]:
        """Get a new generation; returns the position and it."""
        values = [*self._partition, start, self._name]
        try:
            found = self._ask(sql.OPEN, values, but=(errors.LockNotAvailable,))
        except errors.LockNotAvailable:
            self._ask(sql.END_OLD, [*self._partition])
            found = self._ask(sql.OPEN, values)
        return found[0][0], found[0][1]

    def write(self, rows: SinkRows, position: int) -> int:
        move = sql.Move(self._partition, self._generation, self.position, position)
        try:
            moved = self._ask(*self._statements.whole(rows.rows, move)) == [(1,)]
        except (_RowError, ValueError):
            moved = self._one_by_one(rows, move)
        if not moved:
            raise TaskMigratedError(
                f"another writer of {self._partition} was opened since, or its position was changed "
                f"({POSITIONS} where {describe_position(self._partition)})"
            )
        self.position = position
        return position

    def _one_by_one(self, rows: SinkRows, move: sql.Move) -> bool:
        """Write each row by a statement of its own; returns whether the position moved."""
        self._ask("BEGIN", [])
        try:
            if self._ask(*move.statement()) != [(1,)]:
                self._ask("ROLLBACK", [])
                return False
            for row, offset in zip(rows.rows, rows.offsets, strict=True):
                try:
                    self._ask(*self._statements.single(row))
                except (_RowError, ValueError) as exc:
                    raise self._refused(f"the row of offset {offset}", exc, row.columns or row.key) from exc
            try:
                self._ask("COMMIT", [])
            except _RowError as exc:
                raise self._refused(f"the rows of offsets {rows.offsets[0]} to {rows.offsets[-1]}", exc, ...) from exc
        except BaseException:
            with suppress(PenstockError, _RowError):
                self._ask("ROLLBACK", [])
            raise
        return True

    def _refused(self, what: str, why: Exception, row: object) -> ProcessingError:
        shown = "" if row is ... else f": {row!r:.200}"
        return ProcessingError(
            f"sink {self._partition}: table {self._sink.table!r} refuses {what} ({why}){shown}. "
            "Change the table or the record, or filter such records out"
        )

    def _ask(
        self, statement: str, values: Sequence[Any], *, but: tuple[type[psycopg.Error], ...] = ()
    ) -> list[tuple[Any, ...]]:
        """The rows that a statement returns. Postgres ends what takes too long. If it says nothing at all, as on a machine
        that is gone, the connection is cut. ``but``: errors that stay as they are."""
        wait_s = duration_s(self._sink.statement_timeout) + duration_s(self._sink.connect_timeout)
        cut = _Cut(self._db, wait_s)
        try:
            cursor = self._db.execute(statement, values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as exc:
            if cut.done:
                raise RetriableError(f"Postgres: no answer within {wait_s:g} s") from exc
            if isinstance(exc, but):
                raise
            raise _translated(exc) from exc
        finally:
            cut.cancel()

    def close(self) -> None:
        self._db.close()


class _Cut:
    """Cuts a connection after a time, unless it is cancelled."""

    def __init__(self, db: psycopg.Connection[Any], seconds: float) -> None:
        self._db, self.done = db, False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self.done = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._db.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    def cancel(self) -> None:
        """The answer is there."""
        self._timer.cancel()


class _RowError(Exception):
    """A row's values or columns do not fit the table."""


def _connected(sink: PostgresSink, name: str) -> psycopg.Connection[Any]:
    """A session that waits for nothing too long."""
    wait_ms = duration_ms(sink.statement_timeout)
    ours: dict[str, Any] = {
        "connect_timeout": max(1, round(duration_s(sink.connect_timeout))),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "tcp_user_timeout": wait_ms,
    }
    given = conninfo_to_dict(sink.conninfo)
    db = psycopg.connect(**{**ours, **given, "application_name": name}, autocommit=True, prepare_threshold=None)
    try:
        db.execute(
            *sql.session(
                {
                    "lock_timeout": f"{duration_ms(sink.lock_timeout)}ms",
                    "statement_timeout": f"{wait_ms}ms",
                    "idle_in_transaction_session_timeout": f"{wait_ms}ms",
                    "default_transaction_isolation": "read committed",
                }
            )
        )
    except BaseException:
        db.close()
        raise
    return db


def _translated(error: psycopg.Error) -> Exception:
    """Our error for one of the database's."""
    state, text = error.sqlstate or "", _text(error)
    if state == _NO_RIGHT:
        return SettingsError(
            f"Postgres: {text}; grant it to the worker's role, for {POSITIONS} too, or create that beforehand"
        )
    if state == _MISSING_TABLE:
        return SettingsError(f"Postgres: {text}; create it first, or name its schema")
    if state.startswith(_OF_ROWS):
        return _RowError(text)
    if not state:
        refused = isinstance(error, psycopg.ProgrammingError) or any(words in text for words in _REFUSED)
        return SettingsError(f"Postgres: {text}; look at conninfo") if refused else RetriableError(f"Postgres: {text}")
    return RetriableError(f"Postgres: {text}") if state.startswith(_AGAIN) else EnvironmentFault(f"Postgres: {text}")


def _text(error: psycopg.Error) -> str:
    """The database's message, in one line."""
    return " ".join(str(error).split())

"""Tables of Postgres that grow, as a source: the rows that are inserted, in the order of a column that a sequence fills.

A sequence hands out numbers before their rows can be seen, and transactions end in any order, so a row may appear below one
that was read. Therefore rows are read only up to a number behind which nothing can appear: the sequence is looked at first,
and then the transactions are waited for that were open at that time. Whoever had taken a number by then was one of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row, tuple_row

from penstock.state.errors import EnvironmentFault, IncompatibleError, RetriableError, SettingsError
from penstock.streams.connectors.row_records import RowRecords, columns_of
from penstock.streams.connectors.source import Source, SourceBatch, SourceReader, SourceRecord
from penstock.topologies.windows.durations import Duration, duration_ms, duration_s

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT_S: Final = 1.0
_LOOK_S: Final = 0.05
_SEQUENCE = """
SELECT s.seqrelid::regclass::text, s.seqcache, s.seqincrement, pg_is_in_recovery()
FROM pg_sequence s WHERE s.seqrelid = pg_get_serial_sequence(%s, %s)::regclass
"""
_OPEN = """
SELECT l.virtualtransaction FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
  AND a.datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL SELECT 'prepared ' || gid FROM pg_prepared_xacts WHERE database = current_database()
"""
_LASTING = ("28", "3D", "42", "0A")
"""Classes of errors that pass by no retry: rights, names, statements."""


@dataclass(frozen=True)
class PostgresSource(Source):
    """Reads the rows that are inserted into ``tables`` of Postgres (12 or later), exactly once. Changes and deletions of
    rows that were read are not seen. Needs the extra ``postgres``.

    ``column``: an identity or serial column that gives each row a number; it must not hand out numbers ahead (``CACHE 1``,
    the default), and a number must be taken in the transaction that inserts its row. The order of rows is that of the
    numbers. ``key``: the column of the key, or several for a key with fields. ``timestamp``: the column of the event time:
    milliseconds, a timestamp, or ISO 8601.

    A row is read once all transactions of the database have ended that were open when its number was looked at, so that one
    that stays open holds up new rows.

    ``conninfo``: as libpq takes it; what it lacks, such as the password, comes from libpq's variables and files. The role
    needs ``SELECT`` on the tables and on their sequences. ``statement_timeout``: how long one statement may take."""

    tables: str | Sequence[str]
    _: KW_ONLY
    conninfo: str = field(default="", repr=False)
    column: str = "id"
    key: str | Sequence[str] | None = None
    timestamp: str | None = None
    connect_timeout: Duration = "5s"
    statement_timeout: Duration = "30s"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", columns_of(self.tables))
        if not self.tables or not all(self.tables) or len(set(self.tables)) < len(self.tables):
            raise SettingsError(f"tables={self.tables!r:.100}; give the name of a table, or a list of different ones")
        if min(duration_ms(self.connect_timeout), duration_ms(self.statement_timeout)) <= 0:
            raise SettingsError("connect_timeout and statement_timeout must be above 0")
        try:
            conninfo_to_dict(self.conninfo)
        except psycopg.Error as exc:
            raise SettingsError(
                f"conninfo: {_text(exc)}; give postgresql://USER@HOST/DATABASE, or 'host=… dbname=…'"
            ) from None

    def splits(self) -> list[str]:
        return [*columns_of(self.tables)]

    def open(self, split: str, position: str | None) -> SourceReader:
        return _TableReader(self, split, position)

    def describe(self) -> str:
        return f"PostgresSource {', '.join(columns_of(self.tables))}"


class _TableReader(SourceReader):
    def __init__(self, source: PostgresSource, table: str, position: str | None) -> None:
        self._source, self._table = source, table
        self._records = RowRecords(columns_of(source.key), source.timestamp)
        self._at: int | None = int(position) if position else None
        self._safe: int | None = None
        """Up to this number nothing can appear any more; ``None``: not known."""
        self._awaited: tuple[int, set[str]] | None = None
        """The number that is safe once these transactions have ended."""
        ours: dict[str, Any] = {"connect_timeout": max(1, round(duration_s(source.connect_timeout)))}
        timeout_ms = duration_ms(source.statement_timeout)
        with _translated():
            given = conninfo_to_dict(source.conninfo)
            self._db = psycopg.connect(**{**ours, **given}, autocommit=True, prepare_threshold=None)
        try:
            with _translated():
                self._db.execute("SELECT set_config('statement_timeout', %s, false)", [f"{timeout_ms}ms"])
                self._sequence = self._looked_up()
                self._check()
        except BaseException:
            self.close()
            raise

    def _looked_up(self) -> str:
        """The sequence of the column."""
        column, name = self._source.column, _quoted(self._table)
        found = self._ask(_SEQUENCE, [name, column])
        if not found:
            raise SettingsError(
                f"column {column!r} of table {self._table} is not filled by a sequence; name an identity or serial column: "
                "column=…"
            )
        sequence, cache, increment, standby = found[0]
        if standby:
            raise SettingsError(
                "the server is a standby, which does not know the primary's transactions; connect to that"
            )
        if cache != 1 or increment < 1:
            raise SettingsError(
                f"sequence {sequence} of table {self._table} has CACHE {cache}, INCREMENT {increment}, so that its numbers "
                "are not in the order in which they are taken; set CACHE 1 and an increment above 0"
            )
        return str(sequence)

    def _check(self) -> None:
        """Refuse a table whose sequence is behind the position."""
        last = self._last()
        if self._at is not None and last < self._at:
            raise IncompatibleError(
                f"table {self._table} was read up to {self._source.column} {self._at}, and its sequence is at {last}: it "
                "was recreated, or brought back from a backup. Start over with --from-beginning, or give the ingestion "
                "another name"
            )

    def read(self, max_records: int) -> SourceBatch:
        with _translated():
            rows = self._rows(max_records)
            if rows:
                return self._batch(rows, ended=False)
            if not self._settled():
                return self._batch([], ended=False)
            rows = self._rows(max_records)
            return self._batch(rows, ended=len(rows) < max_records)

    def _batch(self, rows: list[dict[str, Any]], *, ended: bool) -> SourceBatch:
        column = self._source.column
        found: list[SourceRecord] = [
            self._records.record(row, f"{self._table}, {column} {row[column]}") for row in rows
        ]
        if rows:
            self._at = rows[-1][column]
        return SourceBatch(found, "" if self._at is None else str(self._at), ended)

    def _rows(self, most: int) -> list[dict[str, Any]]:
        if self._safe is None:
            return []
        column = sql.Identifier(self._source.column)
        table = sql.Identifier(*self._table.split("."))
        after = sql.SQL("TRUE") if self._at is None else sql.SQL("{} > {}").format(column, self._at)
        query = sql.SQL("SELECT * FROM {} WHERE {} AND {} <= {} ORDER BY {} LIMIT {}")
        with self._db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.format(table, after, column, self._safe, column, most)).fetchall()

    def _settled(self) -> bool:
        """Whether the safe number was moved up to where the sequence stood in this call or before it; waits a while for
        transactions."""
        until_s = time.monotonic() + _WAIT_S
        if self._awaited is None:
            last = self._last()
            self._awaited = last, self._open()
        last, others = self._awaited
        while others:
            others &= self._open()
            if others and time.monotonic() > until_s:
                return False
            if others:
                time.sleep(_LOOK_S)
        self._safe, self._awaited = last, None
        return True

    def _open(self) -> set[str]:
        """The open transactions of this database, except for this one."""
        return {name for (name,) in self._ask(_OPEN, [])}

    def _last(self) -> int:
        """The last number that was taken; the one before the first if none was."""
        parts = sql.SQL("SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM ")
        with self._db.cursor(row_factory=tuple_row) as cursor:
            found = cursor.execute(parts + sql.SQL(self._sequence)).fetchone()  # as regclass writes it
        assert found is not None
        return int(found[0])

    def _ask(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._db.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement.encode(), values).fetchall()

    def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()


def _quoted(table: str) -> str:
    """The table's name, as Postgres reads it in a text."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as exc:
        state = exc.sqlstate or ""
        if state.startswith(_LASTING):
            raise SettingsError(f"Postgres: {_text(exc)}; correct the names, or grant the role what it lacks") from exc
        if state[:2] in ("22", "XX"):
            raise EnvironmentFault(f"Postgres: {_text(exc)}") from exc
        refused = not state and any(
            words in _text(exc) for words in ("authentication failed", "does not exist", "pg_hba")
        )
        if refused:
            raise SettingsError(f"Postgres: {_text(exc)}; look at conninfo") from exc
        raise RetriableError(f"Postgres: {_text(exc)}") from exc


def _text(error: psycopg.Error) -> str:
    """The database's message, in one line."""
    return " ".join(str(error).split())

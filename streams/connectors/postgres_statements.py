"""The statements of Postgres' sink. Pure.

A write is one statement. It moves the position, if it is where the writer left it and no newer writer has been opened, and
changes rows only if it did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.streams.connectors.collapsed_rows import RowChange, as_json, collapsed
from penstock.streams.connectors.sql_statements import PLACE, POSITIONS, column, listed, on_conflict, quoted
from penstock.streams.connectors.table_rows import TableRow
from penstock.topologies.operator_api.external_sinks import SinkPartition

BoundStatement = tuple[str, list[Any]]

MAKE_POSITIONS = (
    f"CREATE TABLE IF NOT EXISTS {POSITIONS} (application_id text, sink text, topic text, topic_id text, "
    "partition integer, next_offset bigint NOT NULL, generation bigint NOT NULL, writer text NOT NULL, "
    f"PRIMARY KEY ({listed(PLACE)})) WITH (fillfactor = 50)"
)
FIND_POSITIONS = f"SELECT to_regclass('{POSITIONS}')"
_HERE = " AND ".join(f"{column(name)} = %s" for name in PLACE)
OPEN = (
    f"INSERT INTO {POSITIONS} AS p ({listed(PLACE)}, next_offset, generation, writer) "
    f"VALUES ({'%s, ' * len(PLACE)}%s, 1, %s) "
    f"ON CONFLICT ({listed(PLACE)}) DO UPDATE SET generation = p.generation + 1, writer = excluded.writer "
    "RETURNING next_offset, generation"
)
END_OLD = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND application_name = "
    f"(SELECT writer FROM {POSITIONS} WHERE {_HERE})"
)
_MOVE = f"UPDATE {POSITIONS} SET next_offset = %s WHERE {_HERE} AND generation = %s AND next_offset = %s RETURNING 1"
COLUMNS = (
    "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
    "AND attgenerated = '' ORDER BY attnum"
)
UNIQUE = (
    "SELECT ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid "
    "AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])) FROM pg_index i "
    "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate "
    "AND i.indpred IS NULL AND i.indexprs IS NULL"
)
"""The columns of each index that an upsert can go by."""


def session(settings: dict[str, str]) -> BoundStatement:
    """Set these in the session. And a commit that the server may forget would put the position behind Kafka's."""
    calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
    durable = (
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
    )
    return f"SELECT {calls}, {durable}", [part for item in settings.items() for part in item]


@dataclasses.dataclass(frozen=True)
class Move:
    """One step of a position, by the writer of this generation."""

    partition: SinkPartition
    generation: int
    start: int
    stop: int

    def statement(self) -> BoundStatement:
        """Returns one row if the position moved, none otherwise."""
        return _MOVE, [self.stop, *self.partition, self.generation, self.start]


@dataclasses.dataclass(frozen=True)
class TableStatements:
    """The writes of one table. ``columns``: those that a row can set."""

    table: str
    key: tuple[str, ...]
    appends: bool
    columns: tuple[str, ...]

    def whole(self, rows: Sequence[TableRow], move: Move) -> BoundStatement:
        """Move the position and, if it moved, apply the rows. Returns how many positions moved. The rows have the effect of
        one after the other, except that the constraints of the table see them all at once."""
        sql, values = move.statement()
        parts = [f"moved AS ({sql})"]
        changes = [RowChange(row.key, row.columns) for row in rows] if self.appends else collapsed(rows)
        for number, (_, run) in enumerate(groupby(sorted(changes, key=_kind), key=_kind)):
            some = list(run)
            parts.append(f"part{number} AS ({self._change(some[0], 'moved, ')})")
            values.append(as_json(map(self._given, some)))
        return f"WITH {', '.join(parts)} SELECT count(*)::int FROM moved", values

    def single(self, row: TableRow) -> BoundStatement:
        """Apply a row."""
        change = RowChange(row.key, row.columns)
        return self._change(change, ""), [as_json([self._given(change)])]

    def _given(self, change: RowChange) -> dict[str, Any]:
        return dict(zip(self.key, change.key, strict=True)) if change.columns is None else change.columns

    def _change(self, like: RowChange, only_if: str) -> str:
        """Apply changes of one kind, which are the rows ``given``."""
        table = _escaped(quoted(self.table))
        given = f"{only_if}json_populate_recordset(NULL::{table}, %s::json) AS given"
        if like.columns is None:
            same = " AND ".join(f"{table}.{c} = given.{c}" for c in map(_escaped, map(column, self.key)))
            return f"DELETE FROM {table} USING {given} WHERE {same}"
        names = [*like.columns]
        chosen = ", ".join(f"given.{_escaped(column(name))}" for name in names)
        insert = f"INSERT INTO {table} ({_escaped(listed(names))}) SELECT {chosen} FROM {given}"
        return insert if self.appends else f"{insert} {_escaped(self._on_conflict(names, like.fresh))}"

    def _on_conflict(self, names: Sequence[str], fresh: bool) -> str:
        reset = [f"{column(name)} = DEFAULT" for name in self.columns if name not in names] if fresh else []
        if not reset:
            return on_conflict(self.key, names)
        taken = [f"{column(name)} = excluded.{column(name)}" for name in names if name not in self.key]
        return f"ON CONFLICT ({listed(self.key)}) DO UPDATE SET {', '.join(taken + reset)}"


def _kind(change: RowChange) -> tuple[bool, tuple[str, ...], bool]:
    return change.columns is not None, tuple(sorted(change.columns or ())), change.fresh


def _escaped(sql: str) -> str:
    """Names in a statement with parameters."""
    return sql.replace("%", "%%")

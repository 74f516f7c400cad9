"""The common part of the sinks of SQL databases: settings, names, and the table of positions. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, get_args

from penstock.state.errors import SettingsError
from penstock.state.log import Headers
from penstock.streams.connectors.table_rows import RowShape, TableRow, names_of
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition

TableMode = Literal["upsert", "append"]
POSITIONS = "penstock_positions"
PLACE = ("application_id", "sink", "topic", "topic_id", "partition")
"""The columns that say whose position a row is, as in ``SinkPartition``."""


def quoted(name: str) -> str:
    """A name in quotes; dots separate a schema from its table."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def column(name: str) -> str:
    """A column's name in quotes."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Column names in quotes."""
    return ", ".join(map(column, names))


def on_conflict(key: tuple[str, ...], columns: Iterable[str]) -> str:
    """The clause of an upsert for a row that exists: set the columns that the new one has."""
    others = [name for name in columns if name not in key]
    does = "UPDATE SET " + ", ".join(f"{column(c)} = excluded.{column(c)}" for c in others) if others else "NOTHING"
    return f"ON CONFLICT ({listed(key)}) DO {does}"


def describe_position(partition: SinkPartition) -> str:
    """For errors: the row that holds a position."""
    return " and ".join(f"{name} = {value!r}" for name, value in zip(PLACE, partition, strict=True))


@dataclasses.dataclass(frozen=True)
class TableSink(Sink):
    """A sink that writes rows of a table, whose columns are the key's and the fields of the value.

    ``mode="upsert"``: a record replaces the row of its key, and a null value deletes it. The columns ``key`` must be the
    table's primary key or a unique one. ``mode="append"``: every record is a new row; then ``key`` may be empty.
    ``value``: the column of values without fields. ``timestamp``: a column for the record's time in milliseconds."""

    table: str
    _: dataclasses.KW_ONLY
    key: str | tuple[str, ...] = ()
    mode: TableMode = "upsert"
    value: str = "value"
    timestamp: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(TableMode):
            raise SettingsError(f"mode={self.mode!r}; choose one of {', '.join(get_args(TableMode))}")
        if not self.table or "\0" in self.table:
            raise SettingsError(f"table={self.table!r}; give the name of a table")
        object.__setattr__(self, "key", names_of(self.key, "key"))
        if self.mode == "upsert" and not self.key:
            raise SettingsError(
                f"table {self.table!r}: an upsert needs key=, the columns of the table's primary key, or mode='append'"
            )

    @property
    def by_key(self) -> bool:  # type: ignore[override]  # follows from the mode
        return self.mode == "upsert"

    @property
    def append_only(self) -> bool:  # type: ignore[override]  # follows from the mode
        return self.mode == "append"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key."""
        return names_of(self.key, "key")

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> TableRow:
        if value is None and self.mode == "append":
            raise ValueError("the value is null, and a table with mode='append' has no rows to delete")
        return RowShape(self.key_columns, self.value, self.timestamp).row(key, value, timestamp_ms)

    def describe(self) -> str:
        return f"table {self.table}, {self.mode}"

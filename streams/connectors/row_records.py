"""Rows of named columns as records. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.streams.connectors.source import SourceRecord

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


@dataclasses.dataclass(frozen=True)
class RowRecords:
    """How rows become records. ``key``: the column whose value is the key; several make a key with these fields; none: null.
    ``timestamp``: the column of the record's time. The value is the whole row."""

    key: tuple[str, ...] = ()
    timestamp: str | None = None

    def record(self, row: Any, place: str) -> SourceRecord:
        """The record of a row; one with an ``error`` if the row makes none."""
        try:
            if not isinstance(row, Mapping):
                if self.key or self.timestamp is not None:
                    raise ValueError(f"{row!r:.100} has no columns for key= and timestamp=")
                return SourceRecord(None, row, place=place)
            at = None if self.timestamp is None else time_ms(_cell(row, self.timestamp))
            return SourceRecord(self._key(row), row, at, place=place)
        except (ValueError, OverflowError) as exc:
            return unreadable(place, str(exc))

    def _key(self, row: Mapping[str, Any]) -> Any:
        if len(self.key) == 1:
            return _cell(row, self.key[0])
        return {name: _cell(row, name) for name in self.key} or None


def unreadable(place: str, why: str) -> SourceRecord:
    """Stands for a record that cannot be read."""
    return SourceRecord(None, None, place=place, error=why)


def time_ms(value: Any) -> int:
    """Milliseconds since 1970 of a number of them, an ISO 8601 text, a date or a time; without a zone it is UTC's. Raises
    ``ValueError`` for anything else."""
    if isinstance(value, str):
        value = int(value) if value.lstrip("-").isdigit() else datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if isinstance(value, datetime.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)) - _EPOCH
        value //= _MS
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r:.100} is not a time since 1970; give milliseconds or ISO 8601")
    return value


def _cell(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise ValueError(f"there is no column {name!r}, which key= or timestamp= names; there are: {', '.join(row)}")
    return row[name]


def line(number: int, path: str) -> str:
    """The place of a line, for messages."""
    return f"{path}, line {number}"


def columns_of(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names, as one or several or none."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)

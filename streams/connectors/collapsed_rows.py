"""The rows of one write, collapsed to one change per key, for statements that may change a row only once. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.streams.connectors.table_rows import TableRow

_FINITE_MAX = float("inf")


@dataclasses.dataclass
class RowChange:
    """The outcome of one row. ``columns``: the last values; ``None``: it is deleted. ``fresh``: it was deleted before, so
    that columns which have no value here get their defaults."""

    key: tuple[Any, ...]
    columns: dict[str, Any] | None
    fresh: bool = False


def collapsed(rows: Iterable[TableRow]) -> list[RowChange]:
    """One change per key, which has the effect of all of its rows, one after the other."""
    found: dict[str, RowChange] = {}
    for row in rows:
        key = repr(row.key)
        before = found.get(key)
        if row.columns is None:
            found[key] = RowChange(row.key, None)
        elif before is None:
            found[key] = RowChange(row.key, row.columns)
        elif before.columns is None:
            found[key] = RowChange(row.key, row.columns, fresh=True)
        else:
            found[key] = RowChange(row.key, {**before.columns, **row.columns}, before.fresh)
    return list(found.values())


def as_json(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as a JSON array that Postgres turns into rows: bytes as hexadecimal text, numbers that JSON lacks as text. Raises
    ``ValueError`` for text that is not Unicode."""
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return msgspec.json.encode(plain).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, float) and not -_FINITE_MAX < value < _FINITE_MAX:
        return str(value)
    return value

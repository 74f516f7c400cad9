"""Records as rows of named columns, for databases and files. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from penstock.state.errors import SettingsError
from penstock.state.log import Windowed
from penstock.state.serdes.models import plain as plain_of


class TableRow(NamedTuple):
    """``key``: the values of the key columns, in their order. ``columns``: the values of all columns by name, the key's too;
    ``None``: the row is deleted."""

    key: tuple[Any, ...]
    columns: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class RowShape:
    """How records become rows. ``key``: the columns of the key: one for a plain key, one for each field of that name for a
    key with fields, those of the inner key, of the window's start and of its end for a windowed key (the end may be left
    out). ``value``: the column of values without fields. ``timestamp``: the column of the record's time in milliseconds.

    Fields that JSON has no type for, such as dates, decimals and UUIDs, become text, except for those of types that are
    ``kept``."""

    key: tuple[str, ...] = ()
    value: str = "value"
    timestamp: str | None = None
    kept: tuple[Any, ...] = (bytes,)

    def row(self, key: Any, value: Any, timestamp_ms: int) -> TableRow:
        """The row of a record. Raises ``ValueError`` or ``TypeError`` for a record that makes none."""
        keys = dict(zip(self.key, self._parts(key), strict=True)) if self.key else {}
        if value is None:
            return TableRow((*keys.values(),), None)
        columns = {**self._columns(value), **keys}
        if self.timestamp is not None:
            columns[self.timestamp] = timestamp_ms
        return TableRow((*keys.values(),), columns)

    def _columns(self, value: Any) -> dict[str, Any]:
        plain = plain_of(value, kinds=self.kept)
        if not isinstance(plain, dict):
            return {self.value: plain}
        wrong = next((name for name in plain if not isinstance(name, str)), None)
        if wrong is not None:
            raise TypeError(f"the value has a field {wrong!r}, and columns have texts for names")
        return plain

    def _parts(self, key: Any) -> Sequence[Any]:
        parts = self._parts_of(key)
        if len(parts) != len(self.key):
            raise ValueError(
                f"the key {key!r:.100} has {len(parts)} parts and key= names {len(self.key)} columns: "
                f"{', '.join(self.key)}"
            )
        if any(part is None for part in parts):
            raise ValueError(f"the key {key!r:.100} has a null for a key column ({', '.join(self.key)})")
        return parts

    def _parts_of(self, key: Any) -> Sequence[Any]:
        if not isinstance(key, Windowed):
            return _fields_of(key, self.key)
        inner = _fields_of(key.key, self.key, windowed=True)
        return [*inner, key.start_ms, key.end_ms][: max(len(self.key), len(inner) + 1)]


def _fields_of(key: Any, names: tuple[str, ...], *, windowed: bool = False) -> Sequence[Any]:
    """The parts of a key without its window, which has the last one or two of the names."""
    plain = plain_of(key, kinds=(bytes,))
    if not isinstance(plain, Mapping):
        return plain if isinstance(plain, list | tuple) else [plain]
    own = [*takewhile(plain.__contains__, names)] if windowed else names
    missing = next((name for name in own if name not in plain), None)
    if missing is not None:
        raise ValueError(f"the key {key!r:.100} has no field {missing!r}, which key= names")
    return [plain[name] for name in own]


def names_of(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    """Column names, as one or several. Raises ``SettingsError`` for what is none."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name and "\0" not in name for name in names) or len(set(names)) < len(names):
        raise SettingsError(f"{what}={given!r:.100}; give the name of a column, or a list of different ones")
    return names

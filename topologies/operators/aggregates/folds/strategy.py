"""The contract of fold strategies.

A ``RowFold`` takes any records, one by one. A ``ColumnFold`` takes whole columns; if it cannot handle them, it says
so before it has changed anything, and the row strategy takes the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.hopping import Spread

Touched = Entries | Spread
"""The entries that the records of a batch touch: one per record, or one for each of their windows."""
OutKeys = Callable[[list[bytes], list[Any]], list[Any]]
"""The keys of emitted records, from store keys and the records' keys."""
Failed = Callable[[Batch, int, Exception], None]
"""Called for a row if a user function raised. If it returns, the row is skipped."""


class Changes(NamedTuple):
    """The result of folding, by row: ``places`` of the rows that were folded (``None``: all); their new aggregates
    and timestamps; the aggregates before, if wanted."""

    places: list[int] | None
    values: list[Any]
    timestamps: list[int]
    olds: list[Any] | None = None


class RowFold(Protocol):
    """Folds records one by one."""

    runs_functions: bool
    """Whether user functions are called, which may fail."""

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes | None:
        """Fold records into the entries of their store keys, which are loaded. Changes the entries; the caller marks
        them dirty. ``None``: no row failed, the entries are marked, and only the last aggregate of each key was
        computed."""


class ColumnFold(Protocol):
    """Folds whole columns, if only the last aggregate of each key, or every update of a count, is visible."""

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        """Fold records into the entries that they touch, and mark those. ``False``: nothing was done."""


class HeldFold(Protocol):
    """Folds whole columns in the store itself, which holds what has changed until the commit, if only the last aggregate of
    each key is visible."""

    def fold(self, batch: ColumnBatch) -> bool:
        """Fold records. ``False``: nothing was done."""

    def flush(self, show: Callable[[Batch], None]) -> dict[bytes, Any]:
        """Emit what the store holds, once. Returns the keys, by store key, that have moved to entries since then. Emit them
        from the entries, before later changes."""

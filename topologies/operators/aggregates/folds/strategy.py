"""What fold strategies promise.

A ``RowFold`` takes any records, one by one. A ``ColumnFold`` takes whole columns; where it meets what it does not know it
says so before it has changed anything, and the rows take the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.hopping import Spread

Touched = Entries | Spread
"""What the records of a batch touch: an entry each, or one for each of their windows."""
OutKeys = Callable[[list[bytes], list[Any]], list[Any]]
"""The keys of emitted records, from store keys and the records' keys."""
Failed = Callable[[Batch, int, Exception], None]
"""Called for a row for which a function of the user's raised. Where it returns, the row is skipped."""


class Changes(NamedTuple):
    """What folding has changed, by row: ``places`` of the rows that were folded (``None``: all); their new aggregates and
    timestamps; the aggregates before, if they are wanted."""

    places: list[int] | None
    values: list[Any]
    timestamps: list[int]
    olds: list[Any] | None = None


class RowFold(Protocol):
    """Folds records one by one."""

    runs_functions: bool
    """Whether functions of the user's are called, which may fail."""

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes | None:
        """Fold records into the entries of their store keys, which are loaded. The entries are changed; to mark them dirty
        is up to the caller. ``None``: no row failed, the entries are marked, and only the last aggregate of each key was
        made."""


class ColumnFold(Protocol):
    """Folds whole columns, where the last aggregate of each key, or every update of a count, is all that anyone sees."""

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        """Fold records into the entries that they touch, and mark those. ``False``: nothing was done."""

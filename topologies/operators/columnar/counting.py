"""Every update of counts, as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.topologies.columnar.kernels import counted_so_far, highest_so_far
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints, NumberColumn
from penstock.topologies.operators.columnar.grouping import Entries

_HIGHEST = (1 << 63) - 1

OutKeys = Callable[[list[bytes], list[Any]], list[Any]]
"""The keys of emitted records, from store keys and the records' keys."""


def counted_updates(batch: ColumnBatch, found: Entries, before: list[Any], out_keys: OutKeys | None) -> ColumnBatch:
    """Every update of the counts of a batch: the records with their key's count up to them. ``before``: the store's
    entries. ``out_keys``: ``None`` where the records keep their keys."""
    latest = highest_so_far(found.groups, batch.times)
    counts = [0 if e is None else e[0] for e in before]
    times = np.array([-1 if e is None else e[1] for e in before], np.int64)
    numbers = found.groups.numbers
    keys: list[Any] | Column
    if out_keys is not None:
        keys = CodedColumn(numbers.astype(np.int32), out_keys(found.store_keys, found.keys))
    else:
        assert batch.key_column is not None
        keys = batch.key_column
    values = _counts_up_to(counts, numbers, counted_so_far(found.groups))
    return ColumnBatch(keys, values, np.maximum(latest, times[numbers]), batch.orders, batch.headers)


def _counts_up_to(before: list[int], numbers: Ints, so_far: Ints) -> Column:
    """The count of each record's key up to it. Where one may have more than 64 bits they are the numbers that rows have:
    whether a sink can write those is for its serde to say."""
    if max(before, default=0) <= _HIGHEST - len(numbers):
        return NumberColumn(np.array(before, np.int64)[numbers] + so_far)
    return CodedColumn.of([before[n] + more for n, more in zip(numbers.tolist(), so_far.tolist(), strict=True)])

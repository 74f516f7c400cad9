"""Every update of counts, by columns: what rows emit, whatever the counts have come to."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state.serdes.serde import STRING
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, NumberColumn
from penstock.topologies.operators.aggregates.folds.counts import counted_updates
from penstock.topologies.operators.columnar.grouping import entries_of

KEYS = ["a", "b"] * 40
HIGHEST = (1 << 63) - 1


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("before", [None, (0, 3), (HIGHEST - 40, 3), (HIGHEST - 39, 3), (HIGHEST, 3), (HIGHEST + 9, 3)])
def test_updates_are_counts_of_any_size(before: tuple[int, int] | None, windowed: bool) -> None:
    nothing = np.zeros(len(KEYS), np.int64)
    batch = ColumnBatch(CodedColumn.of(KEYS), NumberColumn(nothing), nothing, nothing)
    found = entries_of(batch, STRING)
    assert found is not None
    updates = counted_updates(batch, found, [before, None], (lambda stored, keys: keys) if windowed else None)
    first = 0 if before is None else before[0]
    assert updates.values == [(first if key == "a" else 0) + i // 2 + 1 for i, key in enumerate(KEYS)]
    assert updates.keys == KEYS

"""Who takes a batch: columns where it has them and is long enough, rows what they leave."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.topologies.columnar import column_parts
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import NumberColumn


def columns(count: int) -> ColumnBatch:
    numbers = np.arange(count)
    return ColumnBatch(NumberColumn(numbers), NumberColumn(numbers), numbers, numbers)


class Spy:
    """Takes even keys by columns, and what is left by rows."""

    def __init__(self) -> None:
        self.by_columns: list[int] = []
        self.by_rows: list[int] = []

    def columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        even = batch.times % 2 == 0
        self.by_columns += batch.where(even).keys
        return None if even.all() else batch.where(~even)

    def rows(self, port: int, batch: Batch) -> None:
        self.by_rows += batch.keys


@pytest.mark.parametrize("count", [0, column_parts.FEWEST - 1, column_parts.FEWEST, 100])
def test_columns_are_for_batches_that_are_long_enough(count: int) -> None:
    spy = Spy()
    column_parts.by_columns_or_rows(spy.columns, spy.rows, 0, columns(count))
    long_enough = count >= column_parts.FEWEST
    assert spy.by_columns == (list(range(0, count, 2)) if long_enough else [])
    assert spy.by_rows == list(range(1, count, 2) if long_enough else range(count))


def test_lists_go_by_rows() -> None:
    spy = Spy()
    column_parts.by_columns_or_rows(spy.columns, spy.rows, 0, columns(100).listed())
    assert (spy.by_columns, len(spy.by_rows)) == ([], 100)


def test_rows_get_nothing_where_nothing_is_left() -> None:
    def never(port: int, batch: Batch) -> None:
        raise AssertionError(batch)

    column_parts.by_columns_or_rows(lambda port, batch: None, never, 0, columns(100))

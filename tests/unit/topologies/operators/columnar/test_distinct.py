"""Distinct values of columns against adding them one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.topologies.aggregators.bag import EMPTY, Bag
from penstock.topologies.aggregators.expression_aggregates import aggregator_of
from penstock.topologies.columnar.kernels import grouped
from penstock.topologies.expressions.functions import col
from penstock.topologies.operator_api.columns import CodedColumn, Column, NumberColumn
from penstock.topologies.operators.columnar.distinct import added

NULLS = np.array([False, True, False, False, True, False])
COLUMNS: dict[str, Column] = {
    "integers": NumberColumn(np.array([5, 5, -5, 5, 7, 5])),
    "nulls": NumberColumn(np.array([5, 5, -5, 5, 7, 5]), NULLS),
    "all null": NumberColumn(np.zeros(6, np.int64), np.ones(6, np.bool_)),
    "far apart": NumberColumn(np.array([1 << 62, -(1 << 62), 0, 1 << 62, 1, 1])),
    "truths": NumberColumn(np.array([True, False, True, True, False, False])),
    "floats": NumberColumn(np.array([0.0, -0.0, 1.5, np.inf, 1.0, -0.0])),
    "texts": CodedColumn(np.array([1, 1, 3, 1, 3, 1], np.int32), ["unused", "é", object(), "b"]),
    "some null": CodedColumn(np.array([0, 1, 0, 2, 1, 2], np.int32), ["a", None, "b"]),
    "twice": CodedColumn(np.array([0, 1, 2, 0, 1, 2], np.int32), ["a", "a", "b"]),
    "kinds": CodedColumn.of([1, 1.0, True, "1", 1 << 70, 1]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("codes", [[0, 0, 0, 0, 0, 0], [1, 0, 1, 1, 0, 2]])
def test_values_are_added_as_one_after_the_other(name: str, codes: list[int]) -> None:
    column, groups = COLUMNS[name], grouped(np.array(codes, np.int32), 3)
    made = aggregator_of(col("x").count_distinct())
    assert made.part is not None and made.step is not None and made.step.prepare is not None
    before = [EMPTY] * len(groups.codes)
    before[0] = Bag([(made.step.prepare(5), 2)])
    expected: list[Any] = list(before)
    for number, value in zip(groups.numbers.tolist(), column.to_list(), strict=True):
        if value is not None:
            expected[number] = made.step.add(expected[number], made.step.prepare(value), 0)
    found = added(made.part, before, groups, column)
    assert found is not None
    assert [list(bag) for bag in found] == [list(bag) for bag in expected]
    assert [list(bag) for bag in before] == [[(made.step.prepare(5), 2)], *[[]] * (len(before) - 1)]


def test_a_value_that_cannot_be_kept_is_left_to_its_row() -> None:
    made = aggregator_of(col("x").count_distinct())
    assert made.part is not None
    column = CodedColumn(np.array([0, 1], np.int32), ["a", object()])
    assert added(made.part, [EMPTY], grouped(np.zeros(2, np.int32), 1), column) is None

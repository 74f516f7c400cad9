"""Results of aggregate expressions as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.topologies.aggregators.base import Part
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_all
from penstock.topologies.columnar.kernels import grouped
from penstock.topologies.expressions.functions import col, count
from penstock.topologies.expressions.types import FLOAT64, INT64, STRING, struct_of
from penstock.topologies.operator_api.columns import NumberColumn
from penstock.topologies.operators.columnar.part_results import ShownParts, results_of

ROW = struct_of({"n": INT64.or_null(), "x": FLOAT64, "text": STRING.or_null()})
WHOLE, _ = aggregator_of_all(
    {
        "rows": count(),
        "total": col("n").sum(),
        "mean": col("n").mean(),
        "most": col("n").max(),
        "last": col("text").max(),
        "xs": col("x").sum(),
        "ratio": col("n").sum() // count(),
    },
    ROW,
)
VALUES: list[dict[str, Any]] = [
    {"n": 3, "x": 0.5, "text": "a"},
    {"n": None, "x": -0.0, "text": None},
    {"n": 9, "x": 1e300, "text": "é"},
]


def accumulators() -> list[tuple[Any, ...]]:
    """Of no rows, of nulls, and of values."""
    out = []
    for chosen in ([], VALUES[1:2], VALUES[:1], VALUES[:2], VALUES):
        acc = WHOLE.init()
        for row in chosen:
            acc = WHOLE.add(acc, row, 0)
        out.append(acc)
    return out


SHOWN = ShownParts(WHOLE.parts, WHOLE.result_of_parts)


@pytest.mark.parametrize("absent", [(), (0,), (1, 3), (0, 1, 2, 3, 4)])
def test_results_of_accumulators(absent: tuple[int, ...]) -> None:
    accs = [None if i in absent else acc for i, acc in enumerate(accumulators()[1:])]
    column = SHOWN.of_accumulators(accs)
    assert column is not None
    assert column.to_list() == [None if acc is None else WHOLE.result(acc) for acc in accs]


def test_before_each_update_is_the_one_before_it_in_its_group() -> None:
    accs = accumulators()[1:]
    results = results_of(WHOLE.parts, accs)
    assert results is not None
    groups = grouped(np.array([0, 1, 0, 2], np.int32), 3)
    both = SHOWN.with_olds(results, groups, [None, accs[3], None])
    assert both is not None
    shown, olds = (column.to_list() for column in both)
    assert shown == [WHOLE.result(acc) for acc in accs]
    assert olds == [None, shown[3], shown[0], None]


@pytest.mark.parametrize(
    ("function", "acc"),
    [
        ("sum", (1, 1 << 63)),
        ("mean", (2, 1 << 53)),
        ("mean", (2, 1, 0, 1, 0)),
        ("max", (True,)),
        ("count", 1 << 63),
        ("variance", (1, 2, 4, True)),
    ],
)
def test_what_is_left_to_the_rows(function: str, acc: Any) -> None:
    assert results_of([Part(function, None, "int64", None)], [(acc,)]) is None


def test_where_a_result_fails_rows_do() -> None:
    accs = accumulators()[:1]
    assert WHOLE.result(accs[0])["ratio"] is None
    failing, _ = aggregator_of_all({"ratio": col("n").count() // (count() - 1)}, ROW)
    shown = ShownParts(failing.parts, failing.result_of_parts)
    assert shown.of([NumberColumn(np.array([1, 1])), NumberColumn(np.array([2, 1]))]) is None

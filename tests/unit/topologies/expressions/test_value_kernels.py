"""Branches of texts and functions of time over arrays: what the rows give, with one call per step of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions import times
from penstock.topologies.expressions import value_kernels as v
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.kernels import NoKernel, Vec
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch

HOUR_MS = 3_600_000
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


def batch_of(stamps: list[int]) -> ColumnBatch:
    return ColumnBatch([None] * len(stamps), [None] * len(stamps), np.array(stamps, np.int64), np.arange(len(stamps)))


def rows_of(expression: Expression, stamps: list[int]) -> list[Any]:
    run = compile_row(expression, ExpressionScope())
    out: list[Any] = []
    for ts in stamps:
        try:
            out.append(run(None, None, ts, ()))
        except ExpressionError:
            out.append("fails")
    return out


TIMES = [
    0,
    -1,
    1,
    HOUR_MS - 1,
    HOUR_MS,
    -HOUR_MS,
    951_782_399_999,
    951_782_400_000,
    1_729_994_400_000,
    1_729_998_000_000,
]
FUNCTIONS = [
    *(getattr(f.timestamp(), name)() for name in ("year", "month", "day", "weekday", "hour", "minute", "second")),
    *(getattr(f.timestamp(), name)("Asia/Kolkata") for name in ("day", "hour", "minute")),
    f.timestamp().hour("Europe/Berlin"),
    f.timestamp().format_time("%Y-%m-%d"),
    f.timestamp().format_time("%H:%M:%S.%L"),
    f.timestamp().format_time("%d.%m. %H Uhr %z", "America/New_York"),
]


@pytest.mark.parametrize("expression", FUNCTIONS, ids=str)
@pytest.mark.parametrize("stamps", [TIMES, [t + 1_700_000_000_000 for t in range(0, 50_000_000, 999_983)], [5]])
def test_functions_of_time_have_the_answers_of_the_rows(expression: Expression, stamps: list[int]) -> None:
    found = Vectors(expression, ExpressionScope()).column(batch_of(stamps))
    assert found is not None
    assert found.to_list() == rows_of(expression, stamps)


@pytest.mark.parametrize("expression", [f.timestamp().hour(), f.timestamp().year(), f.timestamp().hour("Asia/Tokyo")])
def test_times_outside_of_the_years_fail_at_their_rows(expression: Expression) -> None:
    stamps = [LAST_MS - 10 * HOUR_MS, LAST_MS, LAST_MS + 1]
    failing = Vectors(expression, ExpressionScope()).failing(batch_of(stamps))
    assert failing is not None
    assert failing.tolist() == [found == "fails" for found in rows_of(expression, stamps)]
    assert failing.tolist()[0] is False and failing.tolist()[2] is True


def test_a_function_of_time_is_called_once_per_step() -> None:
    asked: list[int] = []
    array = np.array([5, 3, 7 * HOUR_MS, HOUR_MS - 1, -1], np.int64)
    found = v.by_steps(Vec(array), HOUR_MS, lambda time_ms: asked.append(time_ms) or time_ms)  # type: ignore[func-returns-value]  # it notes the call
    assert asked == [-HOUR_MS, 0, 7 * HOUR_MS]
    assert [found.values[code] for code in found.codes] == [0, 0, 7 * HOUR_MS, 0, -HOUR_MS]


@pytest.mark.parametrize(
    "given",
    [
        Vec(np.array([0, v.STEPS_MAX * HOUR_MS])),
        Vec(np.array([0, 1]), np.array([False, True])),
        Vec(np.array([0, 1]), None, np.array([False, True])),
        Vec(np.array([0.5])),
        Vec(np.array(7)),
        Vec(np.array([], np.int64)),
    ],
)
def test_other_times_are_left_to_their_distinct_values(given: Vec) -> None:
    with pytest.raises(NoKernel):
        v.by_steps(given, HOUR_MS, str)


def test_steps_are_those_of_the_row_functions() -> None:
    assert times.step_ms_of("hour", []) == HOUR_MS
    assert times.step_ms_of("hour", ["UTC"]) == HOUR_MS
    assert times.step_ms_of("hour", ["Asia/Kolkata"]) == 1_000
    assert times.step_ms_of("format_time", ["%H:%M"]) == 60_000
    assert times.step_ms_of("format_time", ["%H", "Asia/Kolkata"]) == 1_000
    assert times.step_ms_of("format_time", ["%L"]) == 1
    assert times.step_ms_of("floor_time", ["1h"]) is None


ts = f.timestamp()
hour = ts.hour()
number = ts.cast("int64")
CASES = [
    f.when(hour.between(8, 18)).then("day").when((hour <= 6) | (hour >= 20)).then("night").otherwise("other"),
    f.when(number % 3 == 0).then(None).when(ts > 4).then("late").otherwise(None),
    f.when(1000 // (number - 3) > 200).then("near").otherwise("far"),
    f.when(ts == 3).then("three").when(1000 // (number - 3) > 200).then("near").otherwise("far"),
    f.when(ts > 2).then(ts.format_time("%L")).otherwise("early"),
    f.when(ts > 100).then("never").otherwise(f.when(ts > 5).then("a").otherwise("b")),
]


@pytest.mark.parametrize("expression", CASES, ids=str)
def test_branches_of_texts_have_the_answers_of_the_rows(expression: Expression) -> None:
    for stamps in ([*range(8)], [0], [HOUR_MS * h for h in range(30)]):
        expected = rows_of(expression, stamps)
        vectors = Vectors(expression, ExpressionScope())
        found, failing = vectors.column(batch_of(stamps)), vectors.failing(batch_of(stamps))
        if "fails" in expected:
            assert found is None and failing is not None
            assert failing.tolist() == [one == "fails" for one in expected]
        else:
            assert found is not None and found.to_list() == expected

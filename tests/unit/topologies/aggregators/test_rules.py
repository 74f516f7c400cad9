"""Every ready aggregate against a plain oracle and the rules that all of them keep."""

from __future__ import annotations

import dataclasses
import math
import operator
import statistics
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.topologies.aggregators import (
    Aggregator,
    agg,
    approx_distinct,
    bloom,
    count,
    count_distinct,
    count_min,
    ewma,
    first,
    heavy_hitters,
    last,
    list_,
    max_,
    max_by,
    mean,
    min_,
    min_by,
    quantiles,
    reduce_,
    set_,
    std_dev,
    sum_,
    top_k,
    variance,
)

Rows = list[tuple[Any, int]]


@dataclasses.dataclass(frozen=True)
class Case:
    """An aggregate, the values it is fed with, and what it must come to (``None``: known elsewhere)."""

    aggregator: Aggregator
    values: st.SearchStrategy[Any]
    oracle: Callable[[Rows], Any] | None
    close: float = 0.0
    """The relative error that rounding may make."""


def kept(rows: Rows) -> list[Any]:
    return [v for v, _ in rows if v is not None]


def of_some(fn: Callable[[list[Any]], Any], least: int = 1) -> Callable[[Rows], Any]:
    """The oracle for values that are there; null where they are too few."""
    return lambda rows: fn(kept(rows)) if len(kept(rows)) >= least else None


def averaged(rows: Rows) -> Any:
    now: Any = None
    for v in kept(rows):
        now = v if now is None else 0.25 * v + 0.75 * now
    return now


def by_time(rows: Rows, *, later: bool) -> Any:
    there = [(ts, i, v) for i, (v, ts) in enumerate(rows) if v is not None]
    if not there:
        return None
    pick = max if later else min
    return pick(there, key=lambda r: (r[0], r[1]))[2]


def frequencies(rows: Rows) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for v in kept(rows):
        counts[v] = counts.get(v, 0) + 1
    return counts


SMALL = st.integers(-9, 9)
WIDE = st.integers(-(10**30), 10**30)
MONEY = st.decimals(min_value=-(10**6), max_value=10**6, places=2)
REAL = st.floats(-1e3, 1e3)
TEXT = st.text("abé\0z", max_size=3)

CASES = {
    "count": Case(count(), SMALL, len),
    "count of a column": Case(count(lambda v: v), SMALL, lambda rows: len(kept(rows))),
    "sum of ints": Case(sum_(number=int), WIDE, of_some(sum)),
    "sum of decimals": Case(sum_(number=Decimal), MONEY, of_some(lambda v: sum(v, Decimal(0)))),
    "sum of floats": Case(sum_(number=float), REAL, of_some(sum), 1e-6),
    "sum of anything": Case(sum_(), st.one_of(SMALL, REAL), of_some(sum), 1e-6),
    "mean of ints": Case(mean(number=int), SMALL, of_some(lambda v: sum(v) / len(v))),
    "mean of floats": Case(mean(number=float), REAL, of_some(statistics.fmean), 1e-6),
    "variance of ints": Case(variance(number=int), SMALL, of_some(statistics.variance, 2), 1e-12),
    "variance of decimals": Case(variance(number=Decimal), MONEY, of_some(statistics.variance, 2), 1e-12),
    "variance of floats": Case(variance(number=float), REAL, of_some(statistics.variance, 2), 1e-6),
    "variance of a population": Case(variance(population=True), SMALL, of_some(statistics.pvariance), 1e-12),
    "variance of anything": Case(variance(), st.one_of(SMALL, REAL), of_some(statistics.variance, 2), 1e-6),
    "standard deviation": Case(std_dev(number=int), SMALL, of_some(statistics.stdev, 2), 1e-12),
    "min": Case(min_(), SMALL, of_some(min)),
    "max": Case(max_(value=str), TEXT, of_some(max)),
    "product": Case(reduce_(operator.mul, exact=True), SMALL, of_some(math.prod)),
    "joined texts": Case(reduce_(operator.add, value=str), TEXT, of_some("".join)),
    "ewma": Case(ewma(0.25), st.integers(-8, 8), averaged),
    "first": Case(first(), SMALL, lambda rows: by_time(rows, later=False)),
    "last": Case(last(value=str), TEXT, lambda rows: by_time(rows, later=True)),
    "list": Case(list_(), TEXT, kept),
    "set": Case(set_(), SMALL, lambda rows: sorted(set(kept(rows)))),
    "count distinct": Case(count_distinct(value=str), TEXT, lambda rows: len(set(kept(rows)))),
    "top 3": Case(top_k(3), SMALL, lambda rows: sorted(kept(rows), reverse=True)[:3]),
    "top 2 with ties": Case(
        top_k(2, by=abs, ties=True, value=int),
        SMALL,
        lambda rows: sorted(
            [v for v in kept(rows) if abs(v) >= sorted(map(abs, kept(rows)))[-2:][0]],
            key=lambda v: (-abs(v), v < 0, v),
        ),
    ),
    "bottom 2 by size": Case(
        top_k(2, by=abs, largest=False, value=int),
        SMALL,
        # long integers sort by their bytes as if unsigned
        lambda rows: sorted(kept(rows), key=lambda v: (abs(v), v < 0, v))[:2],
    ),
    "max by size": Case(max_by(abs, value=int), SMALL, of_some(lambda v: min(v, key=lambda x: (-abs(x), x < 0)))),
    "min by two": Case(
        min_by((len, lambda v: v[-1:]), value=str),
        TEXT,
        of_some(lambda v: min(v, key=lambda x: (len(x), x[-1:], x.encode()))),
    ),
    "approx distinct": Case(approx_distinct(), SMALL, lambda rows: len(set(kept(rows)))),
    "quantiles": Case(quantiles((0.0, 1.0)), REAL, of_some(lambda v: [min(v), max(v)])),
    "heavy hitters": Case(
        heavy_hitters(0.3, value=str),
        TEXT,
        lambda rows: [
            {"value": v, "count": n, "at_least": n}
            for v, n in sorted(frequencies(rows).items(), key=lambda f: (-f[1], f[0].encode()))
            if n > int(0.3 * len(kept(rows)))
        ],
    ),
    "count-min": Case(count_min(), TEXT, None),
    "bloom": Case(bloom(items=50), TEXT, None),
    "several": Case(
        agg(n=count(), total=sum_(number=int), least=min_()),
        SMALL,
        lambda rows: {"n": len(rows), "total": of_some(sum)(rows), "least": of_some(min)(rows)},
    ),
}
ids = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def rows_of(case: Case) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(st.none() | case.values, st.integers(0, 5)), max_size=12)


def same(case: Case, left: Any, right: Any) -> bool:
    if case.close and left is not None and right is not None:
        return math.isclose(left, right, rel_tol=case.close, abs_tol=case.close)
    return bool(left == right)


def folded(aggregator: Aggregator, acc: Any, rows: Iterable[tuple[Any, int]]) -> Any:
    for value, ts in rows:
        acc = aggregator.add(acc, value, ts)
    return acc


@ids
@quick
@given(data=st.data())
def test_the_whole_is_the_oracles(case: Case, data: st.DataObject) -> None:
    rows = data.draw(rows_of(case))
    a = case.aggregator
    result = a.result(a.fold(rows))
    if case.oracle is not None:
        assert same(case, result, case.oracle(rows)), (result, case.oracle(rows))
    if result is not None:
        again = a.result_serde.deserialize(a.result_serde.serialize(result))
        assert again == result or isinstance(result, dict)


@ids
@quick
@given(data=st.data())
def test_accumulators_survive_their_serde_and_go_on_from_there(case: Case, data: st.DataObject) -> None:
    before, after = data.draw(rows_of(case)), data.draw(rows_of(case))
    a = case.aggregator
    acc = a.fold(before)
    raw = a.serde.serialize(acc)
    read = a.serde.deserialize(raw)
    assert (type(read), a.serde.serialize(read)) == (type(acc), raw)
    assert read == acc
    assert a.serde.immutable or a.name == "reduce", "the values of a reduce may be of any type"
    assert a.result(folded(a, read, after)) == a.result(folded(a, acc, after))
    assert a.serde.serialize(acc) == raw, "add changed the accumulator in place"


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c.aggregator.merge], ids=[n for n, c in CASES.items() if c.aggregator.merge]
)
@quick
@given(data=st.data())
def test_parts_merge_to_the_whole(case: Case, data: st.DataObject) -> None:
    parts = data.draw(st.lists(rows_of(case), min_size=1, max_size=4))
    a = case.aggregator
    assert a.merge is not None
    acc = a.init()
    for part in parts:
        acc = a.merge(acc, a.fold(part))
    whole = a.result(a.fold([row for part in parts for row in part]))
    merged = a.result(acc)
    if a.exact_merge and not case.close:
        assert merged == whole
    elif case.close:
        assert same(case, merged, whole)
    if a.exact_merge and not a.ordered:
        backwards = a.init()
        for part in reversed(parts):
            backwards = a.merge(backwards, a.fold(part))
        assert a.result(backwards) == merged


EQUALS = st.sampled_from(
    [
        0.0,
        -0.0,
        0,
        False,
        1,
        1.0,
        True,
        -1,
        -1.0,
        math.nan,
        math.inf,
        *map(Decimal, ("0", "-0", "0.00", "1", "1.0", "-1")),
    ]
)


@pytest.mark.parametrize(
    "a",
    [min_(), max_(), top_k(2), top_k(2, ties=True), top_k(2, largest=False), max_by(lambda x: x), min_by(lambda x: x)],
    ids=lambda a: str(a.name),
)
@settings(max_examples=200, deadline=None)
@example(values=[0.0, -0.0], order=[1, 0], cut=1)
@example(values=[-0.0, 0.0], order=[1, 0], cut=1)
@example(values=[1, 1.0, True, Decimal("1.0"), Decimal(1)], order=[4, 3, 2, 1, 0], cut=2)
@example(values=[1.0, math.nan, 0.0, 2.0], order=[2, 1, 3, 0], cut=3)
@given(values=st.lists(EQUALS, min_size=1, max_size=6), order=st.permutations(range(6)), cut=st.integers(0, 6))
def test_of_equal_values_it_is_one_whatever_the_order(
    a: Aggregator, values: list[Any], order: list[int], cut: int
) -> None:
    other = [values[i] for i in order if i < len(values)]
    assert a.merge is not None
    parts = [a.fold([(v, 0) for v in part]) for part in (other[:cut], other[cut:])]
    assert repr(a.result(a.merge(*parts))) == repr(a.result(a.fold([(v, 0) for v in values])))


@pytest.mark.parametrize(
    "case",
    [c for c in CASES.values() if c.aggregator.inverse],
    ids=[n for n, c in CASES.items() if c.aggregator.inverse],
)
@quick
@given(data=st.data())
def test_what_was_added_can_be_taken_out(case: Case, data: st.DataObject) -> None:
    rows, more = data.draw(rows_of(case)), data.draw(rows_of(case))
    a = case.aggregator
    assert a.inverse is not None
    assert a.subtract is not None
    base = a.fold(rows)
    acc = folded(a, base, more)
    assert same(case, a.result(a.subtract(acc, a.fold(more))), a.result(base))
    for value, ts in more:
        acc = a.inverse(acc, value, ts)
    assert same(case, a.result(acc), a.result(base))


@ids
def test_nulls_alone_are_no_values(case: Case) -> None:
    a = case.aggregator
    result = a.result(a.fold([(None, 1), (None, 2)]))
    if case is CASES["count"]:
        assert result == 2, "count() counts records"
    elif case is CASES["several"]:
        assert result == {"n": 2, "total": None, "least": None}
    else:
        assert result == a.result(a.init())

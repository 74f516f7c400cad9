"""Generated adders and results of several aggregate expressions against their parts, one after the other."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators.base import agg
from penstock.topologies.aggregators.expression_aggregates import aggregator_of, aggregator_of_all
from penstock.topologies.aggregators.members_apart import CountPath, with_count
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.types import UNKNOWN
from tests.properties.test_expressions import Row, as_dicts
from tests.properties.test_generated_expressions import bits, values

COLUMN = st.sampled_from(
    [f.col(n) for n in ("i", "j", "x", "y", "s", "t", "b", "c", "n", "l")] + [f.col("i") % 3, f.col("l").element(0)]
)
CONDITION = st.sampled_from([f.col("b"), f.col("c"), f.col("i") > 0, f.col("j").is_null(), f.col("x") < f.col("y")])
METHODS = [
    "sum",
    "mean",
    "min",
    "max",
    "count",
    "count_distinct",
    "first",
    "last",
    "collect_list",
    "collect_set",
    "variance",
]


@st.composite
def aggregates(draw: Any) -> Any:
    """An aggregate of a column, over all records or over some."""
    way = draw(st.integers(0, 5))
    made = f.count() if way == 0 else getattr(draw(COLUMN), draw(st.sampled_from(METHODS)))()
    return made.where(draw(CONDITION)) if draw(st.booleans()) else made


def outcome(run: Callable[..., Any], *args: Any) -> Any:
    try:
        return run(*args), None
    except Exception as exc:  # whatever the parts raise
        cause = exc if isinstance(exc, ExpressionError) else None
        return None, (type(exc), str(exc), None if cause is None else type(cause.__cause__))


def deep(acc: Any) -> Any:
    return [tuple, *map(deep, acc)] if type(acc) is tuple else bits(acc)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(aggregates(), min_size=1, max_size=5),
    st.lists(st.tuples(values(), st.integers(0, 3)), min_size=3, max_size=12),
)
def test_generated_aggregates_have_the_answers_and_errors_of_their_parts(parts: list[Any], rows: list[Any]) -> None:
    """Of records as declared, of others and of nulls; results after every record."""
    named = {f"p{i}": part for i, part in enumerate(parts)}
    for schema in (Row, as_dicts(), UNKNOWN):
        try:
            members = {n: aggregator_of(p, schema) for n, p in named.items()}
            made, _ = aggregator_of_all({**named, "again": parts[0]}, schema)
        except TopologyError:  # an aggregate that does not take this type
            continue
        whole = agg(**members)
        distinct = {p.name: n for n, p in reversed(members.items())}
        whole = agg(**{n: p for n, p in members.items() if distinct[p.name] == n})
        acc = right = whole.init()
        assert made.init() == acc
        for value, at_ms in rows:
            got, failed = outcome(made.add, acc, value, at_ms)
            wanted, expected = outcome(whole.add, right, value, at_ms)
            assert failed == expected
            if failed is None:
                assert made.serde.serialize(got) == whole.serde.serialize(wanted)
                assert [type(a) for a in got] == [type(a) for a in wanted]
                acc, right = got, wanted
            results, why = outcome(made.result, acc)
            if why is None:
                parts_results = whole.result(right)
                shown = {n: parts_results[distinct[members[n].name]] for n in named}
                assert bits({n: results[n] for n in named}) == bits(shown)
                assert bits(results["again"]) == bits(shown["p0"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(aggregates(), min_size=1, max_size=5),
    st.lists(st.lists(st.tuples(values(), st.integers(0, 3)), max_size=4), min_size=2, max_size=4),
)
def test_generated_merges_have_the_answers_and_errors_of_their_parts(parts: list[Any], runs: list[list[Any]]) -> None:
    """Of accumulators of any records, empty ones too, and with the members of distinct counts apart."""
    named = {f"p{i}": part for i, part in enumerate(parts)}
    for schema in (Row, as_dicts(), UNKNOWN):
        try:
            members = {n: aggregator_of(p, schema) for n, p in named.items()}
            made, _ = aggregator_of_all(named, schema)
        except TopologyError:  # an aggregate that does not take this type
            continue
        distinct = {p.name: n for n, p in reversed(members.items())}
        whole = agg(**{n: p for n, p in members.items() if distinct[p.name] == n})
        forms: list[tuple[Any, Any, tuple[CountPath, ...]]] = [(made, whole, ())]
        if made.apart is not None and whole.apart is not None:
            forms.append((made.apart.aggregator, whole.apart.aggregator, made.apart.paths))
        for form, reference, paths in forms:
            accs = [acc for acc, failed in (outcome(reference.fold, rows) for rows in runs) if failed is None]
            for path in paths:
                accs = [with_count(acc, path, n) for n, acc in enumerate(accs, 1)]
            assert form.merge is not None and reference.merge is not None
            for a in accs:
                for b in [*accs, (), a[:-1], None]:
                    got, failed = outcome(form.merge, a, b)
                    wanted, expected = outcome(reference.merge, a, b)
                    assert failed == expected
                    assert deep(got) == deep(wanted)


def test_merges_of_numbers_of_several_types() -> None:
    """Equal numbers of several types, zeros with a sign, nan and what other types may hold too are left to the parts."""
    long = decimal.Decimal("1234567890123456789012345678901.5")
    held = [1, 1.0, 0, -0.0, 0.0, float("nan"), float("inf"), decimal.Decimal("1.00"), long, True, 1 << 70, -1]
    named = {"low": f.col("v").min(), "high": f.col("v").max(), "total": f.col("v").sum(), "mean": f.col("v").mean()}
    made, _ = aggregator_of_all(named)
    whole = agg(**{n: aggregator_of(p) for n, p in named.items()})
    accs = [whole.init()]
    for one in held:
        accs += [acc for acc in (outcome(whole.add, accs[0], {"v": one}, 0)[0],) if acc is not None]
        # of sums only the numbers are of these types
        accs.append(((one,), (one,), (1, one), (0, one)))
    accs += [((1,), (1,), (1, 5, 1, 0, 0), (1, 5, 0, 0, 1)), ((1,), (), (0, 0, 0, 2, 0), (2, 0))]
    for a in accs:
        for b in accs:
            assert made.merge is not None and whole.merge is not None
            got, failed = outcome(made.merge, a, b)
            wanted, expected = outcome(whole.merge, a, b)
            assert failed == expected
            assert deep(got) == deep(wanted)


def test_a_result_out_of_range_fails_as_its_part_does() -> None:
    """The error is that of the sum, not of an expression around it."""
    made, _ = aggregator_of_all({"a": f.col("i").sum() + 1, "b": f.count()}, Row)
    failing, _ = aggregator_of_all({"a": f.col("i").sum()}, {"i": "int64"})
    acc = failing.init()
    for _ in range(2):
        acc = failing.add(acc, {"i": 2**63 - 1}, 0)
    value, why = outcome(failing.result, acc)
    assert value is None
    assert why is not None
    assert why[0].__name__ == "ResultError"
    assert "int64 overflow" in why[1]
    assert made.result(made.init()) == {"a": None, "b": 0}


def test_equal_numbers_of_several_types_and_exact_decimals() -> None:
    """An int beside a float or a Decimal in a column of which nothing is declared is left to the parts."""
    long = decimal.Decimal("1234567890123456789012345678901.5")
    columns: list[list[Any]] = [[1.0, 1], [1, 1.0], [0, -0.0, 0], [decimal.Decimal("1.00"), 1], [long, 3], [3, long, 4]]
    for column in columns:
        named = {"low": f.col("v").min(), "high": f.col("v").max(), "total": f.col("v").sum()}
        made, _ = aggregator_of_all(named)
        whole = agg(**{n: aggregator_of(p) for n, p in named.items()})
        acc = right = whole.init()
        for held in column:
            got, failed = outcome(made.add, acc, {"v": held}, 0)
            wanted, expected = outcome(whole.add, right, {"v": held}, 0)
            assert failed == expected
            acc, right = (acc, right) if failed else (got, wanted)
            assert repr(acc) == repr(right)

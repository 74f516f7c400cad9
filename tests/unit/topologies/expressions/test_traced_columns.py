"""When the columns of traced functions are used, and that nothing else changes with them."""

from __future__ import annotations

import dataclasses
import linecache
import pickle
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import numpy as np
import orjson
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions import kernels as k
from penstock.topologies.operators.columnar import stateless as columnar
from tests.properties.traced_programs import define
from tests.unit.topologies.expressions.test_tracing import RATE, Bid, Order, Out, text, traced


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each batch that traced functions were asked for was computed in columns."""
    monkeypatch.setattr(column_parts, "FEWEST", 1)
    given: list[bool] = []
    guarded = columnar.guarded

    def watched(fn: Any, step: columnar.ColumnarStep) -> columnar.ColumnarStep:
        inner = guarded(fn, step)

        def make(batch: Any) -> Any:
            found = inner.make(batch)
            given.append(found is not None)
            return found

        return columnar.ColumnarStep(make, inner.failing)

    monkeypatch.setattr(columnar, "guarded", watched)
    return given


ROWS = [{"kind": k, "n": n, "price": n / 2, "bid": {"price": n}} for k, n in (("a", 1), ("b", 2), ("a", 30))]


def run(make: Callable[[Any], Any], rows: list[Any] = ROWS, **options: Any) -> TopologyTestDriver:
    builder = ps.StreamsBuilder(value=Order)
    make(builder.stream("in", key=str))
    driver = TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=100), columns=True)
    driver.pipe_raw({"in": [Record(b"k", None if r is None else orjson.dumps(r), i) for i, r in enumerate(rows)]})
    return driver


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [None if r.value is None else orjson.loads(r.value) for r in driver.read_raw(topic)]


def test_columns_are_used(made: list[bool]) -> None:
    driver = run(lambda s: s.filter(lambda k, v: v.n > 1).map_values(lambda v: Out(a=v.n), value=Out).to("out"))
    assert values(driver) == [{"a": 2, "b": None}, {"a": 30, "b": None}]
    assert made == [True, True]


def test_a_name_that_is_bound_anew_is_read_anew(made: list[bool]) -> None:
    names = {"LEAST": 1}
    fn = define("fn = lambda k, v: v.n > LEAST\n", names)
    fn.__globals__["LEAST"] = 1
    driver = run(lambda s: s.filter(fn).to("out"))
    assert len(values(driver)) == 2
    fn.__globals__["LEAST"] = 2
    driver.pipe_raw({"in": [Record(b"k", orjson.dumps(r), 9) for r in ROWS]})
    assert len(values(driver)) == 1
    fn.__globals__["LEAST"] = 1.0  # equal to what it was, and another kind
    driver.pipe_raw({"in": [Record(b"k", orjson.dumps(r), 9) for r in ROWS]})
    assert len(values(driver)) == 2
    assert made == [True, False, False]


def test_a_builtin_that_is_hidden_is_not_called(made: list[bool]) -> None:
    fn = define("fn = lambda k, v: len(v.kind) > 1\n", {})
    driver = run(lambda s: s.filter(fn).to("out"))
    fn.__globals__["len"] = lambda text: 7
    driver.pipe_raw({"in": [Record(b"k", orjson.dumps(r), 9) for r in ROWS]})
    assert len(values(driver)) == 3 and made == [True, False]


def test_variables_of_a_function_around_and_defaults(made: list[bool]) -> None:
    def topology(stream: Any) -> None:
        least = 1
        stream.filter(lambda k, v: v.n > least).to("first")
        stream.filter(lambda k, v, least=least: v.n > least).to("second")
        least = 2

    with pytest.warns(UserWarning, match="last value"):
        driver = run(topology)
    assert [len(driver.read_raw(t)) for t in ("first", "second")] == [1, 2] and made == [True, True]


def test_a_default_value_that_is_set_anew(made: list[bool]) -> None:
    fn = define("fn = lambda k, v, least=1: v.n > least\n")
    driver = run(lambda s: s.filter(fn).to("out"))
    fn.__defaults__ = (2,)
    driver.pipe_raw({"in": [Record(b"k", orjson.dumps(r), 9) for r in ROWS]})
    assert len(values(driver)) == 3 and made == [True, False]


def test_ints_where_floats_are_declared_stay_ints(made: list[bool]) -> None:
    seen: list[Any] = []
    run(
        lambda s: (
            s.map_values(f.col("n"), value=float)
            .map_values(lambda v: v + 1, value=float)
            .foreach(lambda k, v: seen.append(v))
        )
    )
    assert list(map(type, seen)) == [int] * 3 and made == [True, False]


@pytest.mark.parametrize(
    ("fn", "n", "price"),
    [
        (lambda v: v.n > v.price, 2**53 + 1, 2.0**53),
        (lambda v: v.price < v.n, 2**53 + 1, 2.0**53),
        (lambda v: v.price == v.n, 2**53 + 1, 2.0**53),
        (lambda v: v.n != 9007199254740992.0, 2**53 + 1, 0.0),
        (lambda v: v.n / 10, 2**60 + 1, 0.0),
        (lambda v: v.n / 3, 2**53 + 1, 0.0),
        (lambda v: 1 / v.n, 2**53 + 1, 0.0),
        (lambda v: v.n / v.bid.price, 2**53 + 3, 0.0),
        (lambda v: -v.n, -(2**63), 0.0),
        (lambda v: abs(v.n), -(2**63), 0.0),
        (lambda v: v.n // -1, -(2**63), 0.0),
        (lambda v: v.n * v.n, 2**40, 0.0),
    ],
)
def test_ints_at_the_edges(fn: Any, n: int, price: float, made: list[bool]) -> None:
    seen: list[Any] = []
    rows = [*ROWS, {**ROWS[0], "n": n, "price": price, "bid": {"price": 10}}]
    run(lambda s: s.map_values(fn, value=dict).foreach(lambda k, v: seen.append(v)), rows)
    expected = [fn(msgspec.convert(row, Order)) for row in rows]
    assert list(map(repr, seen)) == list(map(repr, expected)) and made == [False]


class Two(msgspec.Struct):
    first: int
    second: int


@pytest.mark.parametrize(
    "fn",
    [
        lambda v: max(v.price, -0.0),
        lambda v: max(-0.0, v.price),
        lambda v: min(v.price, -0.0),
        lambda v: min(-v.price, 0.0),
        lambda v: Two(v.n, v.bid.price),
        lambda v: Two(second=v.n, first=1),
        lambda v: v.n and v.n - 1,
        lambda v: v.n or 7,
    ],
)
def test_what_is_equal_is_not_the_same(fn: Any, made: list[bool]) -> None:
    seen: list[Any] = []
    rows = [{**ROWS[0], "n": n, "price": price} for n in (0, 1) for price in (0.0, -0.0, 1.0)]
    run(lambda s: s.map_values(fn, value=dict).foreach(lambda k, v: seen.append(v)), rows)
    assert list(map(repr, seen)) == [repr(fn(msgspec.convert(row, Order))) for row in rows] and made == [True]


@pytest.mark.parametrize(
    "fn",
    [
        lambda k, v: v.note is None,
        lambda k, v: v.note == "x",
        lambda k, v: not v.left,
        lambda k, v: v.last is None,
        lambda k, v: v.ok or v.n > 0,
        lambda k, v: k == "k" and v.note != "x",
    ],
)
def test_fields_of_a_null_record_raise(fn: Any, made: list[bool]) -> None:
    with pytest.raises(Exception, match="offset 3, operator in-filter: AttributeError"):
        run(lambda s: s.filter(fn).to("out"), [*ROWS, None])
    assert made == [False]


class Item(TypedDict):
    n: int
    note: str | None


def test_typed_dicts_are_read_by_item(made: list[bool]) -> None:
    builder = ps.StreamsBuilder(value=ps.typed_json(Item))
    builder.stream("in", key=str).filter(lambda k, v: v["n"] > 1 and v["note"] != "x").to("out")
    driver = TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=100), columns=True)
    rows = [{"n": n, "note": note} for n in (1, 2) for note in ("x", "y", None)]
    driver.pipe_raw({"in": [Record(b"k", orjson.dumps(r), i) for i, r in enumerate(rows)]})
    assert values(driver) == rows[4:] and made == [True]


def test_objects_within_records_are_passed_on(made: list[bool]) -> None:
    def topology(stream: Any) -> None:
        lasts = stream.filter(lambda k, v: v.last is not None).map_values(lambda v: v.last, value=Bid)
        lasts.filter(lambda k, v: v.price > 2).to("out")

    rows = [{**r, "last": last} for r, last in zip(ROWS, (None, {"price": 2}, {"price": 3}), strict=True)]
    assert values(run(topology, rows)) == [{"price": 3}] and made == [True] * 3


def test_rows_that_overflow_are_pythons(made: list[bool]) -> None:
    seen: list[Any] = []
    rows = [*ROWS, {**ROWS[0], "n": 2**62}]
    run(lambda s: s.map_values(lambda v: v.n * 4, value=int).foreach(lambda k, v: seen.append(v)), rows)
    assert seen[-1] == 2**64 and made[0] is False


def test_errors_are_the_functions_own(made: list[bool]) -> None:
    with pytest.raises(
        Exception, match="offset 1, operator in-filter: ZeroDivisionError: integer division or modulo by zero"
    ) as caught:
        run(lambda s: s.filter(lambda k, v: 10 // (v.n - 2) > 0).to("out"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_distinct_values_that_must_be_there() -> None:
    of = k.Distinct(np.array([0, 1, 0], np.int32), ["a", None])
    errors = of.present().errors
    assert errors is not None and errors.tolist() == [False, True, False]
    assert k.Distinct(of.codes, ["a", "b"]).present().errors is None


# -- nothing else changes ------------------------------------------------------------------------------------------------


def module_level(key: str, value: Order) -> bool:
    return value.n > RATE


def test_topologies_read_as_before() -> None:
    def topology(fn: Any) -> Any:
        builder = ps.StreamsBuilder("t", value=Order)
        stream = builder.stream("in", key=str).filter(fn)
        stream.group_by(lambda k, v: v.kind).count().to_stream().to("out")
        return builder.build()

    def untraced(key: str, value: Order) -> bool:
        print(value)
        return True

    assert topology(module_level).describe() == topology(untraced).describe()
    spec = topology(module_level).operators["in-filter"]
    assert spec.fn == module_level and hash(spec.fn) == hash(module_level) and repr(spec.fn) == repr(module_level)
    assert spec == dataclasses.replace(spec, fn=module_level)


@pytest.mark.parametrize("way", [pickle, cloudpickle])
def test_functions_go_to_other_processes(way: Any) -> None:
    again = way.loads(way.dumps(traced(module_level)))
    assert text(module_level) == again.columns.parts[0].expression.text()
    assert again.unchanged() and again(None, Order("a", 4, 1.0, Bid(1)))


def test_functions_go_there_without_their_serdes() -> None:
    fn = traced(lambda k, v: Out(a=v.n), "value", serdes=(ps.typed_json(Out),))
    again = cloudpickle.loads(cloudpickle.dumps(fn))
    assert again.columns.parts[0].expression.text() == "Out(a=present(n))" and again.unchanged()


def test_lambdas_go_there_without_their_source() -> None:
    fn = define("fn = lambda k, v: v.n > LEAST and len(v.kind) > 2\n", {"LEAST": 2})
    sent = cloudpickle.dumps(traced(fn))
    del linecache.cache[fn.__code__.co_filename]
    again = cloudpickle.loads(sent)
    assert again.unchanged() and "present(n) > 2" in again.columns.parts[0].expression.text()
    again.fn.__globals__["LEAST"] = 3
    assert not again.unchanged()


def test_the_plan_says_why() -> None:
    builder = ps.StreamsBuilder("t", value=Order)
    stream = builder.stream("in", key=str).filter(lambda k, v: v.n > 2)
    stream.filter_values(lambda v: print(v) is None).to("out")
    stream.map(lambda k, v: (v.kind, v.n / 2), value=float).to("halves")
    stream.map_values(lambda v: v.n / 2, value=int).to("wrong")
    builder.stream("raw", value=dict).filter(lambda k, v: v["n"] > 2).to("few")
    plan = builder.build().describe(plan=True)
    assert "in-filter (Filter): columns\n" in plan
    assert "in-filter-values (Filter): rows: it is given a Python function; it calls print\n" in plan
    assert "in-map (Map): columns\n" in plan
    assert "it is given a Python function; it gives float, and the serde int is for something else\n" in plan
    assert "raw-filter (Filter): rows: it is given a Python function; its value has no declared type\n" in plan

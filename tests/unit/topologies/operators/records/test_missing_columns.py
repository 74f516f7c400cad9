"""A misspelt column of untyped JSON is reported once, with the name that was meant, in rows and in columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock.state.log import Record
from penstock.streams.events.facts import ColumnsMissing
from penstock.streams.events.sentences import line_of
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operators.records.missing_columns import RECORDS_MAX, SURE_RECORDS
from tests.recorder import Recorder


def ran(
    values: Iterable[Any], *columns: str, in_columns: bool = False, batch: int = 10_000, value: Any = dict
) -> tuple[list[ColumnsMissing], list[Any]]:
    """What was reported, and what was written, of records of which columns are selected."""
    builder = StreamsBuilder("t", value=value)
    builder.stream("in").select(**{name: ps.col(name) for name in columns}).to("out")
    events = Recorder()
    options = TaskOptions(events=events, batch_max_records=batch)
    with ps.TopologyTestDriver(builder, options=options, columns=in_columns) as driver:
        driver.pipe_all("in", [Record("k", value, at) for at, value in enumerate(values)])
        return events.of(ColumnsMissing), [r.value for r in driver.read("out")]


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 10_000])
def test_a_misspelt_column_is_reported_once_after_a_few_records(in_columns: bool, batch: int) -> None:
    given = [{"amount": n, "city": "x"} for n in range(RECORDS_MAX + 300)]
    (fact,), written = ran(given, "amont", "city", in_columns=in_columns, batch=batch)
    assert fact.columns == ("amont; did you mean 'amount'?",)
    assert (fact.operator, fact.records) == ("in", SURE_RECORDS)
    assert str(fact.declared).rpartition(":")[0].endswith("test_missing_columns.py")
    assert written == [{"amont": None, "city": "x"}] * len(given), "answers stay as they are"
    line = line_of(fact)
    assert line.level == "warning" and "columns that no record has" in line.sentence


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_column_without_a_similar_one_is_reported_after_many(in_columns: bool) -> None:
    given = [{"amount": 1}] * (RECORDS_MAX - 1)
    assert ran(given, "zone", in_columns=in_columns)[0] == []
    for more in (1, 500):
        (fact,), _ = ran([*given, *[{"amount": 1}] * more], "zone", in_columns=in_columns)
        assert (fact.columns, fact.records) == (("zone",), RECORDS_MAX)


@pytest.mark.parametrize("in_columns", [False, True])
def test_columns_that_occur_at_all_are_not_reported(in_columns: bool) -> None:
    given: list[Any] = [{"amount": n} for n in range(RECORDS_MAX)]
    given[SURE_RECORDS - 1] = {"amont": None}
    given[-1]["zone"] = 1
    assert ran(given, "amont", "zone", in_columns=in_columns)[0] == []


def test_a_null_and_too_few_records_say_nothing() -> None:
    assert ran([None] * 2 * RECORDS_MAX, "amont")[0] == []
    assert ran([{"amount": 1}] * (SURE_RECORDS - 1), "amont")[0] == []


def test_columns_that_no_expression_reads_and_those_of_computed_records_are_not_looked_for() -> None:
    builder = StreamsBuilder("t", value=dict)
    stream = builder.stream("in")
    stream.map_values(lambda v: {"amont": v["amount"]}).filter(ps.col("amont") > 0).to("computed")
    stream.select(sum=ps.col("amount") * 2).filter(ps.col("sum") > 0).to("selected")
    events = Recorder()
    with ps.TopologyTestDriver(builder, options=TaskOptions(events=events)) as driver:
        driver.pipe_all("in", [Record("k", {"amount": 1, "sums": 2}, 0)] * RECORDS_MAX)
        assert len(driver.read("computed")) == len(driver.read("selected")) == RECORDS_MAX
    assert events.of(ColumnsMissing) == []


def test_a_source_is_looked_at_for_all_expressions_that_read_it() -> None:
    builder = StreamsBuilder("t", value=dict)
    stream = builder.stream("in")
    stream.filter(ps.col("amont") > 1).to("big")
    stream.filter(ps.col("nested.deep") > 1).filter(ps.col("user").is_null()).to("deep")
    stream.group_by(ps.col("citty")).count().to_stream().to("counts")
    events = Recorder()
    with ps.TopologyTestDriver(builder, options=TaskOptions(events=events)) as driver:
        driver.pipe_all("in", [Record("k", {"amount": 1, "city": "x", "nested": {}}, 0)] * (RECORDS_MAX + 10))
    alike, others = events.of(ColumnsMissing)
    assert alike.columns == ("amont; did you mean 'amount'?", "citty; did you mean 'city'?")
    assert others.columns == ("user",)

"""Changes of rows that a table's filter refuses, and refused before, are no changes of the filtered table."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.topologies.dsl.ktable import KTable


def shown(table: KTable, how: str) -> KTable:
    """Without what is hidden: filtered, filtered and mapped, or filtered into a store."""
    if how == "named":
        return table.filter(lambda key, value: value != "hidden", name="shown")
    kept = table.filter(lambda key, value: value != "hidden")
    return kept.map_values(lambda value: value) if how == "mapped" else kept


@pytest.mark.parametrize("how", ["filtered", "mapped", "named"])
def test_a_foreign_key_join_does_not_repeat_its_rows(how: str) -> None:
    builder = ps.StreamsBuilder("foreign", value=str)
    rows, others = builder.table("l"), shown(builder.table("r"), how)
    rows.left_join_foreign(others, lambda key, value: "x", lambda x, y: f"{x}|{y}").to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("l", "a", "A", 1)
        assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [("A|None", 1)]
        driver.pipe("r", "x", "hidden", 9)
        driver.pipe("r", "x", "hidden", 10)
        assert driver.read("out") == []
        driver.pipe("r", "x", "B", 11)
        driver.pipe("r", "x", "hidden", 12)
        assert [r.value for r in driver.read("out")] == ["A|B", "A|None"]


def counts(builder: ps.StreamsBuilder) -> KTable:
    """Per key and window of 10 ms."""
    return builder.stream("in").group_by_key().windowed_by(ps.tumbling("10ms", grace=0)).count()


@pytest.mark.parametrize("named", [None, "many"])
def test_suppress_is_not_moved(named: str | None) -> None:
    """Final results, and changes until a time limit."""
    for until in (ps.until_window_closes(), ps.until_time_limit(9)):
        builder = ps.StreamsBuilder("held", value=str)
        table = counts(builder).filter(lambda window, n: n > 1, name=named).suppress(until)
        table.to_stream(lambda window, n: window.start_ms, key=int, name="starts").to("out")
        with ps.TopologyTestDriver(builder.build()) as driver:
            driver.pipe("in", "k", "x", 1)
            driver.pipe("in", "k", "x", 2)
            driver.pipe("in", "k", "x", 20)
            assert driver.read("out") == []
            driver.pipe("in", "k", "x", 21)
            assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == [(0, 2, 2)]


@pytest.mark.parametrize(("before", "after", "late"), [(4, -1, 1), (-1, 4, 0)])
def test_a_window_of_negative_bounds_does_not_reach_over_the_epoch(before: int, after: int, late: int) -> None:
    """Records of the same time 0 lie 1 ms too near to each other."""
    for first, second in (("l", "r"), ("r", "l")):
        builder = ps.StreamsBuilder("pairs", value=str)
        join: Any = builder.stream("l").join
        join(builder.stream("r"), lambda x, y: x + y, before=before, after=after, grace=5).to("out")
        with ps.TopologyTestDriver(builder.build()) as driver:
            driver.pipe(first, "k", first, 0)
            driver.pipe(second, "k", second, 0)
            assert driver.read("out") == []
            driver.pipe("l", "k", "L", late)
            driver.pipe("r", "k", "R", 1 - late)
            assert "LR" in [r.value for r in driver.read("out")]

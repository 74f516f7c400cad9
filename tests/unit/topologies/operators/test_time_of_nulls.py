"""Records with a null key or a null value are no event of a join: they do not move its time."""

from __future__ import annotations

import pytest

import penstock as ps


@pytest.mark.parametrize("null", [("k", None), (None, "n"), (None, None)])
def test_what_waits_for_late_rows_is_not_released(null: tuple[str | None, str | None]) -> None:
    builder = ps.StreamsBuilder("held", value=str)
    rows = builder.table("rows", history="1h")
    builder.stream("in").join(rows, lambda value, row: f"{value}|{row}", grace=10).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("rows", "k", "row", 0)
        driver.pipe("in", "k", "v", 5)
        driver.pipe("in", *null, 20)
        driver.pipe("rows", "k", "late row", 3)
        assert driver.read("out") == []
        driver.pipe("in", "k", "w", 20)
        assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [("v|late row", 5)]


def test_a_null_key_meets_nothing_at_once() -> None:
    """In a left join; it has no row to wait for."""
    builder = ps.StreamsBuilder("held", value=str)
    rows = builder.table("rows", history="1h")
    builder.stream("in").left_join(rows, lambda value, row: f"{value}|{row}", grace=10).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", None, "n", 20)
        assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == [(None, "n|None", 20)]


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
@pytest.mark.parametrize("null", [("q", None), (None, "n"), (None, None)])
def test_windows_of_two_streams_stay_open(kind: str, null: tuple[str | None, str | None]) -> None:
    builder = ps.StreamsBuilder("pairs", value=str)
    join = getattr(builder.stream("a"), kind)
    join(builder.stream("b"), lambda left, right: f"{left}|{right}", within=5, grace=5).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("a", "k", "x", 10)
        driver.pipe("b", *null, 100)
        expected = [(None, "None|n", 100)] if null == (None, "n") and kind == "outer_join" else []
        assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == expected
        driver.pipe("b", "k", "y", 12)
        assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [("x|y", 12)]

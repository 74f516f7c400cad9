"""A stream joined with a versioned table: which row a record meets that is older than the table's history."""

from __future__ import annotations

import pytest

import penstock as ps

HOUR_MS = 3_600_000


def joined(*, left: bool = False, kept: bool = False) -> ps.Topology:
    """Clicks with users, of which the last hour is known. ``kept``: users through a filter that takes them all."""
    builder = ps.StreamsBuilder("versions", value=str)
    users = builder.table("users", history="1h")
    if kept:
        users = users.filter(lambda key, value: True)
    clicks = builder.stream("clicks")
    (clicks.left_join if left else clicks.join)(users, lambda click, user: f"{click}|{user}").to("out")
    return builder.build()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_row_that_never_changed_is_found_by_any_record_after_it(left: bool, kept: bool) -> None:
    with ps.TopologyTestDriver(joined(left=left, kept=kept)) as driver:
        driver.pipe("users", "u1", "Oslo", 0)
        driver.pipe("users", "u2", "Rome", 10 * HOUR_MS)
        driver.pipe("clicks", "u1", "click", 8 * HOUR_MS)
        assert [(r.value, r.timestamp_ms) for r in driver.read("out")] == [("click|Oslo", 8 * HOUR_MS)]
        assert not driver.dropped_records


def test_a_replaced_row_is_not_found_before_the_history() -> None:
    """Though it may still lie in the store: an inner join counts the record, a left one meets nothing."""
    for left, expected, dropped in ((False, [], {"clicks-join.expired": 1}), (True, ["click|None"], {})):
        with ps.TopologyTestDriver(joined(left=left)) as driver:
            driver.pipe("users", "u1", "Oslo", 0)
            driver.pipe("users", "u1", "Rome", 9 * HOUR_MS)
            driver.pipe("users", "u2", "Bern", 10 * HOUR_MS)
            driver.pipe("clicks", "u1", "click", 8 * HOUR_MS)
            assert [r.value for r in driver.read("out")] == expected
            assert driver.dropped_records == dropped


def test_rows_that_a_filter_refuses_move_the_tables_time() -> None:
    """Also where the filter says nothing of them, as it knows the old values: history goes with the table's time."""
    builder = ps.StreamsBuilder("refused", value=str)
    users = builder.table("users", history="1h").filter(lambda key, value: value != "hidden")
    users.group_by(lambda key, value: (value, value)).count().to("counts")
    builder.stream("clicks").left_join(users, lambda click, user: f"{click}|{user}").to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        for key in ("b", "c", "d", "e", "u1"):  # more than one update forgets: the old version still lies in the store
            driver.pipe("users", key, "Oslo", 0)
        driver.pipe("users", "u1", "Rome", 9 * HOUR_MS)
        driver.pipe("users", "a", "hidden", 20 * HOUR_MS)
        driver.pipe("clicks", "u1", "click", 8 * HOUR_MS + 1)
        assert [r.value for r in driver.read("out")] == ["click|None"]


def test_a_deleted_row_is_not_found_whatever_its_age() -> None:
    with ps.TopologyTestDriver(joined()) as driver:
        driver.pipe("users", "u1", "Oslo", 0)
        driver.pipe("users", "u1", None, 1)
        driver.pipe("users", "u2", "Rome", 10 * HOUR_MS)
        driver.pipe("clicks", "u1", "click", 8 * HOUR_MS)
        assert driver.read("out") == []
        assert not driver.dropped_records

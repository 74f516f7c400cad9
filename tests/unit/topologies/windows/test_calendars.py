"""Calendar windows across changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.triggers import after_count
from penstock.topologies.windows import END_OF_TIME_MS, CalendarWindows, Windows, calendar, hopping, session
from penstock.topologies.windows.calendars import CalendarUnit

HOUR_MS = 3_600_000


def at(text: str, zone: str = "UTC") -> int:
    """Milliseconds of a local time."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def shown(windows: CalendarWindows, ts: int) -> tuple[str, str]:
    """The window of a timestamp, in local time."""
    ((start, end),) = windows.assign(ts)
    zone = ZoneInfo(windows.zone)
    first, last = (datetime.fromtimestamp(t / 1000, zone).isoformat() for t in (start, end))
    return first, last


def test_days_are_23_and_25_hours_long_where_clocks_change() -> None:
    days = calendar("day", "Europe/Berlin", grace=0)
    for text, hours in (("2026-03-28T12:00", 24), ("2026-03-29T12:00", 23), ("2026-10-25T12:00", 25)):
        ((start, end),) = days.assign(at(text, "Europe/Berlin"))
        assert end - start == hours * HOUR_MS
    assert shown(days, at("2026-03-29T23:59:59", "Europe/Berlin")) == (
        "2026-03-29T00:00:00+01:00",
        "2026-03-30T00:00:00+02:00",
    )


def test_weeks_months_and_years() -> None:
    weeks = calendar("week", "America/New_York", grace=0)
    assert shown(weeks, at("2026-03-08T20:00", "America/New_York")) == (
        "2026-03-02T00:00:00-05:00",
        "2026-03-09T00:00:00-04:00",
    )
    sundays = calendar("week", grace=0, week_start="sunday")
    assert shown(sundays, at("2026-03-07T20:00"))[0] == "2026-03-01T00:00:00+00:00"
    months = calendar("month", "Asia/Tokyo", grace=0)
    assert shown(months, at("2026-12-31T15:00"))[0] == "2027-01-01T00:00:00+09:00"
    assert shown(months, at("2026-12-31T14:59:59"))[0] == "2026-12-01T00:00:00+09:00"
    years = calendar("year", grace=0)
    assert shown(years, at("2028-02-29T00:00")) == ("2028-01-01T00:00:00+00:00", "2029-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        ("Europe/Berlin", "2026-03-28"),
        ("America/Sao_Paulo", "2018-11-03"),  # midnight is skipped
        ("America/St_Johns", "2010-11-05"),  # one minute after midnight it is 23:01 again
        ("Pacific/Apia", "2011-12-28"),  # a whole day is skipped
        ("Atlantic/Azores", "2026-10-24"),  # midnight comes twice
    ],
)
def test_days_tile_time_however_clocks_jump(zone: str, first: str) -> None:
    days = calendar("day", zone, grace=0)
    begin = at(first)
    seen = []
    for ts in range(begin, begin + 5 * 24 * HOUR_MS, 10 * 60_000):
        ((start, end),) = days.assign(ts)
        assert start <= ts < end
        assert (days.open_from(ts), days.end_of(start)) == (start, end)
        local = datetime.fromtimestamp(start / 1000, UTC).astimezone(ZoneInfo(zone))
        before = datetime.fromtimestamp(start / 1000 - 1, UTC).astimezone(ZoneInfo(zone))
        assert before.date() < local.date()
        if (start, end) not in seen:
            seen.append((start, end))
    assert all(a[1] == b[0] for a, b in pairwise(seen))
    assert len(seen) >= 5


def test_unknown_zones_and_units_are_refused() -> None:
    with pytest.raises(TopologyError, match="time zone 'Mars/Base' is unknown"):
        calendar("day", "Mars/Base", grace=0)
    with pytest.raises(TopologyError, match="unknown calendar unit 'hour'; use day, week, month, year"):
        CalendarWindows("hour", "UTC")  # type: ignore[arg-type]  # as a user without a type checker
    with pytest.raises(TopologyError, match="'someday' is not a weekday"):
        calendar("week", grace=0, week_start="someday")


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Santiago"])
def test_the_calendar_goes_on_behind_the_years_that_dates_have(unit: CalendarUnit, zone: str) -> None:
    """Its windows tile time to the end, and none is longer than is reckoned with."""
    windows = calendar(unit, zone, grace=0)
    year_9994, year_19994 = 253_230_000_000_000, 568_800_000_000_000
    for first in (year_9994, year_19994, END_OF_TIME_MS - 40_000_000_000):
        (start, end), seen = windows.assign(first)[0], 0
        while seen < 40:
            assert 0 < end - start <= windows.horizon_ms
            assert windows.assign(start) == windows.assign(end - 1) == [(start, end)]
            (start, end), seen = windows.assign(end)[0], seen + 1


def test_counts_of_the_last_days() -> None:
    """A window of today's is not behind its retention."""
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").group_by_key().windowed_by(calendar("day", grace=0)).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_all("in", [Record("k", 1, END_OF_TIME_MS - 3), Record("k", 1, END_OF_TIME_MS)])
        assert [r.value for r in driver.read("out")] == [1, 2]


@pytest.mark.parametrize(
    "windows",
    [
        hopping(10, 5, grace=0, before_epoch=True),
        session(10, grace=0, bounds="gap"),
    ],
)
@pytest.mark.parametrize("triggered", [False, True])
def test_a_time_whose_window_cannot_end_is_an_error_of_its_record(windows: Windows, triggered: bool) -> None:
    """It says what is wrong; records before and after are taken."""
    builder = StreamsBuilder(key=str, value=int)
    stream = builder.stream("in").group_by_key().windowed_by(windows)
    if triggered:
        stream.triggered(after_count(1), accumulation="accumulating").count().to("out")
    else:
        stream.count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", "k", 1, 4)
        with pytest.raises(ProcessingError, match=f"timestamp {END_OF_TIME_MS - 3} is too close to the end of time"):
            driver.pipe("in", "k", 1, END_OF_TIME_MS - 3)

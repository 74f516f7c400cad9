"""Calendar windows across changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.windows import END_OF_TIME_MS, CalendarWindows, calendar

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
    with pytest.raises(TopologyError, match="no 'hour'; use day, week, month, year"):
        CalendarWindows("hour", "UTC")  # type: ignore[arg-type]  # as a user without a type checker
    with pytest.raises(TopologyError, match="'someday' is no weekday"):
        calendar("week", grace=0, week_start="someday")


def test_times_behind_the_calendar_have_one_window() -> None:
    months = calendar("month", "Europe/Berlin", grace=0)
    ((start, end),) = months.assign(1_700_000_000_000_000)
    assert end == END_OF_TIME_MS
    assert months.assign(start - 1)[0][1] == start
    assert (months.open_from(1 << 62), months.end_of(start)) == (start, end)

"""Windows of the calendar: days, weeks, months and years in a time zone.

A window begins with the first instant of its first day, as the zone's clocks show it, and ends where the next begins, so
that it is 23 or 25 hours long where daylight saving begins or ends. The rules are those of the zone database of the
machine: tasks that are to agree need the same one.
"""

from __future__ import annotations

import dataclasses
import functools
from datetime import date, datetime, timedelta
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from penstock.state.errors import TopologyError
from penstock.topologies.windows.aligned import SpanWindows
from penstock.topologies.windows.base import Bounds, Time, check_common, grace_of
from penstock.topologies.windows.durations import Duration

CalendarUnit = Literal["day", "week", "month", "year"]
_DAY_MS = 86_400_000
_LONGEST_DAYS = {"day": 2, "week": 8, "month": 32, "year": 367}
"""With a day to spare for changes of the zone."""
_LAST_MS = 253_250_000_000_000
_ERA_MS = 146_097 * _DAY_MS
"""400 years, after which the calendar repeats itself, weekdays and a zone's last rules included."""
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclasses.dataclass(frozen=True)
class CalendarWindows(SpanWindows):
    """Days, weeks, months or years of a time zone. ``week_start``: 0 for Monday to 6 for Sunday."""

    unit: CalendarUnit
    zone: str
    grace_ms: int = 0
    week_start: int = 0
    time: Time = "event"

    def __post_init__(self) -> None:
        check_common(self.grace_ms, self.time)
        if self.unit not in get_args(CalendarUnit):
            raise TopologyError(f"unknown calendar unit {self.unit!r}; use {', '.join(get_args(CalendarUnit))}")
        if not 0 <= self.week_start <= 6:
            raise TopologyError(f"week_start={self.week_start} is not a weekday; 0 is Monday, 6 is Sunday")
        try:
            ZoneInfo(self.zone)
        except (LookupError, ValueError, OSError) as exc:
            raise TopologyError(
                f"time zone {self.zone!r} is unknown on this machine ({exc}); use a name like 'Europe/Berlin', and install "
                "the package tzdata if the system has no zone database"
            ) from exc

    @property
    def horizon_ms(self) -> int:
        """The longest such window + grace."""
        return _LONGEST_DAYS[self.unit] * _DAY_MS + self.grace_ms

    def assign(self, ts: int) -> list[Bounds]:
        """The one window of a timestamp. Behind the years that dates have (9995) it is that of an earlier era."""
        if ts >= _LAST_MS:
            later_ms = ((ts - _LAST_MS) // _ERA_MS + 1) * _ERA_MS
            start, end = self.assign(ts - later_ms)[0]
            return [(start + later_ms, end + later_ms)]
        zone = ZoneInfo(self.zone)
        first = self._first_day(datetime.fromtimestamp(ts // 1000, zone).date())
        # clocks that are set back across midnight show a date twice, and some days are skipped: the bounds decide
        while _begin(zone, first) > ts:
            first = self._first_day(first - timedelta(days=1))
        after = self._next(first)
        while _begin(zone, after) <= ts:
            first, after = after, self._next(after)
        return [(_begin(zone, first), _begin(zone, after))]

    def open_from(self, t: int) -> int:
        """The start of the window around ``t``."""
        return self.assign(t)[0][0]

    def end_of(self, start: int) -> int:
        """The end of the window that starts then."""
        return self.assign(start)[0][1]

    def _first_day(self, day: date) -> date:
        """The first day of the unit that a date is in."""
        if self.unit == "week":
            return day - timedelta(days=(day.weekday() - self.week_start) % 7)
        if self.unit == "month":
            return day.replace(day=1)
        return day.replace(month=1, day=1) if self.unit == "year" else day

    def _next(self, first: date) -> date:
        """The first day of the next unit."""
        if self.unit == "day":
            return first + timedelta(days=1)
        if self.unit == "week":
            return first + timedelta(days=7)
        if self.unit == "year":
            return first.replace(year=first.year + 1)
        return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


@functools.lru_cache(maxsize=4096)
def _begin(zone: ZoneInfo, day: date) -> int:
    """The first instant of a day, in milliseconds."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1000


def calendar(
    unit: CalendarUnit,
    zone: str = "UTC",
    *,
    grace: Duration | None = None,
    week_start: str = "monday",
    time: Time = "event",
) -> CalendarWindows:
    """Windows of a ``unit`` of the calendar of ``zone``; ``grace`` must be named in event time."""
    if week_start.lower() not in _WEEKDAYS:
        raise TopologyError(f"week_start={week_start!r} is not a weekday; use {', '.join(_WEEKDAYS)}")
    return CalendarWindows(unit, zone, grace_of(grace, time, "calendar"), _WEEKDAYS.index(week_start.lower()), time)

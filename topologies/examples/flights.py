"""Flights and weather: how late did flights leave each airport, day by day, and how many left in the rain?

Departures and weather reports are keyed by airport. A departure is joined with the latest report of its airport, so
the two topics are read in time order. If both have the same minute, the report comes first, because its topic does.
Departures before an airport's first report are dropped. Times are the airport's local clock, written as if it were
UTC, so that a window of a day is a day there.

Windows are kept for twenty years, because brokers judge the age of a changelog's records by the clock and the
published data are from 2013.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from penstock.state.log import Windowed
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import tumbling

LATE_MINUTES = 15
"""A departure that is at least this late counts as late, as airlines report it."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of a departure. ``delay``: minutes after the scheduled time, negative if before it,
    ``None`` if the flight was cancelled."""

    delay: int | None


class FlightReport(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of a weather report. ``rain``: inches in the hour."""

    rain: float


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A departure with its weather."""

    delay: int | None
    wet: bool


class Day(msgspec.Struct, frozen=True, gc=False):
    """A day of an airport. ``delay_minutes`` is the sum over flights that left; ``wet_…`` count those in the rain."""

    flights: int = 0
    cancelled: int = 0
    late: int = 0
    delay_minutes: int = 0
    wet_flights: int = 0
    wet_cancelled: int = 0
    wet_delay_minutes: int = 0


def in_weather(departure: Departure, report: FlightReport) -> Sighting:
    """The departure, and whether it rained."""
    return Sighting(departure.delay, report.rain > 0)


def add(airport: str, seen: Sighting, day: Day) -> Day:
    """The day with one more departure."""
    delay, wet = seen.delay, seen.wet
    gone = delay is not None
    minutes = delay or 0
    return Day(
        day.flights + 1,
        day.cancelled + (not gone),
        day.late + (minutes >= LATE_MINUTES),
        day.delay_minutes + minutes,
        day.wet_flights + wet,
        day.wet_cancelled + (wet and not gone),
        day.wet_delay_minutes + minutes * wet,
    )


def day_name(window: Windowed, day: Day) -> str:
    """``<airport>@<date>``."""
    return f"{window.key}@{datetime.fromtimestamp(window.start_ms // 1000, UTC):%Y-%m-%d}"


def build(departures: str = "departures", weather: str = "airport-weather", output: str = "airport-days") -> Topology:
    """Days as JSON, under ``<airport>@<date>``. Both inputs must have equally many partitions."""
    builder = StreamsBuilder("flights", key=str)
    reports = builder.table(weather, value=FlightReport)
    seen = builder.stream(departures, value=Departure).join(reports, in_weather, value=Sighting)
    by_day = seen.group_by_key().windowed_by(tumbling("1d", grace="1d"), retention="7300d")
    by_day.aggregate(Day, add, value=Day, name="days").to_stream(day_name, key=str).to(output)
    return builder.build()

"""Departures met by the weather, added up by airport and day."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import flights
from penstock.topologies.examples.flights import Day
from penstock.topologies.graph.topology import Topology

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST_MS = 15_706 * DAY_MS
"""1 January 2013."""


def weather(time_ms: int, rain: float, airport: bytes = b"JFK") -> Record:
    return Record(airport, b'{"rain":%.2f,"visibility":10}' % rain, FIRST_MS + time_ms)


def departure(time_ms: int, delay: int | None, airport: bytes = b"JFK") -> Record:
    said = b"null" if delay is None else b"%d" % delay
    return Record(airport, b'{"flight":"UA1","to":"IAH","delay":%s}' % said, FIRST_MS + time_ms)


def days(driver: TopologyTestDriver) -> dict[str, Day]:
    return {r.key: r.value for r in driver.read("airport-days")}


def test_a_day_adds_up_what_left_late_or_never(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Cancelled flights have no minutes; one that left early has fewer than none."""
    driver = drive(flights.build())
    delays = [0, 15, 14, -6, None]
    driver.pipe_raw(
        {
            "airport-weather": [weather(0, 0.0), weather(2 * HOUR_MS, 0.3)],
            "departures": [departure((n + 1) * HOUR_MS, delay) for n, delay in enumerate(delays)],
        }
    )
    assert days(driver) == {
        "JFK@2013-01-01": Day(
            flights=5, cancelled=1, late=1, delay_minutes=23, wet_flights=4, wet_cancelled=1, wet_delay_minutes=23
        )
    }


def test_a_report_of_the_same_minute_comes_first_and_a_later_one_does_not_count(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    driver = drive(flights.build())
    driver.pipe_raw(
        {
            "airport-weather": [weather(0, 0.0), weather(HOUR_MS, 0.1), weather(2 * HOUR_MS, 0.0)],
            "departures": [departure(HOUR_MS - 1, 1), departure(HOUR_MS, 2), departure(2 * HOUR_MS, 4)],
        }
    )
    assert days(driver)["JFK@2013-01-01"].wet_delay_minutes == 2


def test_airports_and_days_are_apart_and_departures_without_any_report_are_dropped(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    driver = drive(flights.build())
    driver.pipe_raw(
        {
            "airport-weather": [weather(HOUR_MS, 0.0), weather(HOUR_MS, 0.2, b"LGA")],
            "departures": [
                departure(0, 100),
                departure(DAY_MS - 1, 3),
                departure(DAY_MS, 5),
                departure(DAY_MS, 7, b"LGA"),
                departure(DAY_MS, 9, b"EWR"),
            ],
        }
    )
    found = {name: (day.flights, day.delay_minutes, day.wet_flights) for name, day in days(driver).items()}
    assert found == {"JFK@2013-01-01": (1, 3, 0), "JFK@2013-01-02": (1, 5, 0), "LGA@2013-01-02": (1, 7, 1)}

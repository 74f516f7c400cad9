"""The plots of the flights: a year of days per airport, and what rain does to a departure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from demo.flights import AIRPORTS
from demo.svg import LEFT, RIGHT, WIDTH, Plot, svg, ticks

Day = Mapping[str, int]
# Upper bounds in minutes of the calendar's colours; the last one has none.
BOUNDS = (5, 10, 20, 35, 55)
_CELL, _GAP, _CALENDAR_TOP, _ROW = 11, 1.2, 34, 122
_LEFT_OF_DAYS = 74


def mean_delay(day: Day, prefix: str = "") -> float | None:
    """Minutes per flight that left; ``None`` when none did."""
    gone = day[f"{prefix}flights"] - day[f"{prefix}cancelled"]
    return day[f"{prefix}delay_minutes"] / gone if gone else None


def calendar(answer: Mapping[str, Day]) -> str:
    """One row of weeks per airport, a square per day, darker the later its flights left."""
    marks: list[str] = []
    for row, (airport, name) in enumerate(AIRPORTS.items()):
        top = _CALENDAR_TOP + row * _ROW
        marks.append(f'<text class="name" x="{_LEFT_OF_DAYS - 10}" y="{top + 42}" text-anchor="end">{airport}</text>')
        marks.append(f'<text class="tick" x="{_LEFT_OF_DAYS}" y="{top - 6}">{name}</text>')
        marks += _days(airport, answer, top)
    height = _CALENDAR_TOP + len(AIRPORTS) * _ROW + 30
    marks += _scale(height - 26)
    return svg(
        "Mean departure delay per day and airport",
        "Calendars of 2013 for Newark, John F. Kennedy and LaGuardia: darker days had longer mean delays. "
        "The same days are dark at all three: 8 March, summer storms, December.",
        height,
        marks,
    )


def _days(airport: str, answer: Mapping[str, Day], top: float) -> list[str]:
    marks: list[str] = []
    day = date(2013, 1, 1)
    offset = day.weekday()
    while day.year == 2013:
        place = (day - date(2013, 1, 1)).days + offset
        x = _LEFT_OF_DAYS + place // 7 * (_CELL + _GAP)
        y = top + place % 7 * (_CELL + _GAP)
        found = answer.get(f"{airport}@{day}")
        mean = None if found is None else mean_delay(found)
        said = f"{airport}, {day:%a %d %b}: " + ("no flights" if found is None or mean is None else _said(found, mean))
        shade = "none" if mean is None else str(sum(mean >= bound for bound in BOUNDS))
        marks.append(
            f'<rect class="day shade-{shade}" x="{x:.1f}" y="{y:.1f}" width="{_CELL}" height="{_CELL}" rx="1.5">'
            f"<title>{said}</title></rect>"
        )
        if day.day == 1:
            # A month's name goes under the first whole week of it.
            marks.append(f'<text class="tick" x="{x + 2:.1f}" y="{top + 7 * (_CELL + _GAP) + 12:.1f}">{day:%b}</text>')
        day += timedelta(days=1)
    return marks


def _said(day: Day, mean: float) -> str:
    return f"{mean:.0f} min mean delay, {day['flights']} flights, {day['late']} late, {day['cancelled']} cancelled"


def _scale(y: float) -> list[str]:
    names = [f"under {BOUNDS[0]}"]
    names += [f"{low}–{high}" for low, high in pairwise(BOUNDS)]
    names.append(f"{BOUNDS[-1]} or more")
    marks = [f'<text class="label" x="{_LEFT_OF_DAYS}" y="{y + 10}">mean delay in minutes</text>']
    for place, name in enumerate(names):
        x = _LEFT_OF_DAYS + 148 + place * 82
        marks.append(f'<rect class="day shade-{place}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="1.5"/>')
        marks.append(f'<text class="tick" x="{x + _CELL + 5}" y="{y + 10}">{name}</text>')
    return marks


def rain(answer: Mapping[str, Day]) -> str:
    """The mean delay of departures in dry hours and in the rain, by airport."""
    sums = {airport: _added([d for k, d in answer.items() if k.startswith(airport)]) for airport in AIRPORTS}
    means = {a: (_dry(day), mean_delay(day, "wet_") or 0.0, day) for a, day in sums.items() if day["flights"]}
    y_ticks = ticks(0, max((max(dry, wet) for dry, wet, _ in means.values()), default=1.0))
    plot = Plot(
        "Rain and delay",
        "; ".join(f"{a}: {dry:.0f} minutes in dry hours, {wet:.0f} in the rain" for a, (dry, wet, _) in means.items()),
        (0, len(AIRPORTS)),
        (0, y_ticks[-1]),
    ).axes("airport", "mean departure delay, minutes", x_ticks=(), y_ticks=y_ticks)
    slot = (WIDTH - LEFT - RIGHT) / len(AIRPORTS)
    for place, airport in enumerate(AIRPORTS):
        if airport not in means:
            continue
        dry, wet, day = means[airport]
        middle = LEFT + slot * (place + 0.5)
        for shift, mean, count, cls in (
            (-54, dry, day["flights"] - day["wet_flights"], "fill-one"),
            (2, wet, day["wet_flights"], "fill-two"),
        ):
            plot.column(middle + shift, 52, mean, cls, f"{airport}: {mean:.1f} minutes, {count:,} flights")
            plot.text(middle + shift + 26, plot.py(mean) - 5, f"{mean:.0f}", "middle", "value")
        plot.text(middle, plot.py(0) + 18, f"{airport} · {day['flights']:,} flights", "middle")
    return plot.svg()


def _added(days: list[Day]) -> dict[str, int]:
    names = ("flights", "cancelled", "delay_minutes", "wet_flights", "wet_cancelled", "wet_delay_minutes")
    return {name: sum(day[name] for day in days) for name in names}


def _dry(day: Mapping[str, Any]) -> float:
    flights = day["flights"] - day["cancelled"] - day["wet_flights"] + day["wet_cancelled"]
    return (day["delay_minutes"] - day["wet_delay_minutes"]) / flights if flights else 0.0

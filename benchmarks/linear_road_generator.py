"""Traffic for Linear Road: a small stand-in for the benchmark's own generator, and a pure function of its parameters.

Most cars drive through the same few segments, so that there are jams and tolls. Some take a second trip, some leave the road
without its exit lane being seen; some stop alone, some behind each other, which are the accidents. Cars report every 30 s,
and some ask for their balance or what they paid on former days.

    traffic = Traffic(cars=300, minutes=15)
    driver.pipe_raw({"linear-road-former-tolls": former_tolls(traffic)})
    driver.pipe_raw({"linear-road": list(records(traffic))})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from benchmarks.nexmark_generator import SplitMix
from penstock.state.log import Record
from penstock.topologies.examples.linear_road.model import (
    BALANCE,
    EXIT_LANE,
    EXPENDITURE,
    REPORT,
    SEGMENT_FEET,
    SEGMENTS,
    line,
)

REPORT_EVERY_S = 30
FORMER_DAYS = 69
Line = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """``accidents`` is of each expressway, the jams are where cars enter: ``hot`` segments from number 40 on.
    ``out_of_order_s``: how much later than its time a line may come, less than the 30 s between a car's reports."""

    cars: int = 300
    expressways: int = 1
    minutes: int = 15
    accidents: int = 2
    hot: int = 4
    out_of_order_s: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.out_of_order_s < REPORT_EVERY_S or not 1 <= self.hot <= SEGMENTS - 40 or self.minutes < 1:
            raise ValueError(
                f"{self} of Linear Road; give out_of_order_s below 30, hot of 1 to 60, minutes of 1 or more"
            )


@dataclasses.dataclass(frozen=True)
class _Stop:
    """Where a car stands, from which of its reports on, and for how many."""

    lane: int
    pos: int
    first: int
    reports: int


def records(traffic: Traffic) -> Iterator[Record]:
    """The input, under each car as text."""
    for fields in lines(traffic):
        yield Record(b"%d" % fields[2], line(fields), fields[1] * 1000)


def former_tolls(traffic: Traffic) -> list[Record]:
    """What half of the cars paid on some days."""
    draw = SplitMix(traffic.seed << 8)
    rows = [
        (vid, day, draw.below(traffic.expressways), draw.below(100))
        for vid in range(0, traffic.cars, 2)
        for day in range(1, FORMER_DAYS + 1, 7)
    ]
    return [Record(b"%d-%d-%d" % row[:3], line(row)) for row in rows]


def lines(traffic: Traffic) -> list[Line]:
    """All lines in the order of their arrival."""
    draw = SplitMix(traffic.seed)
    found = [row for vid in range(traffic.cars) for row in _of_car(traffic, vid, draw)]
    for xway in range(traffic.expressways):
        for number in range(traffic.accidents):
            found += _accident(traffic, xway, traffic.cars + 3 * (number + xway * traffic.accidents), draw)
    found = [row for row in found if row[1] < traffic.minutes * 60]
    arrivals = [(row[1] + draw.below(traffic.out_of_order_s + 1), draw.bits(), row) for row in found]
    return [row for _, _, row in sorted(arrivals)]


def _of_car(traffic: Traffic, vid: int, draw: SplitMix) -> list[Line]:
    """One trip, or two, and the questions on the way."""
    end_s = traffic.minutes * 60
    time = draw.below(end_s * 2 // 3)
    found: list[Line] = []
    for _ in range(1 + (draw.below(5) == 0)):
        xway, direction = draw.below(traffic.expressways), draw.below(8) == 0
        pos = (40 + draw.below(traffic.hot)) * SEGMENT_FEET + draw.below(SEGMENT_FEET)
        alone = [_Stop(1 + draw.below(3), pos, 1, 2 + draw.below(4))] if draw.below(20) == 0 else []
        speed = 15 + draw.below(35)
        trip = list(_trip(vid, time, xway, int(direction), pos, speed, 4 + draw.below(24), alone, draw))
        found += trip
        time = trip[-1][1] + 60 + draw.below(60)
    questions = ((BALANCE, -1), (BALANCE, -1), (EXPENDITURE, 1 + 7 * draw.below(10)), (4, -1))
    for n, (kind, day) in enumerate(questions):
        asked_s = end_s // 2 + draw.below(end_s // 2)
        fields = [kind, asked_s, vid, -1, draw.below(traffic.expressways), *[-1] * 4, vid * 4 + n, *[-1] * 4]
        found.append((*fields, day))
    return found


def _accident(traffic: Traffic, xway: int, vid: int, draw: SplitMix) -> Iterable[Line]:
    """Three cars that stop at one place, each for a while."""
    lane, direction = 1 + draw.below(3), draw.below(4) == 0
    pos = (40 + draw.below(traffic.hot)) * SEGMENT_FEET + draw.below(SEGMENT_FEET)
    begin = draw.below(traffic.minutes * 15)
    for n in range(3):
        stop = _Stop(lane, pos, 1, 5 + draw.below(8))
        yield from _trip(vid + n, begin + draw.below(60), xway, int(direction), pos, 30, 20, [stop], draw)


def _trip(
    vid: int,
    time: int,
    xway: int,
    direction: int,
    pos: int,
    speed: int,
    reports: int,
    stops: list[_Stop],
    draw: SplitMix,
) -> Iterator[Line]:
    """The reports of one trip. Most end on the exit lane."""
    exits = draw.below(4) > 0
    forward = -1 if direction else 1
    for n in range(reports):
        lane = 0 if n == 0 else EXIT_LANE if exits and n == reports - 1 else 1 + draw.below(3)
        now = speed + draw.below(9) - 4
        for stop in stops:
            if stop.first <= n < stop.first + stop.reports:
                lane, pos, now = stop.lane, stop.pos, 0
        pos = min(max(pos, 0), SEGMENTS * SEGMENT_FEET - 1)
        yield (REPORT, time, vid, now, xway, lane, direction, pos // SEGMENT_FEET, pos, *[-1] * 6)
        time += REPORT_EVERY_S
        pos += forward * now * REPORT_EVERY_S * SEGMENT_FEET // 3600

"""Linear Road, computed from a list of lines at one go: plain loops and dicts, every statistic looked up in all reports.

It knows the rules as they are written, not the topology: accidents are intervals of seconds, and notices go out from the
minute behind the one of their beginning through the one of their end.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

Line = Sequence[int]
Place = tuple[int, int, int, int]
"""Expressway, direction, lane, position."""


class Seen(NamedTuple):
    """A position report, in the columns' order from the second on."""

    time: int
    vid: int
    speed: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int

    @property
    def minute(self) -> int:
        return self.time // 60 + 1

    @property
    def segment(self) -> tuple[int, int, int]:
        return self.xway, self.dir, self.seg

    @property
    def place(self) -> Place:
        return self.xway, self.dir, self.lane, self.pos


@dataclasses.dataclass
class Answers:
    """Bags of the four kinds of answers, without the time of emission."""

    tolls: Counter[tuple[int, ...]] = dataclasses.field(default_factory=Counter)
    accidents: Counter[tuple[int, ...]] = dataclasses.field(default_factory=Counter)
    balances: Counter[tuple[int, ...]] = dataclasses.field(default_factory=Counter)
    expenditures: Counter[tuple[int, ...]] = dataclasses.field(default_factory=Counter)


def answers(lines: Sequence[Line], former_tolls: Sequence[Line] = ()) -> Answers:
    """All that is to be answered. A balance is that of the end of the minute before the question."""
    ordered = sorted(lines, key=lambda row: row[1])
    reports = [Seen(*row[1:9]) for row in ordered if row[0] == 0]
    by_car: dict[int, list[Seen]] = defaultdict(list)
    for r in reports:
        by_car[r.vid].append(r)
    accidents = accidents_of(by_car)
    made = Answers()
    charges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for vid, trip in by_car.items():
        owed: int | None = None
        last: Seen | None = None
        for r in trip:
            new = last is None or last.segment != r.segment
            if new and owed:
                charges[vid].append((r.time, owed))
            if new:
                owed = None
            if r.lane == 4:
                owed = last = None
                continue
            if new:
                lav, owed, ahead = toll_of(r, reports, accidents)
                made.tolls[0, vid, r.time, lav, owed] += 1
                if ahead is not None:
                    made.accidents[1, r.time, r.xway, ahead, r.dir, vid] += 1
            last = r
    paid = {(vid, day, xway): toll for vid, day, xway, toll in former_tolls}
    for row in ordered:
        kind, time, vid, xway, qid, day = row[0], row[1], row[2], row[4], row[9], row[14]
        if kind == 2:
            until = time // 60 * 60 - 1
            assert time - until <= 60, "an answer may be a minute old, no more"
            known = [(at, toll) for at, toll in charges[vid] if at <= until]
            result_time = max((at for at, _ in known), default=0)
            made.balances[2, time, result_time, qid, sum(toll for _, toll in known)] += 1
        elif kind == 3:
            made.expenditures[3, time, qid, paid.get((vid, day, xway), 0)] += 1
    return made


class Accident(NamedTuple):
    """From the second on at which it began, to that at which it was cleared."""

    xway: int
    dir: int
    seg: int
    begin: int
    clear: float

    def noticed_in(self, minute: int) -> bool:
        return self.begin // 60 + 2 <= minute <= (math.inf if self.clear == math.inf else self.clear // 60 + 1)


def accidents_of(by_car: dict[int, list[Seen]]) -> list[Accident]:
    """Where and when at least two cars stood."""
    stood: dict[Place, list[tuple[int, float, int]]] = defaultdict(list)
    for trip in by_car.values():
        for i in range(3, len(trip)):
            four = trip[i - 3 : i + 1]
            fresh = i == 3 or trip[i - 4].place != trip[i].place
            if fresh and len({r.place for r in four}) == 1 and 1 <= trip[i].lane <= 3:
                left = next((r.time for r in trip[i + 1 :] if r.place != trip[i].place), math.inf)
                stood[trip[i].place].append((trip[i].time, left, trip[i].seg))
    found = []
    for (xway, direction, _, _), stays in stood.items():
        for begin, _, seg in stays:
            if _standing(stays, begin) >= 2 > _standing(stays, begin - 1):
                later = sorted({b for _, b, _ in stays if b > begin})
                clear = next(t for t in [*later, math.inf] if _standing(stays, t) < 2)
                found.append(Accident(xway, direction, seg, begin, clear))
    return found


def _standing(stays: Sequence[tuple[int, float, int]], time: float) -> int:
    return sum(a <= time < b for a, b, _ in stays)


def toll_of(entry: Seen, reports: Sequence[Seen], accidents: Sequence[Accident]) -> tuple[int, int, int | None]:
    """The mean speed, the toll, and the segment of the nearest accident ahead."""
    minute = entry.minute
    there = [r for r in reports if r.segment == entry.segment]
    speeds = [r.speed for r in there if minute - 5 <= r.minute <= minute - 1]
    lav = math.floor(sum(speeds) / len(speeds) + 0.5) if speeds else 0
    cars = len({r.vid for r in there if r.minute == minute - 1})
    ahead = [
        abs(a.seg - entry.seg)
        for a in accidents
        if (a.xway, a.dir) == (entry.xway, entry.dir)
        and 0 <= (a.seg - entry.seg) * (-1 if entry.dir else 1) <= 4
        and a.noticed_in(minute)
    ]
    if ahead:
        return lav, 0, entry.seg + min(ahead) * (-1 if entry.dir else 1)
    return lav, 2 * (cars - 50) ** 2 if lav < 40 and cars > 50 else 0, None

"""The schema of Linear Road: lines of 15 integers in, notifications and answers as CSV out, and the values in between.

Times are seconds since the simulation began; minute m is ``[60 (m - 1), 60 m)``. Positions are feet along an expressway,
segments are of 5280 ft, speeds miles per hour, tolls cents. Cars drive towards higher segments in direction 0 and towards
lower ones in direction 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.state.serdes.serde import Serde
from penstock.state.serdes.text_serdes import csv_row

REPORT, BALANCE, EXPENDITURE = 0, 2, 3
"""Types of input. Type 4 asks for travel times and is never answered."""
ENTRY_LANE, EXIT_LANE = 0, 4
"""The lanes in between are travel lanes."""
SEGMENTS = 100
SEGMENT_FEET = 5280


def _integers(*columns: str) -> Serde[dict[str, Any]]:
    return csv_row(dict.fromkeys(columns, int), null=None)


def line(columns: Sequence[int]) -> bytes:
    """A line of input or of the table of former tolls."""
    return ",".join(map(str, columns)).encode()


_FIELDS = "type time vid speed xway lane dir seg pos qid s_init s_end dow tod day"
INPUT = _integers(*_FIELDS.split())
"""Unused fields of a line are -1. The record's key is the car (``vid``) as text."""
FORMER_TOLLS = _integers("vid", "day", "xway", "toll")
"""The toll that a car paid on a former day (1: yesterday). The record's key is ``<vid>-<day>-<xway>``."""

# ``emit`` is the wall-clock time, in milliseconds, at which the line was made.
TOLL = _integers("type", "vid", "time", "emit", "lav", "toll")
"""Type 0: the toll for the segment that a car has entered, and the mean speed there (0: no cars)."""
ACCIDENT = _integers("type", "time", "emit", "xway", "seg", "dir", "vid")
"""Type 1: an accident in segment ``seg``, which is the segment that a car has entered or one ahead of it."""
BALANCE_ANSWER = _integers("type", "time", "emit", "result_time", "qid", "balance")
"""Type 2: a car's balance at the start of the minute of its request, and the time of the last charge (0: never)."""
EXPENDITURE_ANSWER = _integers("type", "time", "emit", "qid", "toll")
"""Type 3: what a car paid on a past day and expressway (0: unknown)."""


class PositionReport(msgspec.Struct, frozen=True, gc=False):
    """Where a car is."""

    vid: int
    time: int
    speed: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int


class Segment(msgspec.Struct, frozen=True, gc=False):
    """One direction of a segment."""

    xway: int
    dir: int
    seg: int


class Minute(msgspec.Struct, frozen=True, gc=False):
    """The reports from a segment in a minute: the number of cars and of reports, and the sum of the speeds."""

    cars: int
    speed: int
    reports: int


class Road(msgspec.Struct, frozen=True, gc=False):
    """One direction of an expressway."""

    xway: int
    dir: int


class SegmentEntry(msgspec.Struct, frozen=True, gc=False):
    """A car has entered a segment. ``lav``: the mean speed there in the five minutes before this one; ``cars``: how many
    were there in the last minute; ``accident``: the segment of the nearest accident ahead."""

    vid: int
    time: int
    xway: int
    dir: int
    seg: int
    lav: int = 0
    cars: int = 0
    accident: int | None = None


class ExitReport(msgspec.Struct, frozen=True, gc=False):
    """A car has moved to another segment. ``entered``: when it entered the former one, whose toll it owes."""

    time: int
    entered: int


class Halt(msgspec.Struct, frozen=True, gc=False):
    """A car has stopped at a place, or has left the place where it had stopped."""

    vid: int
    xway: int
    dir: int
    seg: int
    lane: int
    pos: int
    stopped: bool


class Charge(msgspec.Struct, frozen=True, gc=False):
    """Tolls charged to a car, and when the last of them was charged."""

    time: int
    toll: int

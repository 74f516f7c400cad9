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
"""Types of input. Type 4 asks for travel times, which nobody answers."""
ENTRY_LANE, EXIT_LANE = 0, 4
"""The lanes between them are for travel."""
SEGMENTS = 100
SEGMENT_FEET = 5280


def _integers(*columns: str) -> Serde[dict[str, Any]]:
    return csv_row(dict.fromkeys(columns, int), null=None)


def line(columns: Sequence[int]) -> bytes:
    """A line of input or of the table of former tolls."""
    return ",".join(map(str, columns)).encode()


_FIELDS = "type time vid speed xway lane dir seg pos qid s_init s_end dow tod day"
INPUT = _integers(*_FIELDS.split())
"""What a line does not use is -1. The record's key is the car (``vid``) as text."""
FORMER_TOLLS = _integers("vid", "day", "xway", "toll")
"""What a car paid on a former day (1: yesterday). The record's key is ``<vid>-<day>-<xway>``."""

# ``emit`` is when the line was made, in milliseconds of the clock.
TOLL = _integers("type", "vid", "time", "emit", "lav", "toll")
"""Type 0: the toll for the segment that a car has entered, and the mean speed there (0: nobody drove)."""
ACCIDENT = _integers("type", "time", "emit", "xway", "seg", "dir", "vid")
"""Type 1: an accident in segment ``seg``, ahead of a car that has entered another one, or that one."""
BALANCE_ANSWER = _integers("type", "time", "emit", "result_time", "qid", "balance")
"""Type 2: what a car was charged until the minute of the question began, and when last (0: never)."""
EXPENDITURE_ANSWER = _integers("type", "time", "emit", "qid", "toll")
"""Type 3: what a car paid on a former day and expressway (0: nothing is known)."""


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
    """What was reported from a segment in a minute: by how many cars, how many times, and the sum of the speeds."""

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
    """A car has gone on to another segment from the one that it entered at ``entered``, whose toll it owes."""

    time: int
    entered: int


class Halt(msgspec.Struct, frozen=True, gc=False):
    """A car has stopped at a place, or has left the one where it stood."""

    vid: int
    xway: int
    dir: int
    seg: int
    lane: int
    pos: int
    stopped: bool


class Charge(msgspec.Struct, frozen=True, gc=False):
    """Tolls that a car was charged, and when the last of them was."""

    time: int
    toll: int

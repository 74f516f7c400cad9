"""Events derived from the reports of one car: which segments it enters and leaves, and where it stops.

A car enters a segment with its first report there that is not on the exit lane, and owes the toll once it reports
another segment. A report on the exit lane ends the trip: no toll is owed for the segment of that lane. A car has
stopped at its fourth report in a row from the same place of a travel lane.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.state.log import Record
from penstock.state.stores.typed_stores import key_value_store
from penstock.topologies.examples.linear_road.model import (
    ENTRY_LANE,
    EXIT_LANE,
    ExitReport,
    Halt,
    PositionReport,
    SegmentEntry,
)
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext

STOPPED = 4
"""This number of equal reports in a row means that the car has stopped."""


class Car(msgspec.Struct, frozen=True, gc=False):
    """A car's last report, the number of times that it was repeated (``STOPPED`` at most), and when the car entered
    the segment."""

    last: PositionReport
    times: int
    entered: int


CARS = key_value_store("linear-road-cars", key=str, value=Car)


class FollowCar(Processor[str, PositionReport, str, Any]):
    """Keeps a row per car on the road. The ports have ``SegmentEntry``, ``ExitReport`` and ``Halt``, under the car's key."""

    stores = (CARS,)
    out_ports = ("entries", "departures", "halts")

    def process(self, record: Record[str, PositionReport], ctx: ProcessorContext[str, Any]) -> None:
        """One report."""
        cars, report = ctx.store(CARS), record.value
        car = cars.get(record.key)
        stays = car is not None and _place(car.last) == _place(report)
        enters = car is None or _segment(car.last) != _segment(report)
        if car is not None and car.times == STOPPED and not stays:
            ctx.forward(record.key, _halt(car.last, stopped=False), port="halts")
        if car is not None and enters:
            ctx.forward(record.key, ExitReport(report.time, car.entered), port="departures")
        if report.lane == EXIT_LANE:
            cars.delete(record.key)
            return
        if enters:
            entry = SegmentEntry(report.vid, report.time, report.xway, report.dir, report.seg)
            ctx.forward(record.key, entry, port="entries")
        before = car.times if car is not None and stays else 0
        times = 0 if report.lane == ENTRY_LANE else min(before + 1, STOPPED)
        if times == STOPPED > before:
            ctx.forward(record.key, _halt(report, stopped=True), port="halts")
        entered = report.time if car is None or enters else car.entered
        cars.put(record.key, Car(report, times, entered))


def _place(report: PositionReport) -> tuple[int, int, int, int]:
    return report.xway, report.dir, report.lane, report.pos


def _segment(report: PositionReport) -> tuple[int, int, int]:
    return report.xway, report.dir, report.seg


def _halt(report: PositionReport, *, stopped: bool) -> Halt:
    return Halt(report.vid, report.xway, report.dir, report.seg, report.lane, report.pos, stopped)

"""The topology of Linear Road.

A toll depends on the minutes before the one in which a car enters a segment, so everything follows the watermark.
Statistics are emitted when their minute is over, with its end as timestamp. An entry waits until all events of its
time have arrived, and is then joined with the latest of each. The answers follow from the input alone, for any number
of partitions.

The benchmark leaves some points open. Here, the mean speed (LAV) is the plain mean of all readings of five minutes,
rounded half up. Cars have stopped at the same place if lane and position are equal. If several accidents lie ahead,
the nearest is reported. A balance is that at the start of the minute of the request.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.log import Record, Windowed
from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import K, V
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.examples.linear_road import model
from penstock.topologies.examples.linear_road.accidents import Ahead, FollowRoad, change
from penstock.topologies.examples.linear_road.cars import FollowCar
from penstock.topologies.examples.linear_road.model import (
    Charge,
    ExitReport,
    Halt,
    Minute,
    PositionReport,
    Road,
    Segment,
    SegmentEntry,
)
from penstock.topologies.expressions.functions import coalesce, col, concat, count, left, lit, right, struct, when
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
from penstock.topologies.windows import hopping, tumbling
from penstock.topologies.windows.durations import Duration

HORIZON = "3h"
"""The longest simulation, and so the longest that a car can stay in a segment or an accident can last."""
MINUTE_MS = 60_000
WITHIN_MINUTE = MINUTE_MS - 1
"""A statistic that ended this many milliseconds ago belongs to the minute before."""


class Stamp(Processor[str, dict[str, Any], str, dict[str, Any]]):
    """Answers with the wall-clock time in ``emit``."""

    reads_clock = True

    def process(self, record: Record[str, dict[str, Any]], ctx: ProcessorContext[str, dict[str, Any]]) -> None:
        """One answer."""
        ctx.forward(record.key, {**record.value, "emit": ctx.wall_time_ms})


@dataclasses.dataclass(frozen=True)
class LinearRoad:
    """The parts of the topology. ``lines`` are the input, under the car's key."""

    builder: StreamsBuilder[str, dict[str, Any]]
    lines: KStream[str, dict[str, Any]]

    def of_type(self, kind: int) -> KStream[str, dict[str, Any]]:
        """The lines of a type."""
        return self.lines.filter_values(col("type") == kind)

    def answer(self, answers: KStream[str, dict[str, Any]], topic: str, serde: Serde[dict[str, Any]]) -> None:
        """Write answers as lines; their time of emission is added here."""
        answers.process(Stamp, value=serde, keeps_key=True, name=f"{topic}-stamp").to(topic)


def build(
    lines: str = "linear-road",
    former_tolls: str = "linear-road-former-tolls",
    *,
    out_of_order: Duration = 0,
    began_ms: int = 0,
) -> Topology:
    """Build the topology. Answers go to ``linear-road-tolls``, ``-accidents``, ``-balances`` and ``-expenditures``.
    ``out_of_order``: how far lines of different cars may be out of time order; those of one car must be in order.
    ``began_ms``: the whole minute in which the simulation began. Brokers judge the age of changelog records by the
    clock, so give a recent one. Both inputs must have the same number of partitions."""
    if began_ms % MINUTE_MS:
        raise TopologyError(f"began_ms={began_ms} of Linear Road is within a minute; give a multiple of {MINUTE_MS}")
    builder = StreamsBuilder("linear-road", key=str)
    late = bounded_out_of_orderness(out_of_order)
    source = builder.stream(
        lines, value=model.INPUT, timestamp=lambda r: began_ms + r.value["time"] * 1000, watermark=late
    )
    road = LinearRoad(builder, source)
    positions = road.of_type(model.REPORT).select(
        **{f: col(f) for f in PositionReport.__struct_fields__}, value=PositionReport
    )
    cars = positions.process(FollowCar, value=SegmentEntry, keeps_key=True, name="cars")
    accidents = accidents_of(cars.port("halts", value=Halt))
    tolls = notify(road, entries_with_statistics(positions, cars, accidents))
    answer_balances(road, tolls, cars.port("departures", value=ExitReport))
    answer_expenditures(road, former_tolls)
    return builder.build()


def at_end(record: Record[Windowed[K], V]) -> Record[K, V]:
    """The result of a window under its key, stamped with the window's end."""
    return Record(record.key.key, record.value, record.key.end_ms, record.headers)


def within_window(record: Record[Windowed[K], V]) -> Record[K, V]:
    """The result of a window under its key, stamped with the window's last millisecond."""
    return Record(record.key.key, record.value, record.key.end_ms - 1, record.headers)


def accidents_of(halts: KStream[str, Halt]) -> KStream[Segment, Ahead]:
    """``Ahead`` by segment, at the start of each minute in which it changes."""
    minutes = halts.group_by(struct(xway=col("xway"), dir=col("dir")), key=Road).windowed_by(tumbling("1m", grace=0))
    changes = minutes.aggregate(dict, change, value=dict, emission="on_close", name="halts-by-minute")
    by_minute = changes.to_stream().map_records(at_end, key=Road, keeps_key=True)
    return by_minute.process(FollowRoad, key=Segment, value=Ahead, name="accidents")


def entries_with_statistics(
    positions: KStream[str, PositionReport], entries: KStream[str, SegmentEntry], accidents: KStream[Segment, Ahead]
) -> KStream[Segment, SegmentEntry]:
    """Entries with all that their tolls depend on, by segment."""
    segment = struct(xway=col("xway"), dir=col("dir"), seg=col("seg"))
    minutes = positions.group_by(segment, key=Segment).windowed_by(tumbling("1m", grace=0))
    traffic = minutes.agg(
        cars=col("vid").count_distinct(),
        speed=coalesce(col("speed").sum(), lit(0)),
        reports=count(),
        value=Minute,
        emission="on_close",
        name="minutes",
    )
    # Per segment and minute one row goes into five windows, instead of every report.
    within = traffic.to_stream().map_records(within_window, key=Segment, keeps_key=True, name="minutes-within")
    five_minutes = within.group_by_key().windowed_by(hopping("5m", "1m", grace=0, before_epoch=True))
    reports = col("reports").sum()
    mean = (2 * col("speed").sum() + reports) // (2 * reports)
    speeds = five_minutes.aggregate(mean, emission="on_close", name="mean-speeds")
    entered = entries.select_key(segment, key=Segment)
    mean_speeds = speeds.to_stream().map_records(at_end, key=Segment, keeps_key=True)
    cars = traffic.to_stream().map_records(at_end, key=Segment, keeps_key=True)
    entered = entered.join_as_of(
        mean_speeds, _with_speed, tolerance=WITHIN_MINUTE, grace=0, left=True, name="entries-with-speed"
    )
    entered = entered.join_as_of(
        cars, _with_cars, tolerance=WITHIN_MINUTE, grace=0, left=True, name="entries-with-cars"
    )
    return entered.join_as_of(
        accidents, _with_accident, tolerance=HORIZON, grace=0, left=True, name="entries-with-accident"
    )


def _with_speed(entry: SegmentEntry, lav: int | None) -> SegmentEntry:
    return msgspec.structs.replace(entry, lav=lav or 0)


def _with_cars(entry: SegmentEntry, minute: Minute | None) -> SegmentEntry:
    return msgspec.structs.replace(entry, cars=0 if minute is None else minute.cars)


def _with_accident(entry: SegmentEntry, ahead: Ahead | None) -> SegmentEntry:
    return msgspec.structs.replace(entry, accident=ahead and ahead.seg)


def notify(road: LinearRoad, entries: KStream[Segment, SegmentEntry]) -> KStream[str, Charge]:
    """Notify cars of the toll of the segment that they enter and of an accident ahead. Returns the tolls as
    ``Charge``, under the car."""
    busy = (col("lav") < 40) & (col("cars") > 50) & col("accident").is_null()
    over = col("cars") - 50
    toll = when(busy).then(2 * over * over).otherwise(0)
    by_car = entries.select_key(col("vid").cast("string"), key=str)
    notices = by_car.select(type=lit(0), vid=col("vid"), time=col("time"), lav=col("lav"), toll=toll)
    road.answer(notices, "linear-road-tolls", model.TOLL)
    warned = by_car.filter_values(col("accident").is_not_null())
    place = {"xway": col("xway"), "seg": col("accident"), "dir": col("dir"), "vid": col("vid")}
    road.answer(warned.select(type=lit(1), time=col("time"), **place), "linear-road-accidents", model.ACCIDENT)
    return notices.filter_values(col("toll") > 0).select(col("time"), col("toll"), value=Charge)


def answer_balances(road: LinearRoad, tolls: KStream[str, Charge], departures: KStream[str, ExitReport]) -> None:
    """Charge tolls and answer balance requests. Tolls of one car come from many segments, in any order; they are
    summed per minute, and the minutes are in order. Requests go through a topic of their own: the watermark of the
    tolls comes from the reports, and requests must not hold it back."""
    owed = departures.repartition(name="linear-road-departures")
    charges = owed.join(
        tolls,
        struct(time=left("time"), toll=right("toll")),
        condition=left("entered") == right("time"),
        before=HORIZON,
        after=0,
        grace=0,
        value=Charge,
        name="charges",
    )
    minutes = charges.group_by_key().windowed_by(tumbling("1m", grace=0))
    by_minute = minutes.reduce(_both, emission="on_close", name="charges-by-minute")
    in_order = by_minute.to_stream().map_records(at_end, key=str, keeps_key=True)
    balances = in_order.group_by_key().reduce(_both, name="balances").to_stream()
    asked = road.of_type(model.BALANCE).repartition(name="linear-road-questions")
    answers = asked.join_as_of(
        balances, _balance, tolerance=HORIZON, grace=0, left=True, value=dict, name="balance-answers"
    )
    road.answer(answers, "linear-road-balances", model.BALANCE_ANSWER)


def _both(some: Charge, more: Charge) -> Charge:
    return Charge(max(some.time, more.time), some.toll + more.toll)


def _balance(question: dict[str, int], charged: Charge | None) -> dict[str, int]:
    at, toll = (0, 0) if charged is None else (charged.time, charged.toll)
    return {"type": 2, "time": question["time"], "result_time": at, "qid": question["qid"], "balance": toll}


def answer_expenditures(road: LinearRoad, former_tolls: str) -> None:
    """Look up what cars paid on former days."""
    table = road.builder.table(former_tolls, value=model.FORMER_TOLLS, bootstrap=True)
    parts = [part for f in ("vid", "day", "xway") for part in (lit("-"), col(f).cast("string"))][1:]
    asked = road.of_type(model.EXPENDITURE).select_key(concat(*parts), key=str)
    toll = coalesce(right("toll"), lit(0))
    answers = asked.left_join(table, struct(type=lit(3), time=left("time"), qid=left("qid"), toll=toll))
    road.answer(answers, "linear-road-expenditures", model.EXPENDITURE_ANSWER)

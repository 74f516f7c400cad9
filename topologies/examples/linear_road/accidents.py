"""Accidents on one direction of an expressway: at least two cars that have stopped at the same place of the same
lane.

Accidents are evaluated per minute, as they stand when it ends. A car that enters a segment in the next minute is
notified of the nearest accident in it or in the four segments ahead. Only the last action of each car in a minute
counts, so the result does not depend on how the reports of different cars are interleaved.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from penstock.state.log import Record
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import KeyValueStore, key_value_store
from penstock.topologies.examples.linear_road.model import SEGMENTS, Halt, Road, Segment
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext

REACH = 4
"""An accident affects its segment and this number of segments behind it."""
Stopped = dict[str, Any]
"""By car: the segment, lane and position where it has stopped; in changes also null, if the car has left."""


class Ahead(msgspec.Struct, frozen=True, gc=False):
    """The segment of the nearest accident, if there is one."""

    seg: int | None


def change(road: Road, halt: Halt, changes: Stopped) -> Stopped:
    """Add one change to those of a minute."""
    return {**changes, str(halt.vid): [halt.seg, halt.lane, halt.pos] if halt.stopped else None}


STOPPED_CARS: StoreSpec[KeyValueStore[Road, Stopped]] = key_value_store("linear-road-stopped", key=Road, value=dict)


class FollowRoad(Processor[Road, Stopped, Segment, Ahead]):
    """Takes the changes of each minute under the ``Road``, keeps a row of stopped cars per road, and forwards
    ``Ahead`` for each ``Segment`` whose answer has changed."""

    stores = (STOPPED_CARS,)

    def process(self, record: Record[Road, Stopped], ctx: ProcessorContext[Segment, Ahead]) -> None:
        """The changes of one minute."""
        road, roads = record.key, ctx.store(STOPPED_CARS)
        before = roads.get(road) or {}
        after = {vid: place for vid, place in (before | record.value).items() if place is not None}
        roads.put(road, after or None)
        was, now = accidents_ahead(before, road.dir), accidents_ahead(after, road.dir)
        for seg in sorted(was.keys() | now.keys()):
            if was.get(seg) != now.get(seg):
                ctx.forward(Segment(road.xway, road.dir, seg), Ahead(now.get(seg)))


def accidents_ahead(stopped: Stopped, direction: int) -> dict[int, int]:
    """For each segment with an accident ahead: the segment of the nearest one."""
    places = Counter(map(tuple, stopped.values()))
    accidents = sorted({seg for (seg, _, _), cars in places.items() if cars > 1})
    ahead: dict[int, int] = {}
    # the nearest is written last
    for seg in reversed(accidents) if direction == 0 else accidents:
        behind = range(seg - REACH, seg + 1) if direction == 0 else range(seg, seg + REACH + 1)
        ahead |= {s: seg for s in behind if 0 <= s < SEGMENTS}
    return ahead

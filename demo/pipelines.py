"""The two pipelines of the demo: a topology as a worker and Spark find it, its data, and what is asked of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from demo import events, flights
from demo.events import Events
from demo.flights import Flights
from demo.records import DataSet

PARTITIONS = 4
# The data are of the past, and brokers judge the age of records by the records' own time.
KEPT_FOR_EVER: Mapping[str, str] = {"retention.ms": "-1"}
# Only for a table of which the last row is all that is asked: of the weather, every hour's report is.
COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
# Below this many records one worker would read all of them while the other one starts: most of them come when both own
# partitions, and the second half at the kill.
SMALL = 300_000
# The longest that a worker takes.
WAITS: Mapping[str, int] = {"max_task_idle_ms": 3_600_000}
# A hundred seconds of events are a million; all of them must fit into the hour of grace that the topology gives.
EVENTS_MAX = 30_000_000


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """``topology``: ``module:function``. ``stream``: the topic whose records are counted; ``tables``: the topics beside
    it, with their settings. ``state``: the store whose updates are counted. ``updates_of``: how many updates an output
    value says that its key has had. ``small``: records must come while the workers read, for a kill to be halfway.
    ``settings``: what its workers need besides."""

    name: str
    title: str
    what: str
    topology: str
    data: DataSet
    stream: str
    tables: Mapping[str, Mapping[str, str]]
    output: str
    state: str
    updates_of: Callable[[Any], int]
    small: bool
    settings: Mapping[str, int]

    @property
    def application_id(self) -> str:
        """Also the group."""
        return f"demo-{self.name}"

    def parts(self) -> tuple[int, int, int]:
        """Where the stream's three parts end: what is there at the kill, what comes after the compaction, and what the
        restored worker goes on with."""
        size = self.data.size
        return size * 90 // 100, size * 95 // 100, size


def pipelines(count: int, now_ms: int) -> list[Pipeline]:
    """Both, the first with ``count`` events of the last minutes, the second with at most as many flights."""
    small = count < SMALL
    ended_ms = now_ms // events.WINDOW_MS * events.WINDOW_MS
    advertising = Events(count, ended_ms - -(-count // events.EVENTS_PER_MS // events.WINDOW_MS) * events.WINDOW_MS)
    return [
        Pipeline(
            "ysb",
            "Views per campaign",
            "Advertising events, as the Yahoo Streaming Benchmark has them, joined to campaigns by a table of ads; "
            "views are counted per campaign and 10 seconds.",
            "penstock.topologies.examples.ysb:build",
            advertising,
            events.EVENTS_TOPIC,
            {events.ADS_TOPIC: COMPACTED},
            events.OUTPUT_TOPIC,
            "windows",
            int,
            small,
            {},
        ),
        Pipeline(
            "flights",
            "Flights and weather",
            "Every flight that left New York's three airports in 2013, joined to the weather of its hour; delays are "
            "summed per airport and day.",
            "penstock.topologies.examples.flights:build",
            Flights(count, weather_first=small),
            flights.DEPARTURES_TOPIC,
            {flights.WEATHER_TOPIC: KEPT_FOR_EVER},
            flights.OUTPUT_TOPIC,
            "days",
            lambda day: int(day["flights"]),
            small,
            WAITS if small else {},
        ),
    ]

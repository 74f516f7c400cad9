"""Running and hourly counts per type of event."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import event_counts
from penstock.topologies.graph.topology import Topology

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def event(event_type: str, at_ms: int) -> Record:
    """An event as bytes, with a field that nobody reads."""
    return Record(b"user", b'{"page": [1, {"a": 2}], "event_type": "%s"}' % event_type.encode(), at_ms)


def window(event_type: str, hour: int) -> Windowed:
    """The key of an hourly count."""
    return Windowed(event_type, hour * HOUR_MS, (hour + 1) * HOUR_MS)


def test_both_counts_go_on_with_every_event(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """The hour is that of the event, also for one that comes late."""
    driver = drive(event_counts.build())
    times = [("view", 5), ("click", HOUR_MS - 1), ("view", HOUR_MS), ("view", HOUR_MS - 2)]
    driver.pipe_raw({"events": [event(t, at) for t, at in times]})
    assert [(r.key, r.value) for r in driver.read("event-counts")] == [
        ("view", 1),
        ("click", 1),
        ("view", 2),
        ("view", 3),
    ]
    assert driver.read("event-counts-hourly") == [
        Record(window("view", 0), 1, 5),
        Record(window("click", 0), 1, HOUR_MS - 1),
        Record(window("view", 1), 1, HOUR_MS),
        Record(window("view", 0), 2, HOUR_MS - 2),
    ]


def test_an_event_over_a_day_late_counts_in_the_running_count_alone(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    """The first hour closes when stream time reaches its end plus a day, not a millisecond before."""
    driver = drive(event_counts.build())
    closing_ms = HOUR_MS + DAY_MS
    driver.pipe_raw({"events": [event("view", t) for t in (0, closing_ms - 1, 1, closing_ms, 2)]})
    hourly = [(r.key.start_ms // HOUR_MS, r.value) for r in driver.read("event-counts-hourly")]
    assert hourly == [(0, 1), (24, 1), (0, 2), (25, 1)]
    assert dict(driver.store("running-counts").all()) == {"view": 5}

"""Runs queries of Nexmark on one stream of events in several ways, and writes results so that they can be compared."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from benchmarks.nexmark_generator import events, records
from penstock.state.log import Record, Windowed
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark.model import PERSON, NexmarkEvent, Person
from penstock.topologies.graph.topology import Topology

STREAM = {
    "event_rate": 24,
    "out_of_order_group_size": 72,
    "base_time_ms": 1_437_004_750_000,  # 50 s before midnight
    "channels": 30,
}
"""Events up to 3 s late, no two of one time, around midnight."""
COUNT = 2_400
EVENTS = list(events(COUNT, **STREAM))
RECORDS = list(records(COUNT, **STREAM))
LAST_MS = max(r.timestamp_ms for r in RECORDS)


def closing_record() -> Record:
    """A person who registers two hours later, by which all windows of the others close."""
    person = Person(1, "", "", "", "", "", LAST_MS + 7_200_000, "")
    return Record(None, msgspec.json.encode(NexmarkEvent(PERSON, person=person)), person.dateTime)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a query is run."""

    batch: int
    partitions: int = 1
    restarts: bool = False


WAYS = {
    "batches of 1": Way(1),
    "batches of 10,000": Way(10_000),
    "with a restart": Way(100, restarts=True),
    "three partitions": Way(1_000, partitions=3),
}
in_every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def run(
    topology: Topology, way: Way, *topics: str, before: dict[str, list[Record]] | None = None
) -> list[list[Record]]:
    """What the query writes to the topics; ``before``: what is there before the events. With a restart everything but the
    log is lost after half of them."""
    options = TaskOptions(batch_max_records=way.batch)
    with TopologyTestDriver(topology, options=options, partitions=way.partitions) as driver:
        for topic, some in (before or {}).items():
            driver.pipe_raw({topic: some})
        driver.pipe_raw({"nexmark": RECORDS[: COUNT // 2]})
        if way.restarts:
            driver.restart(restore=True)
        driver.pipe_raw({"nexmark": RECORDS[COUNT // 2 :]})
        for partition in range(way.partitions):
            driver.pipe_raw({"nexmark": [closing_record()]}, partition=partition)
        assert not driver.dropped_records
        return [driver.read(topic) for topic in topics]


def text(value: Any) -> str:
    """A value as text that is equal for equal values, whether dicts or Structs."""
    return msgspec.json.encode(value, order="sorted").decode()


def bag(values: list[Any]) -> Counter[str]:
    """Values and how often each is there."""
    return Counter(map(text, values))


def table(written: list[Record]) -> dict[str, str]:
    """The last value by key."""
    last: dict[str, str] = {}
    for r in written:
        key = _key_text(r.key)
        last.pop(key, None)
        if r.value is not None:
            last[key] = text(r.value)
    return last


def expected_table(rows: dict[Any, Any]) -> dict[str, str]:
    """The oracle's table, written alike."""
    return {_key_text(key): text(value) for key, value in rows.items()}


def _key_text(key: Any) -> str:
    if isinstance(key, Windowed):
        return text([key.key, key.start_ms, key.end_ms])
    return text(sorted(key.items()) if isinstance(key, dict) else key)


def check_bag(query: Callable[[], Topology], meaning: Callable[[list[NexmarkEvent]], list[Any]], way: Way) -> None:
    """A query that adds rows adds those of the oracle, and there are some."""
    topology = query()
    (written,) = run(topology, way, topology.name)
    expected = bag(meaning(EVENTS))
    assert expected
    assert bag([r.value for r in written]) == expected


def check_table(
    query: Callable[[], Topology], meaning: Callable[[list[NexmarkEvent]], dict[Any, Any]], way: Way
) -> None:
    """A query that updates rows ends with those of the oracle, and there are some."""
    topology = query()
    (written,) = run(topology, way, topology.name)
    expected = expected_table(meaning(EVENTS))
    assert expected
    assert table(written) == expected

"""Event time made from records: what it moves, and what happens where it cannot be made."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import ProcessingError
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import tumbling


def at(record: Record) -> Any:
    """The field ``at``; raises ``KeyError`` without it."""
    return record.value["at"]


def driver(**policies: Any) -> TopologyTestDriver:
    """Counts per key in windows of 10 ms without grace, by the field ``at``; and writes the records on."""
    builder = StreamsBuilder()
    stream = builder.stream("in", timestamp=at)
    stream.to("out")
    stream.group_by_key().windowed_by(tumbling(10, grace=0), retention="1h").count(name="counts")
    return TopologyTestDriver(builder, options=TaskOptions(policies=Policies(**policies)))


def test_windows_and_outputs_go_by_it() -> None:
    """Lateness too: the log's times are the other way round."""
    with driver() as running:
        running.pipe_all("in", [Record("a", {"at": t}, 100 - t) for t in (5, 25, 6)])
        assert [r.timestamp_ms for r in running.read("out")] == [5, 25, 6]
        assert list(running.store("counts").all()) == [("a", 0, 1), ("a", 20, 1)]


def test_inputs_are_ordered_by_it() -> None:
    """Of two topics, the record with the lower event time comes first."""
    builder = StreamsBuilder()
    builder.stream("left", timestamp=at).merge(builder.stream("right", timestamp=at)).to("out")
    with TopologyTestDriver(builder) as running:
        running.pipe_raw({"left": [Record(None, b'{"at":9}', 1)], "right": [Record(None, b'{"at":8}', 2)]})
        assert [r.value["at"] for r in running.read("out")] == [8, 9]


@pytest.mark.parametrize("value", [{}, {"at": "noon"}, {"at": 1.5}, {"at": True}, {"at": -1}])
def test_a_time_that_cannot_be_made_stops_the_task(value: dict[str, Any]) -> None:
    """A function that raises, and anything but whole milliseconds from 0 on."""
    with pytest.raises(ProcessingError, match=r"topic in, partition 0, offset 1.*timestamp"):
        driver().pipe_all("in", [Record("a", {"at": 1}), Record("a", value)])


def test_policies_apply() -> None:
    """``skip`` leaves the record out; ``clamp`` goes on with the log's time; bad bytes meet their own
    policy."""
    records = [Record("a", {"at": 1}, 7), Record("a", {}, 7), Record("a", {"at": 3}, 7)]
    with driver(timestamp="skip") as running:
        running.pipe_all("in", records)
        assert [r.timestamp_ms for r in running.read("out")] == [1, 3]
    with driver(timestamp="clamp") as running:
        running.pipe_all("in", records)
        assert [r.timestamp_ms for r in running.read("out")] == [1, 7, 3]
    with driver(deserialization="skip") as running:
        running.pipe_raw({"in": [Record(b"a", b"{", 7), Record(b"a", b'{"at":2}', 7)]})
        assert [r.timestamp_ms for r in running.read("out")] == [2]

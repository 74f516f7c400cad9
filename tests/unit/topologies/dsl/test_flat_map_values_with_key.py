"""Values made of key and value keep the key, and the partition."""

from __future__ import annotations

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_values_of_key_and_value(size: int) -> None:
    b = StreamsBuilder(key=str, value=str)
    b.stream("in").flat_map_values_with_key(lambda k, v: (f"{k}{c}" for c in v)).group_by_key().count().to("out")
    topology = b.build()
    assert len(topology.subtopologies) == 1, "the key stays, so that nothing is repartitioned"
    with TopologyTestDriver(topology, options=TaskOptions(batch_max_records=size)) as driver:
        driver.pipe_all("in", [Record("a", "xy", 1), Record("b", "", 2), Record("b", "z", 3)])
        assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == [("a", 1, 1), ("a", 2, 1), ("b", 1, 3)]

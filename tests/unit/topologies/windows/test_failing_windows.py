"""A record whose function fails for one of its windows goes into none of them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import HoppingWindows


def counted() -> Topology:
    """Counts by window, in dicts; the first of a window that is "bad" there cannot be written."""

    def add(key: str, value: str, acc: dict[str, Any]) -> dict[str, Any]:
        return {"n": acc["n"] + 1} if acc["n"] or value != "bad" else {"n": {value}}

    builder = StreamsBuilder(key=str, value=str)
    windows = builder.stream("in").group_by_key().windowed_by(HoppingWindows(20, 10))
    windows.aggregate(lambda: {"n": 0}, add, value=dict, name="counts").to_stream().to("out")
    return builder.build()


def stored(driver: TopologyTestDriver) -> list[tuple[bytes, bytes]]:
    (task,) = driver.tasks.values()
    return list(task.backend.range("counts", None, None))


@pytest.mark.parametrize("batch", [1, 10])
def test_a_skipped_record_leaves_no_time_in_the_changelog(batch: int) -> None:
    policies = Policies(processing="skip", deserialization="skip")
    options = TaskOptions(policies=policies, batch_max_records=batch)
    with TopologyTestDriver(counted(), options=options, auto_commit=False) as driver:
        driver.pipe("in", "k", "good", 5)
        driver.pipe("in", "k", "bad", 15)
        driver.commit()
        before = stored(driver)
        assert before == [((0).to_bytes(8, "big") + b"k", (5).to_bytes(8, "big") + b'{"n":1}')]
        driver.restart(restore=True)
        assert stored(driver) == before
        assert [r.timestamp_ms for r in driver.read("out")] == [5]

"""A partition pauses while plenty of it is buffered, in records or in bytes, and everything is processed all the same."""

from __future__ import annotations

from collections import Counter

from penstock.streams.runtime.memory_budget import BUFFERED_MAX_BYTES
from tests.simulation.programs import clicks_world
from tests.simulation.world import Row


def held(buffered_max_bytes: int) -> tuple[Counter[Row], int]:
    """What came out, and the most records of a partition that were buffered at the end of a turn."""
    world = clicks_world("at_least_once", count=400, buffered_max_bytes=buffered_max_bytes)
    node = world.node("a")
    most = 0
    for _ in range(600):
        node.turn()
        tasks = node.runtime.tasks.values()
        most = max([most, *(task.feed.buffered(topic) for task in tasks for topic in task.topics)])
    world.settle(node)
    return world.rows("counted"), most


def test_bytes_pause_a_partition_as_records_do() -> None:
    roomy, many = held(BUFFERED_MAX_BYTES)
    tight, few = held(1)
    assert tight == roomy and sum(tight.values()) > 100
    assert few < many

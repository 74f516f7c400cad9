"""A join is restored whose buffer's changelog has expired, while that of what waits for partners has not."""

from __future__ import annotations

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.testing.memory_log import LogEntry
from tests.simulation.world import World

LEFT, RIGHT = TopicPartition("l", 0), TopicPartition("r", 0)


def test_what_was_lost_is_counted_and_the_rest_goes_on() -> None:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("l").left_join(builder.stream("r"), lambda a, b: f"{a}-{b}", within=1_000, grace=0, name="join").to(
        "out"
    )
    world = World(builder.build(), "exactly_once", partitions=1, inputs=["l", "r"], outputs=["out"])
    node = world.node("a")
    world.log.append(LEFT, LogEntry(b"k", b"A", 1_000))
    world.settle(node)
    node.stop()
    buffer = world.log.partition(TopicPartition("app-join-left-changelog", 0))
    buffer.delete_before(buffer.last_stable)
    node = world.node("b")
    world.log.append(LEFT, LogEntry(b"k", b"B", 1_500))
    world.log.append(RIGHT, LogEntry(b"z", b"R", 9_000))
    world.log.append(LEFT, LogEntry(b"z", b"L", 9_000))
    world.settle(node)
    assert sorted(world.rows("out").elements()) == [(b"k", b"B-None"), (b"z", b"L-R")]
    (task,) = node.runtime.tasks.values()
    assert task.dropped == {"join.expired": 1}

"""A partition that begins with a time far ahead: the policy is kept, also by whoever reads it again later."""

from __future__ import annotations

import pytest

from penstock.state.log import TopicPartition
from penstock.streams.task import commit_metadata
from penstock.streams.task.error_policies import Policies, TimestampErrorPolicy
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.examples import celsius
from tests.simulation.world import APP, World

FAR_MS = 2**62
CLOCK_MS = 10_000_000
HOUR_MS = 3_600_000


def world_of(policy: TimestampErrorPolicy) -> World:
    policies = Policies(timestamp=policy, dead_letter_topic="dead")
    topology = celsius.build("in", "out")
    return World(
        topology, "exactly_once", partitions=1, inputs=["in"], outputs=["out", "dead"], policies=policies, live=True
    )


@pytest.mark.parametrize("policy", ["clamp", "skip", "dead_letter"])
def test_no_output_bears_the_time_that_the_policy_refuses(policy: TimestampErrorPolicy) -> None:
    world = world_of(policy)
    for n, at in enumerate([FAR_MS, CLOCK_MS + 10, CLOCK_MS + 2 * HOUR_MS, CLOCK_MS + 20]):
        world.log.append(TopicPartition("in", 0), LogEntry(b"k", str(n).encode(), at))
    world.settle(world.node("a"))
    times = [e.timestamp_ms for _, _, e in world.log.read("out")]
    assert times == (
        [0, CLOCK_MS + 10, CLOCK_MS + 10, CLOCK_MS + 20] if policy == "clamp" else [CLOCK_MS + 10, CLOCK_MS + 20]
    )
    assert len(list(world.log.read("dead"))) == (2 if policy == "dead_letter" else 0)


def test_a_restart_and_a_replay_decide_by_the_same_clock() -> None:
    """The first record is refused and committed; the next comes when the clock has gone far beyond what it says."""
    world = world_of("skip")
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"0", FAR_MS))
    node = world.node("a")
    world.settle(node)
    node.stop()
    world.log.advance(10 * HOUR_MS)
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"1", CLOCK_MS + 5 * HOUR_MS))
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"2", CLOCK_MS))
    world.settle(world.node("a"))
    assert [e.timestamp_ms for _, _, e in world.log.read("out")] == [CLOCK_MS]
    noted = commit_metadata.decode(world.log.group(APP).offsets[TopicPartition("in", 0)].metadata)
    assert CLOCK_MS <= noted.began_ms < CLOCK_MS + HOUR_MS


def test_fail_commits_no_clock() -> None:
    world = world_of("fail")
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"0", CLOCK_MS))
    world.settle(world.node("a"))
    committed = world.log.group(APP).offsets[TopicPartition("in", 0)].metadata
    assert '"n"' not in committed

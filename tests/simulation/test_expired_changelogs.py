"""Changelogs of windows shrink as their stores do, and hold all that a restore needs, however old the events are."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic, expires
from penstock.streams.runtime.topic_setup import prepare_topics
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World

STEPS = 60
ROUND = 8


def counted(windows: Any) -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    stream = builder.stream("in", value=str)
    counts = stream.group_by_key().windowed_by(windows).count(name="counts")
    counts.to_stream(lambda w, n: f"{w.key}@{w.start_ms}-{w.end_ms}", key=str).to("out", value=int)
    return builder.build()


def joined() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    stream = builder.stream("in")
    left, right = stream.filter(lambda key, value: value < "5"), stream.filter(lambda key, value: value >= "5")
    left.left_join(right, lambda a, b: f"{a}-{b}", within=2_000, grace=500, name="join").to("out")
    return builder.build()


TOPOLOGIES = {
    "tumbling": lambda: counted(ps.tumbling("2s", grace="1s")),
    "hopping": lambda: counted(ps.hopping("4s", "2s", grace="1s")),
    "session": lambda: counted(ps.session("1s", grace="1s")),
    "sliding": lambda: counted(ps.sliding("2s", grace="1s")),
    "join": joined,
}


def run(name: str, seed: int, *, disturbed: bool) -> tuple[World, Counter[Any]]:
    """Events of long ago; now and then the worker is gone, and another host begins without local state."""
    rng = random.Random(seed)
    topology = TOPOLOGIES[name]()
    world = World(topology, "exactly_once", partitions=1, inputs=["in"], outputs=["out"], seed=seed)
    node, hosts = world.node("a"), 0
    for step in range(STEPS):
        for n in range(ROUND):
            at = step * 700 + rng.randint(-600, 600)
            key = f"k{rng.randint(0, 3)}".encode()
            value = f"{rng.randint(0, 9)}:{step}.{n}"
            world.log.append(TopicPartition("in", 0), LogEntry(key, value.encode(), max(at, 0)))
        leaves, crashes, turns = rng.random() < 0.3, rng.random() < 0.5, rng.randint(1, 12)
        if disturbed and leaves:
            for _ in range(turns):
                node.turn()
            if crashes:
                node.crash()
            else:
                node.stop()
            hosts += 1
            world.log.advance(60_000)
            node = world.node(f"host-{hosts}")
        world.settle(node)
    return world, world.rows("out")


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
@pytest.mark.parametrize("seed", range(3))
def test_hosts_without_state_go_on_exactly_from_what_is_left(name: str, seed: int) -> None:
    whole = run(name, seed, disturbed=False)[1]
    world, rows = run(name, seed, disturbed=True)
    assert rows == whole
    logs = [
        world.log.partition(TopicPartition(changelog_topic(APP, s), 0)) for s in world.topology.stores if expires(s)
    ]
    assert logs
    assert max(log.first / log.last_stable for log in logs) > 0.3, "much of it is needed no more"


def test_changelogs_with_a_retention_are_kept_for_ever_from_the_next_start_on() -> None:
    world, _ = run("tumbling", 1, disturbed=False)
    topic = f"{APP}-counts-changelog"
    spec = world.log.topic(topic).spec
    assert spec.config["retention.ms"] == "-1"
    admin = MemoryAdmin(world.log)
    admin.set_topic_config(topic, {"retention.ms": "90000000"})
    prepare_topics(world.topology, APP, admin)
    assert world.log.topic(topic).spec.config["retention.ms"] == "-1"

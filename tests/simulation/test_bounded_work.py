"""A bounded piece of an application's work: up to its stops and no further, exactly once wherever it is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

import pytest

from penstock.state.log import TopicPartition
from penstock.streams.events.measurements import CommitStep
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.work_bounds import WorkBounds
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import keyed_count
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, Disk, Node, World

COUNT = 60
KEYS = 4
PARTITIONS = 2
ALL = tuple(range(PARTITIONS))


def a_world(topology: Topology | None = None) -> World:
    world = World(
        topology or keyed_count.build("in", "out"),
        "exactly_once",
        partitions=PARTITIONS,
        inputs=["in"],
        outputs=["out"],
    )
    world.write("in", [(b"k%d" % (i % KEYS), b"v", i) for i in range(COUNT)])
    return world


def half(world: World) -> dict[TopicPartition, int]:
    """Stops in the middle of every input partition."""
    return {tp: world.log.partition(tp).last_stable // 2 for tp in (TopicPartition("in", p) for p in ALL)}


def finish(node: Node) -> None:
    """Turn until the bounds are reached, as a worker's loop does."""
    assert node.bounds is not None
    for _ in range(3_000):
        if not node.turn() and node.bounds.reached(node.runtime.tasks.values()):
            node.stop()
            return
    raise AssertionError("the stops were not reached")


def committed(world: World) -> dict[TopicPartition, int]:
    found = world.node("reader", Disk(), fixed=()).runtime.consumer.committed([TopicPartition("in", p) for p in ALL])
    return {tp: c.offset for tp, c in found.items() if c is not None}


def updates(stops: Mapping[TopicPartition, int], world: World) -> Counter[tuple[bytes | None, bytes | None]]:
    """Every update of the counts of the records before the stops."""
    seen: Counter[bytes | None] = Counter()
    out: Counter[tuple[bytes | None, bytes | None]] = Counter()
    for tp, offset, entry in world.log.read("in"):
        if offset < stops[tp]:
            seen[entry.key] += 1
            out[entry.key, seen[entry.key].to_bytes(8, "big")] += 1
    return out


@pytest.mark.parametrize("step", get_args(CommitStep))
@pytest.mark.parametrize("nth", [1, 2])
def test_records_up_to_the_stops_are_done_once_wherever_a_piece_is_killed(step: CommitStep, nth: int) -> None:
    world = a_world()
    bounds = WorkBounds(frozenset([0]), half(world))
    first = world.node("a", fixed=ALL, bounds=bounds)
    first.crash_at(step, nth)
    first.run_until_crash()
    first.crash()
    world.write("in", [(b"k0", b"late", COUNT + i) for i in range(10)])
    finish(world.node("b", Disk(), fixed=ALL, bounds=bounds))
    assert committed(world) == bounds.stops
    assert world.rows("out") == updates(bounds.stops, world)

    # A worker goes on at the very offsets.
    ends = {tp: world.log.partition(tp).last_stable for tp in bounds.stops}
    member = world.node("c", Disk())
    world.settle(member)
    assert world.rows("out") == updates(ends, world)


def test_a_piece_whose_stops_are_reached_already_does_nothing() -> None:
    world = a_world()
    bounds = WorkBounds(frozenset([0]), half(world))
    finish(world.node("a", fixed=ALL, bounds=bounds))
    before = world.rows("out")
    again = world.node("b", Disk(), fixed=ALL, bounds=bounds)
    finish(again)
    assert world.rows("out") == before and again.runtime.records == 0


def two_levels() -> Topology:
    b = StreamsBuilder("levels", key=bytes, value=bytes)
    moved = b.stream("in").select_key(lambda k, v: b"all")
    moved.group_by_key().count(name="counts").to_stream().to("out")
    return b.build()


def test_only_the_sub_topologies_of_the_bounds_are_run() -> None:
    world = a_world(two_levels())
    stops = half(world)
    finish(world.node("a", fixed=ALL, bounds=WorkBounds(frozenset([0]), stops)))
    (internal,) = (t for t in world.topology.source_topics(APP) if t != "in")
    assert not world.rows("out") and sum(world.rows(internal).values()) == sum(stops.values())
    ends = {TopicPartition(internal, p): world.log.partition(TopicPartition(internal, p)).last_stable for p in ALL}
    finish(world.node("b", fixed=ALL, bounds=WorkBounds(frozenset([1]), ends)))
    assert sum(world.rows("out").values()) == sum(stops.values())


def test_outputs_go_to_another_topic_or_nowhere_and_changelogs_stay() -> None:
    world = a_world()
    stops = half(world)
    world.log.create(TopicSpec("aside", PARTITIONS))
    finish(world.node("a", fixed=ALL, bounds=WorkBounds(frozenset([0]), stops, {"out": "aside"})))
    assert not world.rows("out") and world.rows("aside") == updates(stops, world)
    ends = {tp: world.log.partition(tp).last_stable for tp in stops}
    finish(world.node("b", Disk(), fixed=ALL, bounds=WorkBounds(frozenset([0]), ends, {"out": None})))
    assert not world.rows("out") and world.rows("aside") == updates(stops, world)
    # The state has all of it: the next update goes on counting.
    world.write("in", [(b"k1", b"v", COUNT)])
    world.settle(world.node("c", Disk()))
    assert list(world.rows("out")) == [(b"k1", (COUNT // KEYS + 1).to_bytes(8, "big"))]

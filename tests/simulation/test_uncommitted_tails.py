"""At-least-once: what a dead worker wrote behind the last commit takes nothing that was committed with it, although brokers
clean changelogs by key and know nothing of commits."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.state.recovery.changelog import GUARD_KEY, TAIL_KEPT_MS
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import keyed_count
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import session, tumbling
from tests.simulation.world import APP, POLL_INTERVAL_MS, Disk, SimClock, World

CHANGELOG = f"{APP}-counts-changelog"


def windowed(kind: str) -> Topology:
    builder = StreamsBuilder(kind, key=str, value=str)
    windows = tumbling("1h", grace="1h") if kind == "window" else session("1h", grace="1h")
    counts = builder.stream("in").group_by_key().windowed_by(windows).count(name="counts")
    counts.to_stream(lambda w, n: w.key, key=str).to("out", value=int)
    return builder.build()


def a_world(kind: str) -> World:
    topology = keyed_count.build("in", "out") if kind == "key_value" else windowed(kind)
    return World(topology, "at_least_once", partitions=1, inputs=["in"], outputs=["out"])


def write(world: World, count: int, at_ms: int) -> None:
    world.write("in", [(b"k%d" % (i % 4), b"v", at_ms + i) for i in range(count)])


def dead_with_a_tail(world: World, at_ms: int) -> None:
    """A worker commits, and is killed before another commit whose changes are in the changelog already."""
    first = world.node("a")
    write(world, 40, at_ms)
    world.settle(first)
    write(world, 20, at_ms)
    first.crash_at("flushed", 1)
    first.run_until_crash()
    world.log.advance(POLL_INTERVAL_MS + 1)


@pytest.mark.parametrize("kind", ["key_value", "window", "session"])
@pytest.mark.parametrize("old", [True, False])
def test_cleaning_by_key_takes_no_committed_value(kind: str, old: bool) -> None:
    """Brokers judge by the records' own time, in which events may be years old."""
    world = a_world(kind)
    clock = SimClock(world.log)
    dead_with_a_tail(world, 0 if old else clock.now_ms())
    world.log.compact(CHANGELOG, clock.now_ms())
    second = world.node("b", Disk())
    world.settle(second)
    (store,) = world.stores(second).values()
    counts = Counter(e.key for _, _, e in world.log.read("in"))
    assert sorted(int.from_bytes(v[8:], "big") for v in store.values()) == sorted(counts.values())


def test_without_the_lag_it_would() -> None:
    world = a_world("key_value")
    dead_with_a_tail(world, 0)
    world.log.compact(CHANGELOG, SimClock(world.log).now_ms() + 2 * TAIL_KEPT_MS)
    second = world.node("b", Disk())
    world.settle(second)
    (store,) = world.stores(second).values()
    assert sum(int.from_bytes(v[8:], "big") for v in store.values()) < 60, "the model's cleaner takes nothing"


@pytest.mark.parametrize("old", [True, False])
def test_guards_are_written_for_old_events_only(old: bool) -> None:
    world = a_world("key_value")
    write(world, 10, 0 if old else SimClock(world.log).now_ms())
    world.settle(world.node("a"))
    guards = [e.value for _, _, e in world.log.read(CHANGELOG) if e.key == GUARD_KEY]
    assert guards == ([None] * len(guards) if old else [])
    assert bool(guards) == old


def test_exactly_once_has_no_guards() -> None:
    world = World(keyed_count.build("in", "out"), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    write(world, 10, 0)
    world.settle(world.node("a"))
    assert GUARD_KEY not in [e.key for _, _, e in world.log.read(CHANGELOG)]
    assert "min.compaction.lag.ms" not in world.log.topic(CHANGELOG).spec.config

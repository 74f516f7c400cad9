"""At-least-once: what a dead worker wrote behind the last commit takes nothing that was committed with it, although brokers
clean changelogs by key and know nothing of commits."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.state.errors import RetriableError
from penstock.state.log import Record
from penstock.state.recovery.changelog import GUARD_KEY, TAIL_KEPT_MS
from penstock.state.stores.typed_stores import key_value_store
from penstock.streams.events.measurements import CommitStep
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import keyed_count
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
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


@pytest.mark.parametrize("disk", ["same", "fresh"])
@pytest.mark.parametrize("step", ["sent", "flushed"])
def test_worker_that_dies_in_its_first_commit_leaves_no_state(step: CommitStep, disk: str) -> None:
    """Nothing was ever committed, so nothing in the changelog is: its records are counted once, by the next one."""
    world = a_world("key_value")
    write(world, 40, 0)
    first = world.node("a")
    first.crash_at(step, 1)
    first.run_until_crash()
    world.log.advance(POLL_INTERVAL_MS + 1)
    second = world.node("b", first.disk if disk == "same" else Disk())
    world.settle(second)
    (store,) = world.stores(second).values()
    assert {int.from_bytes(v[8:], "big") for v in store.values()} == {10}


TWO = tuple(key_value_store(name, key=str, value=int) for name in ("first", "second"))


class Two(Processor[str, str, str, int]):
    """Counts in the second store what comes with that value, else in the first one."""

    stores = TWO

    def process(self, record: Record[str, str], ctx: ProcessorContext[str, int]) -> None:
        store = ctx.store(next(s for s in TWO if s.name == record.value))
        store.put(record.key, (store.get(record.key) or 0) + 1)


@pytest.mark.parametrize("lost", [0, 1])
def test_commit_that_writes_a_store_for_the_first_time_leaves_no_state(lost: int) -> None:
    """The last commit named no end of that store's changelog. ``lost``: the answer to the first question, too."""
    builder = StreamsBuilder("two", key=str, value=str)
    builder.stream("in").process(Two, name="two").to("out", value=int)
    world = World(builder.build(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    first = world.node("a")
    if lost:
        world.log.fault("consumer_commit_after", 1, RetriableError("no answer"))
    for name, count in (("first", 5), ("second", 7)):
        world.write("in", [(b"k", name.encode(), n) for n in range(count)])
        if name == "first":
            world.settle(first)
    first.crash_at("flushed", 1)
    first.run_until_crash()
    world.log.advance(POLL_INTERVAL_MS + 1)
    second = world.node("b", Disk())
    world.settle(second)
    held = {name: int.from_bytes(store[b"k"][8:], "big") for (_, name), store in world.stores(second).items()}
    assert held == {"first": 5, "second": 7}


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

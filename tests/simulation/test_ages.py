"""Deletions that the changelog has dropped: a store that may have missed them is restored from the begin."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import POLL_INTERVAL_MS, TURN_MS, Disk, Node, World

CHANGELOG = "app-table-changelog"
RETENTION_MS = 60_000
"""For which the changelog keeps deletions."""


def asked_table() -> Topology:
    builder = StreamsBuilder("t", key=str, value=str)
    table = builder.stream("rows").to_table(name="table")
    builder.stream("asks").join(table, lambda ask, row: f"{ask}:{row}").to("out")
    return builder.build()


def a_world(guarantee: str = "exactly_once", late_polls: int = 5) -> World:
    world = World(
        asked_table(),
        guarantee,  # type: ignore[arg-type]  # one of them
        partitions=1,
        inputs=["rows", "asks"],
        outputs=["out"],
        late_polls=late_polls,
    )
    topic = world.log.topic(CHANGELOG)
    topic.spec = dataclasses.replace(topic.spec, config={**topic.spec.config, "delete.retention.ms": str(RETENTION_MS)})
    return world


def turns(count: int, *nodes: Node) -> None:
    for _ in range(count):
        for node in nodes:
            node.turn()


def asked(world: World, key: bytes, *nodes: Node) -> list[bytes | None]:
    """What the answers to a question are."""
    before = len(world.log.read("out"))
    world.write("asks", [(key, b"q", 1_000)])
    world.settle(*nodes)
    return [e.value for _, _, e in world.log.read("out")[before:]]


def test_key_that_was_deleted_while_an_idle_worker_was_frozen_stays_deleted() -> None:
    world = a_world()
    first = world.node("a")
    world.write("rows", [(b"dead", b"alive", 1), (b"other", b"alive", 2)])
    world.settle(first)
    turns(60, first)
    world.log.advance(POLL_INTERVAL_MS + 1)
    second = world.node("b", Disk())
    world.settle(second)
    world.write("rows", [(b"dead", None, 3)])
    world.settle(second)
    world.log.compact(CHANGELOG)
    turns(2 * RETENTION_MS // TURN_MS, second)
    world.log.compact(CHANGELOG)
    world.write("rows", [(b"more", b"alive", 4)])
    world.settle(second)
    turns(20, first, second)
    second.stop()
    world.settle(first)
    assert asked(world, b"other", first) == [b"q:alive"]
    assert asked(world, b"dead", first) == []


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_idle_stores_are_proved_young_by_asking_the_log(guarantee: str) -> None:
    """An owner that has long been idle still knows that nobody else has written meanwhile."""
    world = a_world(guarantee, late_polls=0)
    disk = Disk()
    first = world.node("a", disk)
    world.write("rows", [(b"k", b"v", 1), (b"l", b"v", 2)])
    world.settle(first)
    turns(2 * RETENTION_MS // TURN_MS, first)
    first.crash()
    second = world.node("b", Disk())
    world.write("rows", [(b"k", None, 3)])
    world.settle(second)
    second.stop()
    third = world.node("a", disk)
    world.settle(third)
    assert any("stands at offset" in said and not said.endswith(" 0 before its end") for said in third.restoring.said)
    assert asked(world, b"k", third) == []
    assert asked(world, b"l", third) == [b"q:v"]

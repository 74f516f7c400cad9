"""A task with two inputs that arrive as they like, killed and started again, is reproduced by the log and its journal."""

from __future__ import annotations

import random

import orjson
import pytest

from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import journal
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from tests.simulation.programs import clicks_per_region
from tests.simulation.world import APP, Crash, Node, World

Written = list[tuple[bytes | None, bytes | None, int]]
INPUTS = ("users", "clicks")


def some_rows(rng: random.Random, topic: str, now_ms: int) -> Written:
    """A few records whose times wander."""
    rows: Written = []
    for _ in range(rng.randint(0, 4)):
        value = {"r": rng.choice("xyz")} if topic == "users" else {"n": rng.randint(0, 99)}
        rows.append((b"u%d" % rng.randrange(3), orjson.dumps(value), max(now_ms + rng.randint(-60, 60), 0)))
    return rows


def live(seed: int) -> tuple[World, Node]:
    """Inputs written while it runs; crashes at random steps of the commit."""
    rng = random.Random(seed)
    world = World(
        clicks_per_region(), "exactly_once", partitions=1, inputs=INPUTS, outputs=["joined", "counted"], seed=seed
    )
    node = world.node("a")
    for now_ms in range(0, 3_000, 20):
        for topic in INPUTS:
            if rng.random() < 0.5:
                world.write(topic, some_rows(rng, topic, now_ms))
        if rng.random() < 0.04:
            node.crash_at(rng.choice(["begun", "sent", "flushed", "committed", "stores_written"]), 1)
        try:
            node.turn()
        except Crash:
            node.crash(lose_unflushed=rng.random() < 0.5)
            node = world.node("a", node.disk)
    node.on_step = lambda step: None
    world.settle(node)
    return world, node


def replayed(world: World, entries: list[journal.JournalEntry], batch: int) -> Written:
    """What a task makes of the whole input, in the order that the journal tells."""
    sub = world.topology.subtopologies[0]
    task = Task(
        TaskId(0, 0),
        APP,
        world.topology,
        sub,
        MemoryBackend(sub.stores),
        {t: (0, CommitMetadata()) for t in INPUTS},
        TaskOptions(batch_max_records=batch),
        world.layout.topics,
        entries,
    )
    for topic in INPUTS:
        log = world.log.partition(TopicPartition(topic, 0))
        rows = list(log.committed(0))
        task.add(
            Chunk(
                topic,
                0,
                [o for o, _ in rows],
                [e.key for _, e in rows],
                [e.value for _, e in rows],
                [e.timestamp_ms for _, e in rows],
            ),
            log.end,
        )
        task.feed.set_end(topic, log.end)
    out: Written = []
    while task.process():
        for o in task.take_outputs():
            if o.topic == "joined":
                out += zip(o.keys, o.values, o.timestamps, strict=True)
    return out


@pytest.mark.parametrize("seed", range(8))
def test_live_order_is_reproduced_by_the_journal(seed: int) -> None:
    print(f"seed {seed}")
    world, _ = live(seed)
    written = [(e.key, e.value, e.timestamp_ms) for _, _, e in world.log.read("joined")]
    entries = world.journal_of(0, 0)
    assert len(written) == world.log.partition(TopicPartition("clicks", 0)).end
    assert entries
    for batch in (1, 7, 10_000):
        assert replayed(world, entries, batch) == written
    assert replayed(world, [], 100) != written, "the journal is needed, or this test proves nothing"

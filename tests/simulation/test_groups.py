"""What the group says, and what workers of one group or of fixed partitions make of it."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from penstock.state.errors import PenstockError, TaskMigratedError
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.task import commit_metadata
from penstock.streams.testing.memory_producer import MemoryProducer
from tests.simulation.programs import clicks_world, stateless_world
from tests.simulation.world import APP, POLL_INTERVAL_MS, Disk, Node, World

OUTPUTS = ("joined", "counted")
PARTITIONS = 4
COUNT = 160


@cache
def undisturbed() -> tuple[dict[str, Counter[Any]], dict[tuple[TaskId, str], dict[bytes, bytes]]]:
    world = a_world()
    node = world.node("a")
    world.settle(node)
    return {t: world.rows(t) for t in OUTPUTS}, world.stores(node)


def a_world(guarantee: str = "exactly_once", seed: int = 1) -> World:
    world = clicks_world(guarantee, count=COUNT, partitions=PARTITIONS)
    world.rng.seed(seed)
    return world


def assert_equal(world: World, *nodes: Node) -> None:
    outputs, stores = undisturbed()
    assert {t: world.rows(t) for t in OUTPUTS} == outputs
    assert world.stores(*nodes) == stores


def committed_records(world: World) -> int:
    """How many records the committed positions of the clicks stand for."""
    offsets = world.log.group(APP).offsets
    return sum(offsets[tp].offset for tp in offsets if tp.topic == "clicks")


def with_work(world: World, node: Node) -> int:
    """Turn until there is work that is not committed; returns how many records are."""
    while not any(t.uncommitted_records for t in node.runtime.tasks.values()) or not committed_records(world):
        node.turn()
    return committed_records(world)


def test_revoke_commits_before_the_tasks_are_given_up() -> None:
    world = a_world()
    first = world.node("a")
    before = with_work(world, first)
    second = world.node("b")
    seen = len(first.steps)
    first.turn()
    assert "stores_written" in first.steps[seen:]
    assert committed_records(world) > before
    assert not first.runtime.tasks
    world.settle(first, second)
    assert first.runtime.tasks
    assert second.runtime.tasks
    assert_equal(world, first, second)


@pytest.mark.parametrize("error", [UnknownOutcomeError, ProducerRetiredError, AbortableError])
def test_commit_that_fails_in_a_revocation_is_done_again_by_the_next_owner(error: type[PenstockError]) -> None:
    """Nor does the next owner wait for a transaction that a retired producer has left open."""
    world = a_world()
    first = world.node("a")
    with_work(world, first)
    second = world.node("b")
    world.log.fault("commit_before", 1, error("refused"))
    world.settle(first, second)
    assert_equal(world, first, second)


def test_lost_commits_nothing() -> None:
    world = a_world()
    first = world.node("a")
    with_work(world, first)
    world.log.advance(POLL_INTERVAL_MS + 1)
    second = world.node("b")
    for _ in range(10):
        second.turn()
    before, seen = committed_records(world), len(first.steps)
    first.turn()
    assert "committed" not in first.steps[seen:]
    assert committed_records(world) == before
    world.settle(first, second)
    assert_equal(world, first, second)


def test_zombie_with_a_whole_commit_in_hand_is_refused() -> None:
    """It wakes up in the middle of its commit, after its partitions became another's."""
    world = a_world()
    first = world.node("a")
    with_work(world, first)
    others: list[Node] = []

    def sleep(step: str) -> None:
        if step == "flushed" and not others:
            world.log.advance(POLL_INTERVAL_MS + 1)
            others.append(world.node("b"))
            for _ in range(20):
                others[0].turn()

    first.on_step = sleep
    world.settle(first)
    world.settle(first, *others)
    assert_equal(world, first, *others)


def test_assign_starts_at_the_committed_positions_and_runs_when_restored() -> None:
    world = a_world()
    first = world.node("a")
    with_work(world, first)
    first.stop()
    offsets = dict(world.log.group(APP).offsets)
    second = world.node("b")
    second.turn()
    waiting = second.runtime.restoring
    assert waiting
    assert second.runtime.records == 0
    while second.runtime.restoring:
        second.turn()
    assert second.restoring.replayed > 0
    for task_id in waiting:
        task = second.runtime.tasks[task_id]
        for topic, position in task.feed.positions().items():
            done = offsets.get(TopicPartition(topic, task_id.partition))
            assert done is None or position >= done.offset
    world.settle(second)
    assert_equal(world, second)


def test_producer_fenced_by_a_newer_one_rejoins() -> None:
    world = a_world()
    node = world.node("a")
    with_work(world, node)
    newer = MemoryProducer(world.log, transactional_id=f"{APP}-a")
    newer.init_transactions(1)
    world.settle(node)
    assert len(node.producers) > 1
    assert_equal(world, node)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_members_come_go_freeze_and_die_at_random(guarantee: str, seed: int) -> None:
    print(f"seed {seed}")
    world = a_world(guarantee, seed)
    rng = random.Random(seed)
    world.late_polls, world.queue_max_records = rng.randint(0, 5), rng.choice([0, 1_000])
    nodes = [world.node("n0")]
    frozen: set[str] = set()
    for _ in range(160):
        alive = [n for n in nodes if n.alive]
        for node in alive:
            if node.name not in frozen or rng.random() < 0.02:
                frozen.discard(node.name)
                node.turn()
        match rng.choice(["join", "stop", "crash", "power cut", "freeze", *["go on"] * 20]):
            case "join" if len(alive) < 3:
                nodes.append(world.node(f"n{len(nodes)}"))
            case "stop" if len(alive) > 1:
                rng.choice(alive).stop()
            case "crash" | "power cut" as how if alive:
                dead = rng.choice(alive)
                dead.crash(lose_unflushed=how == "power cut")
                nodes.append(world.node(dead.name, dead.disk))
            case "freeze" if len(alive) > 1:
                frozen.add(rng.choice(alive).name)
                world.log.advance(rng.choice([POLL_INTERVAL_MS // 2, POLL_INTERVAL_MS + 1]))
            case _:
                pass
    left = [n for n in nodes if n.alive] or [world.node("last")]
    world.settle(*left)
    if guarantee == "exactly_once":
        assert_equal(world, *left)
    else:
        outputs, stores = undisturbed()
        assert not outputs["joined"] - world.rows("joined")
        for place, rows in world.stores(*left).items():
            assert rows.keys() == stores[place].keys()
            # records on their way between two tasks may be there twice; nothing may be older than it was
            assert all(value[8:] >= stores[place][key][8:] for key, value in rows.items() if place[1] == "counts")


# -- fixed partitions ----------------------------------------------------------------------------------------------


def test_fixed_partitions_commit_one_by_one_and_equal_the_group() -> None:
    world = a_world()
    first, second = world.node("a", fixed=(0, 2)), world.node("b", fixed=(1, 3))
    world.settle(first, second)
    assert len(first.producers) == 2
    assert_equal(world, first, second)


def test_fixed_partition_that_another_worker_took_ends_the_run() -> None:
    world = a_world()
    busiest = max(range(PARTITIONS), key=lambda p: world.log.partition(TopicPartition("clicks", p)).end)
    others = tuple(p for p in range(PARTITIONS) if p != busiest)
    first = world.node("a", fixed=(busiest, others[0]))
    for _ in range(8):
        first.turn()
    second = world.node("c", fixed=(busiest,))
    with pytest.raises(TaskMigratedError, match="start it again when no other runs"):
        world.settle(first)
    first.runtime.close()
    third = world.node("d", first.disk, fixed=others)
    world.settle(second, third)
    assert_equal(world, second, third)


def test_abort_of_one_fixed_partition_leaves_the_others_alone() -> None:
    world = a_world()
    node = world.node("a", fixed=tuple(range(PARTITIONS)))
    for nth in (4, 9, 15):
        world.log.fault("send", nth, AbortableError("refused"))
    world.settle(node)
    assert len(node.producers) == PARTITIONS + 3
    assert_equal(world, node)


# -- what is committed ---------------------------------------------------------------------------------------------


def test_committed_positions_carry_what_a_restart_needs() -> None:
    world = a_world()
    node = world.node("a")
    world.settle(node)
    for tp, committed in world.log.group(APP).offsets.items():
        noted = commit_metadata.decode(committed.metadata)
        assert noted.version == commit_metadata.VERSION
        if tp.topic.endswith("-repartition"):
            log = world.log.partition(TopicPartition(f"{APP}-counts-changelog", tp.partition))
            assert noted.changelogs["counts"] == max(o for o, _ in log.committed(0)) + 1
            assert noted.stream_time_ms > 0


def test_worker_without_partitions_stays_and_takes_over() -> None:
    world = stateless_world("exactly_once")
    nodes = [world.node(name, Disk()) for name in "abc"]
    for _ in range(6):
        for node in nodes:
            node.turn()
    spare = next(n for n in nodes if not n.runtime.tasks)
    for node in nodes:
        if node is not spare:
            node.stop()
    world.settle(spare)
    assert set(world.rows("out").values()) == {1}
    assert len(world.rows("out")) == 60

"""At-least-once: a worker is frozen, another one goes on, and what the first one writes when it wakes up must not stay."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.streams.events.measurements import CommitStep
from penstock.streams.task import commit_metadata
from penstock.topologies.examples import keyed_count
from tests.simulation.world import APP, POLL_INTERVAL_MS, Disk, Node, World

KEYS = 4
COUNT = 40
STEPS = [step for step in get_args(CommitStep) if step not in ("begun", "offsets_added")]
INPUT = TopicPartition("in", 0)


def a_world(**options: int) -> World:
    world = World(
        keyed_count.build("in", "out"),
        "at_least_once",
        partitions=1,
        inputs=["in"],
        outputs=["out"],
        **options,  # type: ignore[arg-type]  # numbers only
    )
    write(world, COUNT)
    return world


def write(world: World, count: int) -> None:
    world.write("in", [(b"k%d" % (i % KEYS), b"v", i) for i in range(count)])


def counts(world: World, node: Node) -> dict[bytes, int]:
    return {k: int.from_bytes(v[8:], "big") for store in world.stores(node).values() for k, v in store.items()}


def wanted(world: World) -> dict[bytes, int]:
    return dict(Counter(e.key for _, _, e in world.log.read("in") if e.key is not None))


def folded(world: World, *, committed: bool) -> dict[bytes, int]:
    """The changelog by its last values, up to what the last commit names or to its end."""
    (spec,) = world.topology.stores
    end = world.log.partition(TopicPartition(changelog_topic(APP, spec), 0)).end
    if committed:
        end = commit_metadata.decode(world.log.group(APP).offsets[INPUT].metadata).changelogs[spec.name]
    rows = [(e.key, e.value) for _, offset, e in world.log.read(changelog_topic(APP, spec)) if offset < end]
    return {k: int.from_bytes(v, "big") for k, v in rows if k is not None and v is not None}


def frozen(world: World, step: str) -> tuple[Node, Node]:
    """The first worker is frozen at a step of a commit, until another one has its task and has done much more."""
    first = world.node("a")
    for _ in range(12):
        first.turn()
    others: list[Node] = []

    def sleep(done: str) -> None:
        if done != step or others:
            return
        world.log.advance(POLL_INTERVAL_MS + 1)
        others.append(world.node("b", Disk()))
        for _ in range(40):
            others[0].turn()
        write(world, COUNT)
        world.settle(others[0])

    first.on_step = sleep
    write(world, 10)
    while not others:
        first.turn()
    return first, others[0]


@pytest.mark.parametrize("queue_max_records", [0, 1_000])
@pytest.mark.parametrize("step", STEPS)
def test_what_a_woken_worker_wrote_does_not_become_state(step: str, queue_max_records: int) -> None:
    """With a queue its records are sent after it wakes up, without one before it was frozen."""
    world = a_world(queue_max_records=queue_max_records, late_polls=5)
    first, second = frozen(world, step)
    for _ in range(20):
        first.turn()
        second.turn()
    first.crash()
    second.crash()
    third = world.node("c", Disk())
    world.settle(third)
    assert counts(world, third) == wanted(world)
    write(world, 1)
    world.settle(third)
    assert counts(world, third) == folded(world, committed=True) == folded(world, committed=False) == wanted(world)


def test_owner_without_work_answers_what_a_woken_worker_wrote() -> None:
    """Nothing else would: the broker's compaction keeps the last record of a key, whoever wrote it."""
    world = a_world(queue_max_records=1_000, late_polls=5)
    first, second = frozen(world, "sent")
    first.turn()
    assert folded(world, committed=False) != wanted(world), "the woken worker has written nothing"
    first.crash()
    for _ in range(80):
        second.turn()
    assert folded(world, committed=False) == wanted(world)
    (spec,) = world.topology.stores
    world.log.compact(changelog_topic(APP, spec), 10**12)
    second.crash()
    third = world.node("c", Disk())
    world.settle(third)
    assert counts(world, third) == wanted(world)


def test_woken_worker_asks_before_it_sends() -> None:
    """It was frozen between two turns, and still has records to process."""
    world = a_world(late_polls=5)
    first = world.node("a")
    world.settle(first)
    write(world, 2 * COUNT)
    world.log.advance(1)
    first.runtime.consumer.poll(0, 0)
    world.log.advance(POLL_INTERVAL_MS + 1)
    second = world.node("b", Disk())
    world.settle(second)
    before = len(world.log.read("out"))
    for _ in range(4):
        first.turn()
    assert len(world.log.read("out")) == before
    world.settle(first, second)
    last = {e.key: e.value for _, _, e in world.log.read("out")}
    assert last == {k: n.to_bytes(8, "big") for k, n in wanted(world).items()}


def test_a_commit_whose_answer_was_lost_is_not_taken_back_by_the_next_question_to_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world()
    node = world.node("a")
    world.settle(node)
    seen: list[int] = []
    pass_point = world.log.pass_point

    def look(point: str) -> None:
        seen.append(world.log.group(APP).offsets[INPUT].offset)
        pass_point(point)

    def lost() -> None:
        world.log.advance(POLL_INTERVAL_MS * 6 // 10)
        raise RetriableError("no answer")

    def in_the_commit(step: CommitStep) -> None:
        if step == "flushed":
            world.log.fault("consumer_commit_after", 1, lost)
            node.on_step = lambda step: None

    monkeypatch.setattr(world.log, "pass_point", look)
    for _ in range(5):
        write(world, 1)
        node.on_step = in_the_commit
        for _ in range(30):
            node.turn()
    assert seen == sorted(seen)
    assert seen[-1] == COUNT + 5
    assert counts(world, node) == wanted(world)

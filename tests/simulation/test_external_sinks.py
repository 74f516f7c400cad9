"""External sinks under crashes, outages, lost answers and stale owners: every row once, in order, whatever happens."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError, RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.events.facts import WaitEnded, Waiting
from penstock.streams.testing.memory_sink import MemorySink
from tests.simulation.restores import APP
from tests.simulation.world import Crash, Disk, Node, World

KEYS = 6
WORDS = [f"k{i}" for i in range(KEYS)]
GUARANTEES = ("exactly_once", "at_least_once")


class Scene:
    """An application with two sinks: one behind its source, one behind a count, and so behind a topic."""

    def __init__(self, guarantee: Any, seed: int = 0, *, span: int = 0) -> None:
        self.events = MemorySink(span=span)
        self.counts = MemorySink()
        builder = ps.StreamsBuilder("s", key=str, value=int)
        source = builder.stream("in")
        self.topics = ["in", "alone"] if span else ["in"]
        kept = (builder.stream("alone") if span else source).filter_values(lambda v: v % 3 != 2)
        kept.flat_map_values(lambda v: [v] * (1 + v % 2)).sink(self.events, name="events")
        source.group_by_key().count(name="n").to_stream().sink(self.counts, name="counts")
        source.to("out")
        self.world = World(
            builder.build(), guarantee, inputs=self.topics, outputs=["out"], seed=seed, late_polls=seed % 3
        )
        self.written = 0

    def write(self, count: int) -> None:
        rows = [(WORDS[n % KEYS].encode(), n.to_bytes(8, "big"), n) for n in range(self.written, self.written + count)]
        self.written += count
        for topic in self.topics:
            self.world.write(topic, rows)

    def strike(self, fn: Callable[[str], None]) -> None:
        self.events.strike = self.counts.strike = fn

    def assert_exact(self, *, whole: bool = True) -> None:
        """Each row once, in its partition's order. Without ``whole``, the last ones may not be there yet."""
        by_place: dict[Any, list[int]] = defaultdict(list)
        found: dict[str, list[int]] = defaultdict(list)
        for place, offset, (key, value) in self.events.rows:
            by_place[place].append(offset)
            found[key].append(value)
        for offsets in by_place.values():
            assert offsets == sorted(offsets)
        for i, word in enumerate(WORDS):
            mine = [n for n in range(self.written) if n % KEYS == i and n % 3 != 2]
            wanted = [n for n in mine for _ in range(1 + n % 2)]
            assert found[word] == (wanted if whole else wanted[: len(found[word])]), word
        counted: dict[str, list[int]] = defaultdict(list)
        for _, _, (key, value) in self.counts.rows:
            counted[key].append(value)
        for i, word in enumerate(WORDS):
            total = len(range(i, self.written, KEYS))
            updates = counted[word]
            assert updates[-1] == total
            if self.world.guarantee == "exactly_once":
                assert updates == list(range(1, total + 1)), word


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rows_arrive_once_and_in_order(guarantee: str) -> None:
    scene = Scene(guarantee)
    scene.write(90)
    scene.world.settle(scene.world.node("a"))
    scene.assert_exact()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("step", ["before", "after", "open"])
@pytest.mark.parametrize("other", [False, True], ids=["same worker", "another worker"])
def test_crashes_around_a_write(guarantee: str, step: str, other: bool) -> None:
    """Between the sink's commit and Kafka's, too."""
    for nth in range(1, 9 if step != "open" else 3):
        scene = Scene(guarantee)
        scene.write(90)
        left = nth

        def crash(done: str) -> None:
            nonlocal left
            left -= done == step  # used up within the turn of the loop
            if done == step and left == 0:  # as above
                raise Crash

        scene.strike(crash)
        node = scene.world.node("a")
        node.run_until_crash()
        node.crash()
        scene.strike(lambda done: None)
        if other:
            scene.world.log.advance(10_001)
        scene.write(30)
        scene.world.settle(scene.world.node("b", Disk()) if other else scene.world.node("a", node.disk))
        scene.assert_exact()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("step", ["before", "after", "open"])
def test_a_sink_that_does_not_answer_is_waited_for(guarantee: str, step: str) -> None:
    """``after``: it has done what was asked, and the answer is lost."""
    scene = Scene(guarantee)
    scene.write(40)
    node = scene.world.node("a")
    down = True

    def silent(done: str) -> None:
        if down and done == step:
            raise RetriableError("nobody answers")

    scene.strike(silent)
    for _ in range(150):
        node.turn()
    scene.write(50)
    for _ in range(50):
        node.turn()
    waits = [fact for fact in node.recorder.facts if isinstance(fact, Waiting)]
    assert waits
    assert all("nobody answers" in str(fact.cause) for fact in waits)
    down = False
    for _ in range(3_000):  # pauses have grown to half a minute
        node.turn()
    scene.world.settle(node)
    scene.assert_exact()
    assert any(isinstance(fact, WaitEnded) for fact in node.recorder.facts)
    assert node.runtime.rejoining.due_s is None, "the worker keeps its place in the group meanwhile"


def test_no_more_is_read_than_fits_while_a_sink_does_not_answer() -> None:
    scene = Scene("exactly_once")
    node = scene.world.node("a")

    def silent(done: str) -> None:
        raise RetriableError("nobody answers")

    scene.strike(silent)
    scene.write(2_000)
    for _ in range(400):
        node.turn()
    for task in node.runtime.tasks.values():
        if task.sinks:
            assert all(task.feed.positions()[t] == 0 for t in task.topics)
            assert sum(map(task.feed.buffered, task.topics)) < 100


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stale_owner_changes_nothing(guarantee: str) -> None:
    """It is frozen right before a write; another worker takes over and goes on; then it wakes."""
    for nth in range(1, 7):
        scene = Scene(guarantee)
        scene.write(90)
        stale = scene.world.node("a")
        taken: list[Node] = []
        left = nth

        def freeze(done: str) -> None:
            nonlocal left
            left -= done == "before"  # used up within the turn of the loop
            if done != "before" or left != 0 or taken:  # noqa: B023  # as above
                return
            scene.world.log.advance(10_001)  # noqa: B023  # as above
            taken.append(scene.world.node("b", Disk()))  # noqa: B023  # as above
            scene.write(30)  # noqa: B023  # as above
            scene.world.settle(*taken)  # noqa: B023  # as above

        scene.strike(freeze)
        for _ in range(60):
            stale.turn()
        assert taken, "the write was never reached"
        scene.write(30)
        scene.world.settle(stale, *taken)
        scene.assert_exact()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("span", [0, 7])
def test_storms(guarantee: str, span: int) -> None:
    """Crashes, outages, lost answers and frozen workers, all drawn."""
    storms(guarantee, span, range(4))


@pytest.mark.long
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("span", [0, 7])
def test_many_storms(guarantee: str, span: int) -> None:
    storms(guarantee, span, range(4, 200))


def storms(guarantee: str, span: int, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        scene = Scene(guarantee, seed, span=span)
        scene.strike(lambda done, rng=rng: _maybe(rng))  # type: ignore[misc]  # the seed's own
        disks = [Disk(), Disk()]
        nodes = [scene.world.node(f"n{i}", disk) for i, disk in enumerate(disks)]
        for _ in range(rng.randint(6, 12)):
            scene.write(rng.randint(1, 25))
            struck = rng.randrange(2)
            awake = nodes if rng.random() < 0.7 else [nodes[1 - struck]]
            if len(awake) == 1:
                scene.world.log.advance(3_001)
            for _ in range(rng.randint(5, 60)):
                for i, node in enumerate(nodes):
                    if node in awake and not _turned(node):
                        node.crash()
                        nodes[i] = scene.world.node(node.name, node.disk)
                        awake = nodes
        scene.strike(lambda done: None)
        scene.world.log.advance(40_000)
        scene.world.settle(*nodes)
        for _ in range(2_000):
            for node in nodes:
                node.turn()
        scene.world.settle(*nodes)
        scene.assert_exact(whole=not span)


def _maybe(rng: random.Random) -> None:
    drawn = rng.random()
    if drawn < 0.04:
        raise Crash
    if drawn < 0.12:
        raise RetriableError("nobody answers")
    if drawn < 0.14:
        raise TaskMigratedError("another writer was opened")


def _turned(node: Node) -> bool:
    try:
        node.turn()
    except Crash:
        return False
    return True


def test_positions_wait_for_rows_of_several_commits() -> None:
    """So that purging, lag and a restart all follow what the sink has."""
    scene = Scene("exactly_once", span=10)
    scene.write(90)
    node = scene.world.node("a")
    scene.world.settle(node)
    scene.assert_exact(whole=False)
    assert scene.events.rows
    for (_, _, topic, _, partition), (position, _) in scene.events.positions.items():
        at = TopicPartition(topic, partition)
        task = next(t for t in node.runtime.tasks.values() if at in t.committed_positions)
        assert task.committed_positions[at] == position
        assert task.feed.positions()[topic] >= position
    node.stop()
    scene.write(60)
    scene.world.settle(scene.world.node("a", node.disk))
    scene.assert_exact(whole=False)


def test_a_sink_that_stands_behind_ends_the_worker() -> None:
    scene = Scene("exactly_once")
    scene.write(60)
    node = scene.world.node("a")
    scene.world.settle(node)
    node.stop()
    of = next(p for p in scene.events.positions if p.topic == "in")
    scene.events.positions[of] = 2, 1
    again = scene.world.node("a", node.disk)
    with pytest.raises(IncompatibleError, match=r"events/in-\d stands at offset 2.*brought back from a backup"):
        for _ in range(50):
            again.turn()


def test_a_recreated_topic_is_another_one() -> None:
    scene = Scene("exactly_once")
    scene.write(20)
    scene.world.settle(scene.world.node("a"))
    ids = scene.world.topic_ids(["in"])
    assert {p.topic_id for p in scene.events.positions} == {ids["in"]}
    assert {p.application_id for p in scene.events.positions} == {APP}

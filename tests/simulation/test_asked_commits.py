"""At-least-once commits that write no state and that nobody waits for: whatever happens before the answer loses nothing."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import orjson
import pytest

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.position import decode_position
from penstock.streams.commit import Step
from penstock.streams.ports import AbortableError, ProducerRetiredError
from tests.simulation.programs import joined_world
from tests.simulation.world import APP, Disk, Node, World

Stores = dict[tuple[TaskId, str], dict[bytes, bytes]]
TURNS = 44
PATIENT: dict[str, Any] = {"commit_patience_ms": 20}


@cache
def undisturbed(changes: bool) -> tuple[Counter[Any], Stores]:
    """Outputs and stores of the run that waits for every answer and that nothing happens to."""
    world = joined_world("exactly_once", changes=changes)
    node = world.node("a")
    world.settle(node)
    return world.rows("joined"), world.stores(node)


def turned(world: World, node: Node, turns: int) -> int:
    """Turn the node; how many turns ended with a commit that was not answered."""
    open_ = 0
    for _ in range(turns):
        node.turn()
        open_ += node.runtime.unanswered
    return open_


def assert_all_there(world: World, *nodes: Node, once: bool = False, changes: bool = True) -> None:
    """Every output at least once (or ``once``), the stores as they are to be, and everything committed."""
    outputs, stores = undisturbed(changes)
    found = world.rows("joined")
    assert not outputs - found
    assert set(found) == set(outputs)
    assert not once or found == outputs
    assert world.stores(*nodes) == stores
    committed = world.log.group(APP).offsets
    for topic in ("users", "clicks"):
        for p in range(world.partitions):
            tp = TopicPartition(topic, p)
            assert committed[tp].offset == world.log.partition(tp).last_stable


def test_commits_without_state_are_not_waited_for_and_all_is_committed_in_the_end() -> None:
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    assert turned(world, node, TURNS) > 6
    world.settle(node)
    assert not node.runtime.unanswered
    assert_all_there(world, node, once=True)


def test_exactly_once_waits() -> None:
    world = joined_world("exactly_once", **PATIENT)
    assert turned(world, world.node("a"), TURNS) == 0


@pytest.mark.parametrize("how", ["same worker", "power cut", "another worker"])
@pytest.mark.parametrize("turns", range(8, TURNS, 2))
def test_crash_at_any_turn_loses_nothing(turns: int, how: str) -> None:
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    turned(world, node, turns)
    node.crash(lose_unflushed=how == "power cut")
    after = world.node("b", Disk()) if how == "another worker" else world.node("a", node.disk)
    world.settle(after)
    assert_all_there(world, after)


@pytest.mark.parametrize("step", ["prepared", "sent", "flushed"])
def test_crash_at_any_step_loses_nothing(step: Step) -> None:
    for nth in range(1, 6):
        world = joined_world("at_least_once", **PATIENT)
        node = world.node("a")
        node.crash_at(step, nth)
        node.run_until_crash()
        node.crash()
        after = world.node("a", node.disk)
        world.settle(after)
        assert_all_there(world, after)


@pytest.mark.parametrize("turns", range(8, TURNS, 2))
def test_nothing_is_done_twice_when_the_tasks_are_shared_anew_or_the_worker_stops(turns: int) -> None:
    """Whoever gives up a task repeats the commit and waits for that, unless it is to write state."""
    world = joined_world("at_least_once", changes=False, **PATIENT)
    first = world.node("a")
    turned(world, first, turns)
    second = world.node("b")
    for _ in range(turns % 5):
        first.turn()
        second.turn()
    first.stop()
    world.settle(second)
    assert_all_there(world, second, once=True, changes=False)


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("error", [RetriableError, TaskMigratedError])
@pytest.mark.parametrize("point", ["consumer_commit_before", "consumer_commit_after"])
def test_commit_that_fails_unanswered_is_repeated(point: str, error: type[PenstockError], nth: int) -> None:
    """It is answered with an error, before or after it took place; the last one too, with nothing to do behind it."""
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    world.log.fault(point, nth, error("refused"))
    world.settle(node)
    assert_all_there(world, node, once=error is RetriableError)


@pytest.mark.parametrize("nth", range(1, 25, 2))
@pytest.mark.parametrize("error", [AbortableError, ProducerRetiredError, TaskMigratedError])
def test_record_that_is_refused_beside_a_commit_unanswered_is_done_again(error: type[PenstockError], nth: int) -> None:
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    world.log.fault("send", nth, error("refused"))
    world.settle(node)
    assert_all_there(world, node)


def test_commits_that_always_fail_unanswered_end_the_run() -> None:
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    turned(world, node, 8)
    for nth in range(world.log.passages["consumer_commit_before"] + 1, 100):
        world.log.fault("consumer_commit_before", nth, RetriableError("no answer"))
    with pytest.raises(RetriableError, match="no answer"):
        world.settle(node)


def assert_no_table_is_ahead(world: World, node: Node) -> None:
    """No store on the disk stands past what is committed."""
    for task, backend in node.disk.backends.items():
        at = backend.position("users")
        if at is not None:
            committed = world.log.group(APP).offsets.get(TopicPartition("users", task.partition))
            assert decode_position(at).changelog_offset <= (0 if committed is None else committed.offset)


@pytest.mark.parametrize("changed", [False, True])
def test_state_is_not_written_while_an_answer_is_out(changed: bool) -> None:
    """A revoke commits all the same; the one that was asked for may take place after it."""
    world = joined_world("at_least_once", **PATIENT)
    node = world.node("a")
    turned(world, node, 30)
    while node.runtime.unanswered:
        node.turn()
    world.asked_commits, world.asked_polls = ("late",), (25, 25)
    world.write("clicks", [(b"u%d" % u, b'{"n":0}', 9_000) for u in range(8)])
    while not node.runtime.unanswered:
        node.turn()
    world.write("users" if changed else "clicks", [(b"u%d" % u, b'{"r":"west"}', 9_001) for u in range(8)])
    for _ in range(6):
        node.turn()
    tasks = list(node.runtime.tasks.values())
    if changed:
        with pytest.raises(RetriableError, match="commit again later"):
            node.committers[-1].commit(tasks)
    else:
        assert node.committers[-1].commit(tasks)
    for _ in range(40):
        node.turn()
        assert_no_table_is_ahead(world, node)
    world.settle(node)
    for held in world.stores(node).values():
        assert all((b"west" in value) == changed for value in held.values())


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_no_click_is_lost_and_no_store_is_ahead(seed: int) -> None:
    """Commits that write state among those that do not, crashes, new members and ends at random, and answers that are
    later than the commits after them."""
    rng = random.Random(seed)
    world = joined_world("at_least_once", seed=seed, **PATIENT)
    world.asked_commits = ("at once", "in order", "late")
    nodes = [world.node("a")]
    for turn in range(120):
        for node in nodes:
            node.turn()
            assert_no_table_is_ahead(world, node)
        if rng.random() < 0.3:
            world.write("users", [(b"u%d" % rng.randrange(8), b'{"r":"%d"}' % turn, 10_000 + turn)])
        what = rng.random()
        if what < 0.05:
            leaving = nodes.pop(rng.randrange(len(nodes)))
            if rng.random() < 0.5:
                leaving.stop()
            else:
                leaving.crash()
            if not nodes:
                nodes.append(world.node(leaving.name, leaving.disk))
        elif what < 0.08 and len(nodes) < 3:
            nodes.append(world.node(f"{turn}"))
        elif what < 0.15:
            point = rng.choice(["consumer_commit_before", "consumer_commit_after"])
            error = rng.choice([RetriableError, TaskMigratedError])("refused")
            world.log.fault(point, world.log.passages[point] + 1, error)
    world.settle(*nodes)
    assert {key for key, _ in world.rows("joined")} == {b"u%d" % u for u in range(8)}
    assert {orjson.loads(value or b"")["n"] for _, value in world.rows("joined")} == set(range(240))
    table = {e.key: e.value for _, _, e in world.log.read("users")}
    held = {key: value[8:] for rows in world.stores(*nodes).values() for key, value in rows.items()}
    assert held == table

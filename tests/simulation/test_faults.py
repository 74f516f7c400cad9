"""What the log refuses, loses or leaves unanswered, and what a worker makes of it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from penstock.state.errors import EnvironmentFault, PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TaskId
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.rejoin_pacing import REJOINS_MAX
from penstock.streams.testing.memory_log import FaultAction
from tests.simulation.programs import clicks_world, stateless_world
from tests.simulation.world import APP, World

OUTPUTS = ("joined", "counted")
Stores = dict[tuple[TaskId, str], dict[bytes, bytes]]


@cache
def undisturbed() -> tuple[dict[str, Counter[Any]], Stores, Counter[str]]:
    """Outputs, stores and passages of each point."""
    world = clicks_world("exactly_once")
    node = world.node("a")
    world.settle(node)
    return {t: world.rows(t) for t in OUTPUTS}, world.stores(node), Counter(world.log.passages)


def equal_after(*faults: tuple[str, int, FaultAction]) -> World:
    """A run of one worker with these faults, found equal to the undisturbed one."""
    world = clicks_world("exactly_once")
    node = world.node("a")
    for point, nth, action in faults:
        world.log.fault(point, nth, action)
    world.settle(node)
    outputs, stores, _ = undisturbed()
    assert {t: world.rows(t) for t in OUTPUTS} == outputs, faults
    assert world.stores(node) == stores, faults
    return world


def at_every(point: str) -> list[int]:
    """Every passage of the point, or a dozen of them, spread evenly."""
    passages = undisturbed()[2][point]
    assert passages > 3
    return list(range(1, passages + 1, max(passages // 12, 1)))


@pytest.mark.parametrize("point", ["send", "flush", "send_offsets", "commit_before"])
@pytest.mark.parametrize("error", [AbortableError, ProducerRetiredError, RetriableError, TaskMigratedError])
def test_whatever_is_refused_is_undone_and_done_again(point: str, error: type[PenstockError]) -> None:
    """A refused record, an abortable transaction, a handle of no more use, no answer, and a fenced producer."""
    for nth in at_every(point):
        equal_after((point, nth, error("refused")))


@pytest.mark.parametrize("point", ["commit_before", "commit_after"])
def test_commit_of_unknown_outcome_is_asked_for(point: str) -> None:
    """Before: it did not happen. After: it did, and only the answer was lost."""
    for nth in at_every("commit_before"):
        equal_after((point, nth, UnknownOutcomeError("no answer")))


@pytest.mark.parametrize("point", ["commit_before", "commit_after"])
@pytest.mark.parametrize("next_call", ["init", "committed"])
def test_unknown_outcome_while_the_log_stays_silent(point: str, next_call: str) -> None:
    """The commit may have happened, and the log answers only later: the stores must not miss it."""
    for nth in at_every("commit_before"):
        world = clicks_world("exactly_once")
        node = world.node("a")
        world.log.fault(point, nth, UnknownOutcomeError("no answer"))

        def silence(world: World = world) -> None:
            world.log.fault(next_call, 1, RetriableError("still no answer"))
            world.log.fault(next_call, 2, RetriableError("and again"))

        world.log.fault("commit_before", nth, silence)
        world.settle(node)
        outputs, stores, _ = undisturbed()
        assert {t: world.rows(t) for t in OUTPUTS} == outputs, nth
        assert world.stores(node) == stores, nth


def test_abort_that_fails_is_left_to_the_next_producer() -> None:
    for nth in at_every("send"):
        equal_after(("send", nth, AbortableError("refused")), ("abort", 1, RetriableError("no answer")))


def test_producer_retired_after_a_commit_is_replaced_without_an_abort() -> None:
    world = equal_after(("begin", 2, ProducerRetiredError("its last commit was slow")))
    assert world.log.passages["abort"] == 0


SILENCE_MS = 600_000
"""Ten minutes."""


@pytest.mark.parametrize("call", ["init", "committed", "send_offsets", "commit_before"])
def test_a_log_that_is_silent_for_long_is_waited_for_and_told_of_in_few_lines(call: str) -> None:
    """Whatever was under way when it fell silent; then all is as if it had answered."""
    world = clicks_world("exactly_once")
    node = world.node("a")

    def silence() -> None:
        if world.log.now_ms < SILENCE_MS:
            world.log.fault(call, 1, silence)
            raise RetriableError("no answer")

    world.log.fault("send", 3, lambda: world.log.fault(call, 1, silence))
    world.log.fault("send", 3, AbortableError("refused"))
    while world.log.now_ms < SILENCE_MS + 60_000:
        world.log.advance(2_000)
        node.turn()
    world.settle(node)
    outputs, stores, _ = undisturbed()
    assert {t: world.rows(t) for t in OUTPUTS} == outputs
    assert world.stores(node) == stores
    assert 2 <= len(node.said) <= 2 + SILENCE_MS // 60_000, node.said
    assert "no answer" in node.said[0]
    assert node.said[-1].startswith("WaitEnded"), node.said


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_brokers_that_are_away_while_tasks_are_assigned_are_waited_for(guarantee: Guarantee) -> None:
    """The group gave partitions, and their positions cannot be read."""
    world = clicks_world(guarantee)
    for nth in range(1, 6):
        world.log.fault("committed", nth, RetriableError("the coordinator loads"))
    node = world.node("a")
    world.settle(node)
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]
    assert any("the coordinator loads" in line for line in node.said)


def test_a_worker_that_is_fenced_again_and_again_joins_later_each_time_and_ends_with_the_reason() -> None:
    """As two with one identity fence each other."""
    world = clicks_world("exactly_once")
    node = world.node("a")
    world.write("clicks", [(b"u1", b"c", 5_000)])
    fenced_ms: list[int] = []

    def fence() -> None:
        fenced_ms.append(world.log.now_ms)
        world.log.fault("begin", 1, fence)
        raise TaskMigratedError("fenced by a twin")

    world.log.fault("begin", 1, fence)
    with pytest.raises(TaskMigratedError, match=r"joined group app 10 times, .* identity.*identity\.json"):
        for _ in range(20_000):
            node.turn()
    pauses = [b - a for a, b in pairwise(fenced_ms)]
    assert len(fenced_ms) == REJOINS_MAX + 1
    assert pauses[0] < 1_000
    assert pauses[-1] >= 30_000
    assert all(b > a - 200 for a, b in pairwise(pauses)), "a turn more or less"


def test_record_that_is_refused_every_time_ends_the_run_with_nothing_committed() -> None:
    world = stateless_world("exactly_once", output_config={"max.message.bytes": "4"})
    node = world.node("a")
    with pytest.raises(AbortableError, match="limit is 4"):
        world.settle(node)
    node.runtime.close()
    assert not world.rows("out")
    assert not world.log.group(APP).offsets


@pytest.mark.parametrize("queue_max_records", [1, 10_000])
def test_queue_of_any_size_gives_the_same(queue_max_records: int) -> None:
    world = clicks_world("exactly_once", queue_max_records=queue_max_records)
    node = world.node("a")
    world.settle(node)
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]
    assert world.stores(node) == undisturbed()[1]


@pytest.mark.parametrize("point", ["send", "flush", "consumer_commit_before", "consumer_commit_after"])
@pytest.mark.parametrize("error", [AbortableError, RetriableError, TaskMigratedError, ProducerRetiredError])
def test_at_least_once_loses_nothing(point: str, error: type[PenstockError]) -> None:
    if point.startswith("consumer") and error in (AbortableError, ProducerRetiredError):
        error = RetriableError  # the others are the producer's
    outputs, _, _ = undisturbed()
    for nth in range(1, 9):
        world = clicks_world("at_least_once")
        node = world.node("a")
        world.log.fault(point, nth, error("refused"))
        world.settle(node)
        assert not outputs["joined"] - world.rows("joined"), nth
        assert_counts_reached(world)


def test_at_least_once_keeps_state_when_a_commit_without_answer_is_followed_by_an_abort() -> None:
    """The positions were committed, the answer was lost, then a record is refused: the stores must not miss what the
    committed positions say was done."""
    for nth in range(1, 6):
        world = clicks_world("at_least_once")
        node = world.node("a")

        def refuse(world: World = world) -> None:
            world.log.fault("flush", 1, AbortableError("refused"))
            raise RetriableError("no answer")

        world.log.fault("consumer_commit_after", nth, refuse)
        world.settle(node)
        assert_counts_reached(world)


def assert_counts_reached(world: World) -> None:
    """Every count is at least what the undisturbed run came to."""
    outputs, _, _ = undisturbed()
    wanted: Counter[bytes | None] = Counter()
    for (key, _), n in outputs["counted"].items():
        wanted[key] += n
    reached = {k: max(int(v or b"0") for key, v in world.rows("counted") if key == k) for k in wanted}
    assert all(reached[k] >= n for k, n in wanted.items())


def test_commit_that_fails_for_long_is_tried_again_at_least_once() -> None:
    world = clicks_world("at_least_once")
    node = world.node("a")
    while len(node.runtime.tasks) < 4:
        node.turn()
    for nth in range(1, 100):
        world.log.fault("consumer_commit_before", nth, RetriableError("no answer"))
    world.settle(node)
    assert world.log.passages["consumer_commit_before"] > 99
    assert not undisturbed()[0]["joined"] - world.rows("joined")
    assert_counts_reached(world)


def test_at_most_once_asks_again_before_it_does_anything() -> None:
    """A commit ahead that is not answered, once or several times: nothing is lost for it, and nothing done twice."""
    whole = stateless_world("at_most_once")
    whole.settle(whole.node("a"))
    for times in (1, 2, 5):
        world = stateless_world("at_most_once")
        node = world.node("a")
        for nth in range(times):
            world.log.fault("consumer_commit_before", 2 + nth, RetriableError("NOT_COORDINATOR"))
        world.settle(node)
        assert world.rows("out") == whole.rows("out"), times
        assert bool(node.said) == (times == 5)


def test_restore_that_fails_ends_the_run() -> None:
    world = clicks_world("exactly_once")
    node = world.node("a")
    node.restoring.failure = EnvironmentFault("the disk is full")
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        world.settle(node)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_worker_of_some_fixed_partitions_takes_them_again_after_silence(guarantee: str) -> None:
    """Of partitions that it never had it knows nothing."""
    world = clicks_world(guarantee)
    nodes = [world.node(f"p{p}", fixed=(p,)) for p in range(2)]
    for _ in range(10):
        nodes[0].turn()
    world.log.fault("poll", 1, RetriableError("no answer"))
    nodes[0].turn()
    world.settle(*nodes)
    assert sorted(task.partition for task in nodes[0].runtime.tasks) == [0, 0]
    assert len(world.log.read("joined")) >= 120

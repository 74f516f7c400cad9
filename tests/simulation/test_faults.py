"""What the log refuses, loses or leaves unanswered, and what a worker makes of it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TaskId
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.runtime.commit_group import MEND_MAX_S
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


def test_log_that_never_answers_ends_the_run() -> None:
    world = clicks_world("exactly_once")
    node = world.node("a")
    for nth in range(1, 200):
        world.log.fault("init", nth, RetriableError("no answer"))
    world.log.fault("send", 3, AbortableError("refused"))
    with pytest.raises(RetriableError, match="no answer"):
        for _ in range(100):
            world.log.advance(2_000)
            node.turn()
    assert world.log.now_ms > MEND_MAX_S * 1_000


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


def test_commit_that_always_fails_ends_an_at_least_once_run() -> None:
    world = clicks_world("at_least_once")
    node = world.node("a")
    while len(node.runtime.tasks) < 4:
        node.turn()
    for nth in range(1, 100):
        world.log.fault("consumer_commit_before", nth, RetriableError("no answer"))
    with pytest.raises(RetriableError, match="no answer"):
        world.settle(node)


def test_restore_that_fails_ends_the_run() -> None:
    world = clicks_world("exactly_once")
    node = world.node("a")
    node.restoring.failure = RetriableError("held by process 1")
    with pytest.raises(RetriableError, match="held by process 1"):
        world.settle(node)

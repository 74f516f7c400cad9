"""Nothing is swallowed: each fault of the commit path is one line of the log and one count, and so is what follows of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pytest

import penstock as ps
from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.events import facts as f
from penstock.streams.events.logging_adapter import LoggingEvents
from penstock.streams.events.metrics_adapter import MetricsEvents, listed
from penstock.streams.events.port import Fanout
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.streams.runtime import group_wait
from penstock.streams.runtime.lag import BEHIND_AFTER_S
from penstock.streams.task.error_policies import ErrorPolicy, Policies
from penstock.streams.testing.memory_log import LogEntry
from tests.recorder import Recorder
from tests.simulation.programs import clicks_world, stateless_world
from tests.simulation.test_damage import BadDisk, Block
from tests.simulation.test_stale_owners import a_world, frozen
from tests.simulation.world import POLL_INTERVAL_MS, TURN_MS, Node, World

ORDINARY = {
    "TasksAssigned", "TasksRevoked", "TaskRunning", "TaskCaughtUp", "Committed", "PartitionPaused", "PartitionResumed",
}  # fmt: skip
"""What a run without faults reports."""


class Eyes:
    """A world whose facts are logged, counted and kept; the three must agree."""

    def __init__(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="penstock")
        self.world = world
        self.recorder = Recorder()
        self.metrics = MetricsEvents(list)
        self._caplog = caplog
        world.events = Fanout(LoggingEvents(), self.metrics, self.recorder)

    def unusual(self) -> Counter[str]:
        """How often each fact that is not ordinary was logged and counted."""
        logged = Counter(record.penstock_line.fact for record in self._caplog.records)  # type: ignore[attr-defined]  # set by the adapter
        counted = Counter(
            {
                x.labels["fact"]: int(x.value)
                for x in listed(self.metrics.registry)
                if x.name == "penstock_facts_total" and x.value
            }
        )
        assert logged == counted == self.recorder.counts()
        return Counter({name: count for name, count in logged.items() if name not in ORDINARY})


def seen(world: World, caplog: pytest.LogCaptureFixture, *faults: tuple[str, int, PenstockError]) -> tuple[Eyes, Node]:
    """A run to the end with these faults."""
    eyes = Eyes(world, caplog)
    node = world.node("a")
    for point, nth, error in faults:
        world.log.fault(point, nth, error)
    world.settle(node)
    return eyes, node


def test_without_faults_there_is_nothing_unusual(caplog: pytest.LogCaptureFixture) -> None:
    eyes, node = seen(clicks_world("exactly_once"), caplog)
    assert not eyes.unusual()
    (assigned,) = eyes.recorder.of(f.TasksAssigned)
    assert set(assigned.tasks) == set(node.runtime.tasks)
    assert sorted(fact.task for fact in eyes.recorder.of(f.TaskRunning)) == sorted(assigned.tasks)
    assert sorted(fact.task for fact in eyes.recorder.of(f.TaskCaughtUp)) == sorted(assigned.tasks)


@pytest.mark.parametrize("point", ["send", "flush", "send_offsets", "commit_before"])
@pytest.mark.parametrize("error", [AbortableError, ProducerRetiredError, RetriableError])
def test_a_refusal_under_exactly_once_is_one_abort(
    caplog: pytest.LogCaptureFixture, point: str, error: type[PenstockError]
) -> None:
    eyes, _ = seen(clicks_world("exactly_once"), caplog, (point, 4, error("refused")))
    retired = {"ProducerRetired": 1} if error is ProducerRetiredError else {}  # it cannot abort either
    waited = {"WaitEnded": 1} if error is RetriableError else {}
    assert eyes.unusual() == {"CommitAborted": 1, **retired, **waited}
    (aborted,) = eyes.recorder.of(f.CommitAborted)
    assert isinstance(aborted.cause, error)


@pytest.mark.parametrize("point", ["send", "flush", "send_offsets", "commit_before"])
def test_a_fenced_producer_is_one_rejoin(caplog: pytest.LogCaptureFixture, point: str) -> None:
    eyes, _ = seen(clicks_world("exactly_once"), caplog, (point, 4, TaskMigratedError("fenced")))
    assert eyes.unusual() == {"Rejoining": 1}


@pytest.mark.parametrize(("point", "outcome"), [("commit_before", "not_committed"), ("commit_after", "committed")])
def test_a_lost_answer_is_resolved_in_one_line(caplog: pytest.LogCaptureFixture, point: str, outcome: str) -> None:
    eyes, _ = seen(clicks_world("exactly_once"), caplog, (point, 4, UnknownOutcomeError("no answer")))
    assert eyes.unusual() == {"TransactionInDoubt": 1, "ProducerRetired": 1}
    (doubt,) = eyes.recorder.of(f.TransactionInDoubt)
    assert doubt.outcome == outcome


def test_an_abort_without_an_answer_retires_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    faults = ("send", 4, AbortableError("refused")), ("abort", 1, RetriableError("no answer"))
    eyes, _ = seen(clicks_world("exactly_once"), caplog, *faults)
    assert eyes.unusual() == {"CommitAborted": 1, "ProducerRetired": 1}


def test_an_abort_that_waits_is_told_once_however_often_it_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    world = clicks_world("exactly_once")
    eyes = Eyes(world, caplog)
    node = world.node("a")
    for nth in range(1, 6):
        world.log.fault("init", nth, RetriableError("no answer"))
    world.log.fault("send", 4, AbortableError("refused"))
    world.settle(node)
    assert eyes.unusual() == {"CommitAborted": 1, "AbortDelayed": 1, "WaitEnded": 1}


def test_a_producer_that_retired_after_its_commit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    eyes, _ = seen(clicks_world("exactly_once"), caplog, ("begin", 2, ProducerRetiredError("its last commit was slow")))
    assert eyes.unusual() == {"ProducerRetired": 1}


@pytest.mark.parametrize("point", ["flush", "consumer_commit_before", "consumer_commit_after"])
def test_a_commit_that_is_tried_again_is_told(caplog: pytest.LogCaptureFixture, point: str) -> None:
    eyes, _ = seen(clicks_world("at_least_once"), caplog, (point, 3, RetriableError("no answer")))
    begun = f.CommitDelayed if point == "flush" else f.Waiting  # which asks for the membership first
    assert eyes.unusual() == {begun.__name__: 1, "WaitEnded": 1}
    assert [str(fact.cause) for fact in eyes.recorder.of(begun)] == ["no answer"]


def test_records_refused_again_and_again_are_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    eyes, _ = seen(
        clicks_world("at_least_once"), caplog, ("flush", 2, AbortableError("a")), ("flush", 3, AbortableError("b"))
    )
    assert eyes.unusual() == {"CommitAborted": 2}


@pytest.mark.parametrize(("touch", "nth"), [("read", 2), ("commit", 12)])
def test_damage_is_told_with_the_task_that_is_opened_again(
    caplog: pytest.LogCaptureFixture, touch: str, nth: int
) -> None:
    world = clicks_world("exactly_once")
    eyes = Eyes(world, caplog)
    node = world.node("a", BadDisk(Block(touch, nth)))  # type: ignore[arg-type]  # one of the touches
    world.settle(node)
    assert eyes.unusual() == {"CommitAborted": 1, "TaskReopened": 1}
    (aborted,) = eyes.recorder.of(f.CommitAborted)
    assert isinstance(aborted.cause, StateCorruptedError)


def test_what_a_stale_owner_wrote_is_one_line_of_the_next_owner(caplog: pytest.LogCaptureFixture) -> None:
    world = a_world(queue_max_records=1_000, late_polls=5)
    eyes = Eyes(world, caplog)
    first, second = frozen(world, "sent")
    first.turn()
    first.crash()
    for _ in range(80):
        second.turn()
    assert eyes.unusual()["ForeignWritesReplaced"] == 1
    (fact,) = eyes.recorder.of(f.ForeignWritesReplaced)
    counted = [x for x in listed(eyes.metrics.registry) if x.name == "penstock_foreign_writes_total"]
    assert [(x.labels, x.value) for x in counted] == [({"task": str(fact.task), "store": fact.store}, fact.keys)]
    assert fact.keys > 0


def test_a_group_that_went_on_without_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    world = clicks_world("exactly_once")
    eyes = Eyes(world, caplog)
    node = world.node("a")
    world.settle(node)
    world.log.advance(60_000)
    world.settle(node)
    assert eyes.unusual()["TasksLost"] == 1


def test_a_worker_that_lost_its_tasks_says_that_it_waits_for_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_wait, "REPORT_S", 1.0)
    world = clicks_world("exactly_once")
    first, second = world.node("a"), world.node("b")
    world.settle(first, second)
    world.log.advance(POLL_INTERVAL_MS - 1_000)
    second.turn()
    world.log.advance(2_000)
    for _ in range(2 * POLL_INTERVAL_MS // TURN_MS):  # the second one stands still, and is a member for a while
        first.turn()
    told = [fact for fact in first.recorder.facts if isinstance(fact, f.TasksLost | f.Waiting | f.WaitEnded)]
    assert [type(fact) for fact in told] == [f.TasksLost, f.Waiting, f.WaitEnded]


@pytest.mark.parametrize("stop", [False, True])
def test_another_worker_has_the_fixed_partitions(caplog: pytest.LogCaptureFixture, stop: bool) -> None:
    world = stateless_world("exactly_once")
    eyes = Eyes(world, caplog)
    first = world.node("a", fixed=(0, 1))
    while not first.runtime.uncommitted:
        first.turn()
    world.node("b", fixed=(0, 1))
    if stop:
        first.stop()
    else:
        with pytest.raises(TaskMigratedError, match="Another worker"):
            world.settle(first)
    assert eyes.unusual() == {"Fenced": 1}


def test_a_rebalance_that_cannot_commit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = clicks_world("exactly_once")
    eyes = Eyes(world, caplog)
    first = world.node("a")
    while not first.runtime.uncommitted:
        first.turn()
    world.log.fault("commit_before", 1, AbortableError("refused"))
    second = world.node("b")
    world.settle(first, second)
    assert eyes.unusual() == {"CommitAborted": 1}
    assert eyes.recorder.counts()["TasksRevoked"] == 1


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_a_poison_record_is_told_with_its_place(caplog: pytest.LogCaptureFixture, policy: ErrorPolicy) -> None:
    world = stateless_world(
        "exactly_once", policies=Policies(processing=policy, deserialization=policy, dead_letter_topic="out")
    )
    world.log.append(TopicPartition("in", 1), LogEntry(b"k", b"what it holds", 5_000))
    eyes = Eyes(world, caplog)
    node = world.node("a")
    if policy == "fail":
        with pytest.raises(PenstockError):
            world.settle(node)
    else:
        world.settle(node)
    fact = {"fail": "RecordFailed", "skip": "RecordSkipped", "dead_letter": "RecordDeadLettered"}[policy]
    assert eyes.unusual() == {fact: 1}
    (line,) = [r for r in caplog.records if r.penstock_line.fact == fact]  # type: ignore[attr-defined]  # set by the adapter
    assert (line.penstock_line.fields["topic"], line.penstock_line.fields["partition"]) == ("in", 1)  # type: ignore[attr-defined]  # as above
    assert "what it holds" not in line.getMessage()


def test_clamped_times_are_told_by_poll(caplog: pytest.LogCaptureFixture) -> None:
    world = stateless_world("exactly_once", policies=Policies(timestamp="clamp"))
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"1", 1 << 45))
    eyes, _ = seen(world, caplog)
    assert eyes.unusual() == {"TimestampsClamped": 1}
    (clamped,) = eyes.recorder.of(f.TimestampsClamped)
    assert clamped.records == 1


def test_a_late_commit_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world = clicks_world("exactly_once")
    eyes = Eyes(world, caplog)
    node = world.node("a")

    def pause() -> None:
        world.log.advance(2_500)

    while not node.runtime.uncommitted:
        node.turn()
    world.log.fault("flush", 1, pause)  # type: ignore[arg-type]  # a callable, too
    world.settle(node)
    assert eyes.unusual() == {"CommitLate": 1}
    (late,) = eyes.recorder.of(f.CommitLate)
    assert late.seconds > 2.5 and late.interval_s == 0.1


def fill(world: World) -> Callable[[], None]:
    """Writes more than a turn takes."""

    def write() -> None:
        for i in range(50):
            world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"%d" % i, 10_000 + i))

    return write


def test_a_task_that_falls_behind_and_catches_up_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = stateless_world("at_least_once")
    eyes = Eyes(world, caplog)
    node = world.node("a")
    world.settle(node)
    write = fill(world)
    for _ in range(int(BEHIND_AFTER_S) + 5):
        write()
        world.log.advance(1_000)
        node.runtime.step()
    assert eyes.unusual()["FallingBehind"] == 1
    (behind,) = eyes.recorder.of(f.FallingBehind)
    assert behind.task.partition == 0 and behind.lag > 100 and behind.behind_s >= BEHIND_AFTER_S
    world.settle(node)
    assert [fact.task.partition for fact in eyes.recorder.of(f.TaskCaughtUp)].count(0) == 2


def test_a_source_without_records_is_told_once_when_it_falls_idle(caplog: pytest.LogCaptureFixture) -> None:
    builder = ps.StreamsBuilder("idle", key=str, value=str)
    builder.stream("in", watermark=ps.bounded_out_of_orderness("1s", idle="2s")).to("out")
    world = World(builder.build(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    eyes = Eyes(world, caplog)
    node = world.node("a")
    world.write("in", [(b"k", b"v", 1_000)])
    for _ in range(2):
        for _ in range(400):
            node.turn()
        world.write("in", [(b"k", b"v", 2_000)])
        world.settle(node)
    assert eyes.unusual() == {"SourceIdle": 2}
    assert {fact.topic for fact in eyes.recorder.of(f.SourceIdle)} == {"in"}

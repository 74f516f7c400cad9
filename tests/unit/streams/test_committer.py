"""The committer by itself: who gives way to whom."""

from __future__ import annotations

import pytest

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.runtime.commit_protocol import Committer, Guarantee
from penstock.streams.runtime.runtime import SILENT_CLOSE_S
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.testing.memory_producer import MemoryProducer
from tests.simulation.programs import clicks_world


@pytest.mark.parametrize("yields", [True, False])
def test_who_was_fenced_gives_way_only_where_no_group_tells_who_owns_what(yields: bool) -> None:
    """As after a transaction that was doomed by a long halt, during which another took over."""
    log = MemoryLog()
    opened: list[MemoryProducer] = []

    def open_producer() -> MemoryProducer:
        opened.append(MemoryProducer(log, transactional_id="id"))
        return opened[-1]

    consumer = MemoryConsumer(log, "group")
    committer = Committer("exactly_once", consumer, open_producer, lambda: "group", lambda *_: b"", yields=yields)
    committer.open()
    committer._ready()
    newer = open_producer()
    newer.init_transactions(1)
    if yields:
        with pytest.raises(TaskMigratedError):
            committer.abort([])
        newer.begin()
        newer.commit(1)
    else:
        committer.abort([])
    assert len(opened) == (2 if yields else 3)


class Silent(MemoryProducer):
    """Never answers; the time that each call was given passes."""

    waited_s = 0.0

    def flush(self, timeout_s: float) -> dict[TopicPartition, int]:
        return self._wait(timeout_s)

    def send_offsets(self, offsets: object, group: object, timeout_s: float) -> None:
        self._wait(timeout_s)

    def commit(self, timeout_s: float) -> None:
        self._wait(timeout_s)

    def abort(self, timeout_s: float) -> None:
        self._wait(timeout_s)

    def _wait(self, timeout_s: float) -> dict[TopicPartition, int]:
        Silent.waited_s += timeout_s
        raise RetriableError("no answer")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_worker_that_waits_for_the_log_ends_at_once(guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch) -> None:
    world = clicks_world(guarantee)
    node = world.node("a")
    while not any(t.uncommitted_records for t in node.runtime.tasks.values()):
        node.turn()
    monkeypatch.setattr(MemoryProducer, "flush", Silent.flush)
    monkeypatch.setattr(MemoryProducer, "abort", Silent.abort)
    monkeypatch.setattr(MemoryProducer, "init_transactions", Silent.abort)
    monkeypatch.setattr(MemoryProducer, "_wait", Silent._wait, raising=False)
    monkeypatch.setattr(Silent, "waited_s", 0.0)
    while not node.said:
        node.turn()
    waited_s = Silent.waited_s
    assert waited_s >= 30
    node.runtime.stop()
    assert Silent.waited_s - waited_s <= SILENT_CLOSE_S


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_member_gives_its_partitions_up_within_a_third_of_its_session_whatever_the_log_does(
    guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole group waits for it."""
    world = clicks_world(guarantee)
    first = world.node("a")
    while not any(t.uncommitted_records for t in first.runtime.tasks.values()):
        first.turn()
    clock = first.runtime._clock
    monkeypatch.setattr(Silent, "waited_s", 0.0)
    monkeypatch.setattr(clock, "monotonic_s", lambda: world.log.now_ms / 1000 + Silent.waited_s)
    for producer in first.producers:
        producer.__class__ = Silent
    tasks = first.runtime.tasks.values()
    first.runtime._on_revoke([TopicPartition(topic, task.id.partition) for task in tasks for topic in task.topics])
    assert 0 < Silent.waited_s <= first.runtime.options.session_timeout_ms / 1000 / 3
    assert not first.runtime.tasks


def test_commit_without_positions_proves_no_ownership() -> None:
    """The broker checks the membership with the positions only."""
    log = MemoryLog()
    consumer = MemoryConsumer(log, "group")
    committer = Committer(
        "exactly_once", consumer, lambda: MemoryProducer(log, transactional_id="id"), lambda: "group", lambda *_: b""
    )
    committer._ready()
    assert committer.commit([], 5)
    assert committer._proved_ms is None

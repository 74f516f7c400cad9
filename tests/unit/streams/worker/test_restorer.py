"""Opening tasks: real RocksDB stores brought to the end of changelogs on the in-memory log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.position import Position, encode_position
from penstock.state.serdes.serde import optional, serde_of
from penstock.state.stores.store import Puts, StoreSpec, StoreWrites
from penstock.streams.events.facts import LockAwaited, RestoreCancelled, RestoreFinished
from penstock.streams.ports.log import TopicSpec
from penstock.streams.task.task_stores import Reached, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.worker import restorer as restoring
from penstock.streams.worker.restorer import Restorer, TaskOpener
from tests.recorder import Recorder

APP = "app"
TASK = TaskId(0, 0)
SPEC = StoreSpec("s", "key_value", serde_of(bytes), serde_of(bytes))
CHANGELOG = TopicPartition("app-s-changelog", 0)


class Bench:
    """One changelog, one state folder."""

    def __init__(self, path: Path) -> None:
        self.log = MemoryLog()
        self.log.create(TopicSpec(CHANGELOG.topic, 1, config={"cleanup.policy": "compact"}))
        self.directory = StateDirectory(path, APP)
        self.directory.claim(cluster_id="memory", fingerprint="f")
        self.events = Recorder()

    def opener(self, *, lock_timeout_s: float = 60.0) -> TaskOpener:
        return TaskOpener(
            APP,
            self.directory,
            MemoryAdmin(self.log),
            lambda: MemoryConsumer(self.log, "restore"),
            lambda: 1_000,
            lock_timeout_s=lock_timeout_s,
            events=self.events,
        )

    def pending(self, *keys: bytes) -> MemoryProducer:
        """A transaction on the changelog that is still open."""
        producer = MemoryProducer(self.log, transactional_id="t")
        producer.init_transactions(1)
        producer.begin()
        producer.send(CHANGELOG.topic, list(keys), [b"v"] * len(keys), [1] * len(keys), partition=0)
        return producer


def keys_of(state: TaskStores) -> list[bytes]:
    return [k for k, _ in state.backend.range("s", None, None)]


def reached(offset: int) -> Reached:
    return Reached({"in": 1}, {"s": offset})


def test_restore_waits_for_the_markers_of_the_last_commit(tmp_path: Path) -> None:
    """The positions of a commit can be read before the end of its changelog."""
    bench = Bench(tmp_path)
    producer = bench.pending(b"a", b"b")
    threading.Timer(0.3, lambda: producer.commit(1)).start()
    state = bench.opener().open(TASK, [SPEC], reached(2))
    assert keys_of(state) == [b"a", b"b"]
    state.close()


def test_restore_does_not_wait_for_what_was_never_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.pending(b"a")
    state = bench.opener().open(TASK, [SPEC], reached(0))
    assert keys_of(state) == []
    state.close()


def test_changelog_that_lacks_what_was_committed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "MARKERS_WAIT_S", 0.2)
    with pytest.raises(IncompatibleError, match="ends at 0, but the last commit of group app wrote store s up to 7"):
        Bench(tmp_path).opener().open(TASK, [SPEC], reached(7))


def test_second_opening_replays_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.pending(b"a", b"b").commit(1)
    bench.opener().open(TASK, [SPEC], reached(2)).close()
    seen: list[int] = []
    opener = TaskOpener(
        APP,
        bench.directory,
        MemoryAdmin(bench.log),
        lambda: MemoryConsumer(bench.log, "restore"),
        lambda: 1_000,
        on_progress=lambda task, store, progress: seen.append(progress.offsets_total),
    )
    state = opener.open(TASK, [SPEC], reached(2))
    assert seen == [0]
    assert keys_of(state) == [b"a", b"b"]
    state.close()


@pytest.mark.parametrize("transactional", [False, True])
def test_store_that_lacks_nothing_is_kept_when_its_changelog_has_expired(tmp_path: Path, transactional: bool) -> None:
    """A transaction's marker stands behind the last record, so that the store is never at the log's very end."""
    bench = Bench(tmp_path)
    bench.opener().open(TASK, [SPEC], reached(0)).close()
    producer = MemoryProducer(bench.log, transactional_id="t" if transactional else None)
    if transactional:
        producer.init_transactions(1)
        producer.begin()
    producer.send(CHANGELOG.topic, [b"a"], [b"v"], [1], partition=0)
    end = producer.flush(1)[CHANGELOG]
    if transactional:
        producer.commit(1)
    state = bench.opener().open(TASK, [SPEC], reached(0))
    ids = MemoryAdmin(bench.log).topic_ids([CHANGELOG.topic])
    position = encode_position(Position(end, {}, "memory", ids, 1_000))
    state.backend.commit([StoreWrites("s", Puts([b"a"], [b"v"]), position)])
    state.close()
    bench.log.partition(CHANGELOG).delete_before(bench.log.partition(CHANGELOG).last_stable)
    state = bench.opener().open(TASK, [SPEC], reached(end))
    assert keys_of(state) == [b"a"]
    state.close()


def test_task_that_a_sibling_holds_is_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    lock = bench.directory.lock(str(TASK), timeout_s=0)
    with pytest.raises(RetriableError, match="held by process"):
        bench.opener(lock_timeout_s=0.1).open(TASK, [SPEC], reached(0))
    assert bench.events.facts == [], "it was not waited for"
    threading.Timer(2.5 * restoring.LOCK_TURN_S, lock.release).start()
    bench.opener().open(TASK, [SPEC], reached(0)).close()
    assert bench.events.facts == [LockAwaited(TASK), RestoreFinished(TASK, "s", 0, 0, bench.events.facts[-1].seconds)]


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_restorer_gives_states_and_errors(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    restorer = Restorer(bench.opener(lock_timeout_s=0.1))
    other = TaskId(0, 1)
    lock = bench.directory.lock(str(other), timeout_s=0)
    found: dict[TaskId, TaskStores | BaseException] = {}
    restorer.submit(TASK, [SPEC], reached(0))
    restorer.submit(other, [SPEC], reached(0))
    until(lambda: found.update(restorer.finished()) or len(found) == 2)
    lock.release()
    state = found[TASK]
    assert isinstance(state, TaskStores)
    state.close()
    assert isinstance(found[other], RetriableError)
    restorer.close()


def test_a_restore_is_begun_again_while_brokers_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_ATTEMPT_PAUSE_S", 0.01)
    bench = Bench(tmp_path)
    bench.pending(b"a").commit(1)
    opener, asked = bench.opener(), []
    watermarks = MemoryConsumer.watermarks

    def answers_late(consumer: MemoryConsumer, partition: TopicPartition) -> tuple[int, int]:
        asked.append(partition)
        if len(asked) < restoring.ATTEMPTS_MAX:
            raise RetriableError("no broker answers")
        return watermarks(consumer, partition)

    monkeypatch.setattr(MemoryConsumer, "watermarks", answers_late)
    restorer = Restorer(opener)
    found: dict[TaskId, TaskStores | BaseException] = {}
    restorer.submit(TASK, [SPEC], reached(1))
    until(lambda: found.update(restorer.finished()) or len(found) == 1)
    state = found[TASK]
    assert isinstance(state, TaskStores), state
    assert keys_of(state) == [b"a"]
    assert bench.events.counts() == {
        "RestoreRetried": restoring.ATTEMPTS_MAX - 1, "RestoreStarted": 1, "RestoreFinished": 1,
    }  # fmt: skip
    state.close()
    restorer.close()


def test_restorer_forgets_a_task_that_was_taken_away(tmp_path: Path) -> None:
    """It does not wait for the lock either, so that a stop is quick."""
    bench = Bench(tmp_path)
    restorer = Restorer(bench.opener(lock_timeout_s=60.0))
    lock = bench.directory.lock(str(TASK), timeout_s=0)
    restorer.submit(TASK, [SPEC], reached(0))
    until(lambda: bench.events.facts)
    restorer.cancel(TASK)
    started = time.monotonic()
    restorer.close()
    assert time.monotonic() - started < 30
    assert restorer.finished() == []
    assert bench.events.facts == [LockAwaited(TASK), RestoreCancelled(TASK)]
    lock.release()
    bench.opener().open(TASK, [SPEC], reached(0)).close()


def test_versions_that_came_too_late_are_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live table dropped them, and reads as of its history must find what they find there."""
    monkeypatch.setattr(restoring, "RESTORE_POLL_RECORDS", 2)
    bench = Bench(tmp_path)
    bench.log.create(TopicSpec("rates", 1))
    value = optional(serde_of(bytes))
    spec = StoreSpec("rates", "versioned", serde_of(bytes), value, source_topic="rates", retention_ms=10)
    rows = [(b"b", 1), (b"a", 100), (b"b", 5), (b"b", 90), (b"a", 120), (b"b", 109)]
    producer = MemoryProducer(bench.log, transactional_id="t")
    producer.init_transactions(1)

    def restored(some: list[tuple[bytes, int]], end: int) -> list[tuple[bytes, int]]:
        producer.begin()
        keys, times = [k for k, _ in some], [t for _, t in some]
        producer.send("rates", keys, [b"v"] * len(some), times, partition=0)
        producer.commit(1)
        state = bench.opener().open(TASK, [spec], Reached({"rates": end}, {}))
        found = [(k[:-8], int.from_bytes(k[-8:], "big")) for k, _ in state.backend.range("rates", None, None)]
        state.close()
        return found

    assert restored(rows[:3], 3) == [(b"a", 100), (b"b", 1)]
    # the folder is there, and goes on from where it was
    assert restored(rows[3:], 7) == [(b"a", 100), (b"a", 120), (b"b", 1), (b"b", 90)]

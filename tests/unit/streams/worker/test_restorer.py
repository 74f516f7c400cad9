"""Opening tasks: real RocksDB stores brought to the end of changelogs on the in-memory log."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.position import Position, encode_position
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.serdes.serde import optional, serde_of
from penstock.state.stores.store import Puts, StoreSpec, StoreWrites
from penstock.streams.events.facts import (
    LockAwaited,
    RestoreCancelled,
    RestoreRetried,
    RestoreStarted,
    StoreQuarantined,
)
from penstock.streams.ports.log import TopicSpec
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.worker import retry_queue
from penstock.streams.worker import task_opener as restoring
from penstock.streams.worker.restorer import Restorer
from penstock.streams.worker.task_opener import LOCK_TURN_S, Cancelled, TaskOpener
from tests.recorder import Recorder

APP = "app"
TASK = TaskId(0, 0)
SPEC = StoreSpec("s", "key_value", serde_of(bytes), serde_of(bytes))
OTHER = StoreSpec("other", "key_value", serde_of(bytes), serde_of(bytes))
CHANGELOG = TopicPartition("app-s-changelog", 0)


class Bench:
    """One changelog, one state folder."""

    def __init__(self, path: Path) -> None:
        self.log = MemoryLog()
        self.log.create(TopicSpec(CHANGELOG.topic, 1, config={"cleanup.policy": "compact"}))
        self.directory = StateDirectory(path, APP)
        self.directory.claim(cluster_id="memory", fingerprint="f")
        self.events = Recorder()

    def opener(self, *, lock_timeout_s: float = 0.1) -> TaskOpener:
        return TaskOpener(
            APP,
            self.directory,
            MemoryAdmin(self.log),
            lambda: MemoryConsumer(self.log, "restore"),
            lambda: 1_000,
            RocksDBBackend,
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


def reached(offset: int) -> CommittedPositions:
    return CommittedPositions({"in": 1}, {"s": offset})


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


def test_store_that_has_read_what_the_log_lost_is_quarantined(tmp_path: Path) -> None:
    """A leader without the last record, and another one in its place: the offsets say nothing."""
    bench = Bench(tmp_path)
    log = bench.log.partition(CHANGELOG)
    bench.log.append(CHANGELOG, LogEntry(b"a", b"v", 1))
    bench.log.append(CHANGELOG, LogEntry(b"lost", b"v", 1))
    bench.opener().open(TASK, [SPEC], reached(1)).close()
    log.truncate(1)
    bench.log.append(CHANGELOG, LogEntry(b"b", b"v", 1))
    state = bench.opener().open(TASK, [SPEC], CommittedPositions({"in": 1}, {"s": 1}, {"s": 0}))
    assert keys_of(state) == [b"a", b"b"]
    state.close()
    (fact,) = [f for f in bench.events.facts if isinstance(f, StoreQuarantined)]
    assert "the leader of app-s-changelog had epoch 0; a later leader lacked records" in str(fact)
    log.elect()
    bench.opener().open(TASK, [SPEC], CommittedPositions({"in": 1}, {"s": 2}, {"s": 1})).close()
    assert len([f for f in bench.events.facts if isinstance(f, StoreQuarantined)]) == 1, "a leader that has all"


def test_changelog_in_which_others_stand_for_what_was_committed_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for key in (b"a", b"lost"):
        bench.log.append(CHANGELOG, LogEntry(key, b"v", 1))
    bench.log.partition(CHANGELOG).truncate(1)
    bench.log.append(CHANGELOG, LogEntry(b"b", b"v", 1))
    with pytest.raises(IncompatibleError, match="no longer holds what the last commit wrote up to offset 2"):
        bench.opener().open(TASK, [SPEC], CommittedPositions({"in": 1}, {"s": 2}, {"s": 0}))


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
        RocksDBBackend,
        on_progress=lambda task, store, progress: seen.append(progress.offsets_total),
    )
    state = opener.open(TASK, [SPEC], reached(2))
    assert seen == [0]
    assert keys_of(state) == [b"a", b"b"]
    state.close()


def test_worker_that_is_killed_behind_a_restore_need_not_do_it_again(tmp_path: Path) -> None:
    """What it had restored is on the disk before the first commit, and so before the first flush."""
    bench, copied = Bench(tmp_path / "killed"), Bench(tmp_path / "next")
    for each in (bench, copied):
        each.pending(b"a", b"b").commit(1)
    copied.log = bench.log
    state = bench.opener().open(TASK, [SPEC], reached(2))
    here, there = (b.directory.database_path(str(TASK)) for b in (bench, copied))
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("LOCK"))  # as a kill leaves it
    state.close()
    again = copied.opener().open(TASK, [SPEC], reached(2))
    assert keys_of(again) == [b"a", b"b"]
    assert copied.events.of(RestoreStarted) == []
    again.close()


def test_broker_that_does_not_know_a_new_changelog_yet_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.pending(b"a").commit(1)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryAdmin, "topic_ids", lambda self, topics: {})
        with pytest.raises(RetriableError, match="knows topic app-s-changelog"):
            bench.opener().open(TASK, [SPEC], reached(1))
    state = bench.opener().open(TASK, [SPEC], reached(1))
    assert keys_of(state) == [b"a"]
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
        bench.opener().open(TASK, [SPEC], reached(0))
    threading.Timer(0.2, lock.release).start()
    bench.opener(lock_timeout_s=60.0).open(TASK, [SPEC], reached(0)).close()


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_task_that_a_frozen_sibling_holds_is_waited_for_while_others_are_restored(tmp_path: Path) -> None:
    """A sibling that is stopped lets go of nothing, for as long as it is."""
    bench = Bench(tmp_path)
    restorer = Restorer(bench.opener())
    held, other = TASK, TaskId(0, 1)
    bench.log.create(TopicSpec("app-other-changelog", 2, config={"cleanup.policy": "compact"}))
    lock = bench.directory.lock(str(held), timeout_s=0)
    found: dict[TaskId, TaskStores | BaseException] = {}
    restorer.submit(held, [SPEC], reached(0))
    restorer.submit(other, [OTHER], reached(0))
    until(lambda: found.update(restorer.finished()) or found)
    assert list(found) == [other]
    time.sleep(3 * LOCK_TURN_S)
    assert restorer.finished() == []
    assert bench.events.of(LockAwaited) == [LockAwaited(held, 0.0)], "once, however often it was tried"
    lock.release()
    until(lambda: found.update(restorer.finished()) or len(found) == 2)
    restorer.close()
    for state in found.values():
        assert isinstance(state, TaskStores), state
        state.close()
    assert bench.events.counts() == {"LockAwaited": 1, "RestoreFinished": 2}


def test_restorer_gives_errors_that_waiting_does_not_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "MARKERS_WAIT_S", 0.2)
    restorer = Restorer(Bench(tmp_path).opener())
    restorer.submit(TASK, [SPEC], reached(7))
    found: dict[TaskId, TaskStores | BaseException] = {}
    until(lambda: found.update(restorer.finished()) or found)
    assert isinstance(found[TASK], IncompatibleError)
    restorer.close()


def test_a_restore_is_begun_again_while_brokers_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "PAUSE_MAX_S", 0.01)
    bench = Bench(tmp_path)
    bench.pending(b"a").commit(1)
    opener, asked = bench.opener(), []
    watermarks = MemoryConsumer.watermarks

    def answers_late(consumer: MemoryConsumer, partition: TopicPartition) -> tuple[int, int]:
        asked.append(partition)
        if len(asked) < 30:
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
    assert bench.events.counts() == {"RestoreRetried": 1, "RestoreStarted": 1, "RestoreFinished": 1}
    state.close()
    restorer.close()
    assert "no broker answers" in str(bench.events.of(RestoreRetried)[0].cause)


def test_a_question_that_is_never_answered_does_not_keep_a_worker_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, asked, answered = Bench(tmp_path), threading.Event(), threading.Event()

    def never(consumer: MemoryConsumer, partition: TopicPartition) -> tuple[int, int]:
        asked.set()
        answered.wait(60)
        raise RetriableError("no broker answers")

    monkeypatch.setattr(MemoryConsumer, "watermarks", never)
    restorer = Restorer(bench.opener())
    restorer.submit(TASK, [SPEC], reached(1))
    assert asked.wait(60)
    restorer.close()
    assert not answered.is_set()
    answered.set()
    with bench.directory.lock(str(TASK), timeout_s=60):
        pass  # let go of once the answer came


def test_restorer_forgets_a_task_that_was_taken_away(tmp_path: Path) -> None:
    """It does not wait for the lock either, so that a stop is quick."""
    bench = Bench(tmp_path)
    restorer = Restorer(bench.opener())
    lock = bench.directory.lock(str(TASK), timeout_s=0)
    restorer.submit(TASK, [SPEC], reached(0))
    until(lambda: bench.events.facts)
    restorer.cancel(TASK)
    started = time.monotonic()
    restorer.close()
    assert time.monotonic() - started < 30
    assert restorer.finished() == []
    assert bench.events.facts == [LockAwaited(TASK, 0.0), RestoreCancelled(TASK)]
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
        state = bench.opener().open(TASK, [spec], CommittedPositions({"rates": end}, {}))
        found = [(k[:-8], int.from_bytes(k[-8:], "big")) for k, _ in state.backend.range("rates", None, None)]
        state.close()
        return found

    assert restored(rows[:3], 3) == [(b"a", 100), (b"b", 1)]
    # the folder is there, and goes on from where it was
    assert restored(rows[3:], 7) == [(b"a", 100), (b"a", 120), (b"b", 1), (b"b", 90)]


def test_interrupted_restore_keeps_the_age_of_its_oldest_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a changelog was read onto an old store. What deletes a key of the old part lies ahead, and is gone when the
    restore goes on: the store is as old as it was, and is restored from the begin."""
    hour_ms = 3_600_000
    monkeypatch.setattr(restoring, "RESTORE_POLL_RECORDS", 10)
    bench, clock = Bench(tmp_path), [1_000 * hour_ms]
    log = bench.log.partition(CHANGELOG)

    def opener() -> TaskOpener:
        consumer = lambda: MemoryConsumer(bench.log, "restore")  # noqa: E731  # as the bench's
        return TaskOpener(APP, bench.directory, MemoryAdmin(bench.log), consumer, lambda: clock[0], RocksDBBackend)

    bench.log.append(CHANGELOG, LogEntry(b"dead", b"v", 1))
    opener().open(TASK, [SPEC], reached(1)).close()
    for i in range(40):
        bench.log.append(CHANGELOG, LogEntry(b"k%02d" % i, b"v", 1))
    bench.log.append(CHANGELOG, LogEntry(b"dead", None, 1))
    bench.log.append(CHANGELOG, LogEntry(b"last", b"v", 1))
    clock[0] += 20 * hour_ms
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Cancelled):
        opener().open(TASK, [SPEC], reached(log.end), cancelled)
    for _ in range(2):  # a deletion is removed at the second time
        bench.log.advance(1)
        log.compact(bench.log.now_ms, 0)
    clock[0] += 20 * hour_ms
    state = opener().open(TASK, [SPEC], reached(log.end))
    assert keys_of(state) == [*(b"k%02d" % i for i in range(40)), b"last"]
    state.close()


def test_what_lies_behind_the_last_commit_is_not_restored_at_least_once(tmp_path: Path) -> None:
    """Nobody knows whether a stale worker wrote it; the next owner does its input again."""
    bench = Bench(tmp_path)
    for key, value in [(b"a", b"new"), (b"b", b"new"), (b"a", b"stale"), (b"c", b"stale")]:
        bench.log.append(CHANGELOG, LogEntry(key, value, 1))
    opener = TaskOpener(
        APP,
        bench.directory,
        MemoryAdmin(bench.log),
        lambda: MemoryConsumer(bench.log, "restore"),
        lambda: 1_000,
        RocksDBBackend,
        committed_only=True,
    )
    state = opener.open(TASK, [SPEC], reached(2))
    assert [(k, v[8:]) for k, v in state.backend.range("s", None, None)] == [(b"a", b"new"), (b"b", b"new")]
    state.close()

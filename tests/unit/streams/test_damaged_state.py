"""Stores that cannot be trusted: set aside with what was seen, and restored from what can."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.changelog import changelog_configs, from_changelog_columns
from penstock.state.recovery.position import decode_position, encode_position
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.serdes.serde import serde_of
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import StoredSnapshots, open_repository
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm, write_snapshot
from penstock.streams.events.facts import (
    RestoreFinished,
    RestoreStarted,
    SnapshotRefused,
    SnapshotUsed,
    StoreQuarantined,
)
from penstock.streams.ports.log import TopicSpec
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import MemoryLog
from penstock.streams.worker.task_opener import TaskOpener
from tests.recorder import Recorder

APP = "app"
TASK = TaskId(0, 0)
SPEC = StoreSpec("s", "key_value", serde_of(bytes), serde_of(bytes))
UNLOGGED = dataclasses.replace(SPEC, name="a-cache", changelog=False)
SESSIONS = StoreSpec("s", "session", serde_of(str), serde_of(str), retention_ms=120_000)
DAY_MS = 86_400_000


class Bench:
    """One changelog, one state folder, one snapshot repository."""

    def __init__(self, path: Path, spec: StoreSpec = SPEC) -> None:
        self.spec = spec
        self.changelog = TopicPartition("app-s-changelog", 0)
        self.log = MemoryLog()
        self.log.create(TopicSpec(self.changelog.topic, 1, config=changelog_configs(spec)))
        self.directory = StateDirectory(path / "state", APP)
        self.directory.claim(cluster_id="memory", fingerprint="f")
        self.repository = open_repository(path / "snapshots")
        self.database = self.directory.database_path(str(TASK))
        self.now_ms = 1_000
        self.written = 0
        self.events = Recorder()
        self.epochs: dict[str, int] = {}

    def write(self, keys: list[bytes], values: list[bytes | None] | None = None) -> None:
        """Commit records to the changelog, as a task would."""
        producer = MemoryProducer(self.log, transactional_id="t")
        producer.init_transactions(1)
        producer.begin()
        producer.send(self.changelog.topic, keys, values or [b"v"] * len(keys), [1] * len(keys), partition=0)
        self.written = producer.flush(1)[self.changelog]
        producer.commit(1)

    def open(self, *stores: StoreSpec) -> TaskStores:
        opener = TaskOpener(
            APP,
            self.directory,
            MemoryAdmin(self.log),
            lambda: MemoryConsumer(self.log, "restore"),
            lambda: self.now_ms,
            RocksDBBackend,
            repository=self.repository,
            lock_timeout_s=0.1,
            events=self.events,
        )
        inputs = {self.changelog.topic: self.log.partition(self.changelog).last_stable}
        return opener.open(TASK, stores or [self.spec], CommittedPositions(inputs, {"s": self.written}, self.epochs))

    def snapshot(self) -> Manifest:
        """Publish the changelog as it is now."""
        admin, end = MemoryAdmin(self.log), self.log.partition(self.changelog).last_stable
        topic = self.changelog.topic
        facts = ChangelogFacts(topic, admin.topic_ids([topic])[topic], admin.cluster_id(), 0, end, True, DAY_MS)
        target = CompactTarget(0, APP, StoreForm.of(self.spec), 0, facts, 0, end, None, self.now_ms, None, -1)
        records = [e for _, e in self.log.partition(self.changelog).committed(0)]
        keys, values, times = zip(*((r.key, r.value, r.timestamp_ms) for r in records), strict=True)
        entries = sorted(from_changelog_columns(self.spec, keys, values, times))
        manifest = write_snapshot(self.repository, target, ((k, v) for k, v in entries if v is not None), 1 << 20)
        self.repository.publish(manifest)
        return manifest

    def quarantined(self) -> list[str]:
        return sorted(p.name for p in self.database.parent.iterdir() if "quarantine" in p.name)

    def flip(self, place: float) -> None:
        """Change a bit in the largest table file."""
        file = max(self.database.glob("*.sst"), key=lambda f: f.stat().st_size)
        data = bytearray(file.read_bytes())
        data[int(len(data) * place)] ^= 1
        file.write_bytes(data)


def keys_of(state: TaskStores, store: str = "s") -> list[bytes]:
    return [k for k, _ in state.backend.range(store, None, None)]


def many(count: int = 5_000) -> tuple[list[bytes], list[bytes | None]]:
    return [b"k%06d" % i for i in range(count)], [os.urandom(20) for _ in range(count)]


def test_an_unreadable_position_is_set_aside_in_the_same_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a", b"b"])
    bench.open().close()
    backend = RocksDBBackend(bench.database, [SPEC])
    backend.commit([StoreWrites("s", [], b"garbage")])
    backend.close()
    state = bench.open()
    assert keys_of(state) == [b"a", b"b"]
    (aside,) = bench.events.of(StoreQuarantined)
    assert aside.task == TASK and "7 bytes that begin with b'garbage'" in aside.reason
    assert [(f.from_offset, f.to_offset) for f in bench.events.of(RestoreStarted)] == [(0, 3)] * 2
    assert [f.records for f in bench.events.of(RestoreFinished)] == [2, 2]
    assert bench.quarantined() == ["rocksdb.quarantine-1"]
    state.close()


def test_damage_that_is_met_while_opening_is_set_aside_in_the_same_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a", b"b"])
    bench.open().close()
    bench.flip(0.01)
    state = bench.open()
    assert keys_of(state) == [b"a", b"b"]
    assert bench.quarantined() == ["rocksdb.quarantine-1"]
    state.close()


def test_a_database_whose_opening_fails_late_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    bench.open().close()
    with monkeypatch.context() as patched:
        patched.setattr(RocksDBBackend, "is_empty", lambda backend, store: 1 / 0)
        with pytest.raises(ZeroDivisionError) as failed:
            RocksDBBackend(bench.database, [SPEC])
    RocksDBBackend(bench.database, [SPEC]).close()
    assert failed.value is not None, "the error is held while it is opened again"


def test_damage_that_is_met_by_a_read_is_known_at_the_next_opening(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    keys, values = many()
    bench.write(keys, values)
    bench.open().close()
    bench.flip(0.5)
    state = bench.open()
    with pytest.raises(StateCorruptedError, match="checksum"):
        state.backend.get_many("s", keys)
    assert state.backend.damaged is not None
    state.close()
    state = bench.open()
    (aside,) = bench.events.of(StoreQuarantined)
    assert "damage was met" in aside.reason
    assert state.backend.get_many("s", keys) == [(1).to_bytes(8, "big") + (v or b"") for v in values]
    assert bench.quarantined() == ["rocksdb.quarantine-1"]
    state.close()
    bench.open().close()
    assert bench.quarantined() == ["rocksdb.quarantine-1"]


def test_damage_that_is_met_by_the_restore_is_set_aside(tmp_path: Path) -> None:
    """A table of versions is read whole before its topic is read on."""
    topic = "app-s-changelog"
    spec = StoreSpec("s", "versioned", serde_of(bytes), serde_of(bytes), source_topic=topic, retention_ms=10)
    bench = Bench(tmp_path, spec)
    keys, values = many()
    bench.write(keys, values)
    bench.open().close()
    bench.flip(0.5)
    bench.write([b"l"])
    state = bench.open()
    assert len(keys_of(state)) == 5_001
    assert bench.quarantined() == ["rocksdb.quarantine-1"]
    state.close()


def test_what_was_deleted_after_the_last_commit_is_not_lost(tmp_path: Path) -> None:
    """A changelog whose windows have all expired is empty, and another broker leads it."""
    bench = Bench(tmp_path)
    bench.write([b"a", b"b"])
    state = bench.open()
    position = decode_position(state.backend.position("s") or b"")
    # as the commit left it, one marker before the end
    state.backend.commit(
        [StoreWrites("s", [], encode_position(dataclasses.replace(position, changelog_offset=bench.written)))]
    )
    state.close()
    bench.epochs = {"s": 0}
    log = bench.log.partition(bench.changelog)
    log.delete_before(log.end)
    log.elect()
    state = bench.open()
    assert keys_of(state) == [b"a", b"b"]
    assert bench.quarantined() == []
    state.close()


def test_stores_without_a_changelog_are_not_restored_after_a_quarantine(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    bench.open(UNLOGGED, SPEC).close()
    bench.write([b"b"])
    bench.now_ms += 3 * DAY_MS  # deletions may have been missed
    state = bench.open(UNLOGGED, SPEC)
    assert keys_of(state) == [b"a", b"b"]
    assert keys_of(state, UNLOGGED.name) == []
    assert bench.quarantined() == ["rocksdb.quarantine-1"]
    state.close()


def test_a_restore_that_fails_after_a_quarantine_lets_the_new_database_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    bench.open().close()
    bench.write([b"b"])
    bench.now_ms += 3 * DAY_MS
    with monkeypatch.context() as patched:
        patched.setattr(MemoryConsumer, "poll", lambda *_: (_ for _ in ()).throw(RetriableError("no broker answers")))
        with pytest.raises(RetriableError, match="no broker"):
            bench.open()
    state = bench.open()
    assert keys_of(state) == [b"a", b"b"]
    state.close()


# -- snapshots ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["changed", "missing", "no table"])
def test_an_older_snapshot_takes_the_place_of_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    older = bench.snapshot()
    bench.write([b"b"])
    newest = bench.snapshot()
    bench.write([b"c"])
    (file,) = (tmp_path / "snapshots").rglob(newest.files[0].name)
    if how == "missing":
        file.unlink()
    elif how == "changed":
        file.write_bytes(bytes(file.stat().st_size))
    else:  # RocksDB does not take what the repository gives
        fetch = StoredSnapshots.fetch

        def fetched(repository: StoredSnapshots, manifest: Manifest, folder: Path) -> list[Path]:
            files = fetch(repository, manifest, folder)
            if manifest == newest:
                files[0].write_bytes(b"no table")
            return files

        monkeypatch.setattr(StoredSnapshots, "fetch", fetched)
    state = bench.open()
    assert keys_of(state) == [b"a", b"b", b"c"]
    assert state.backend.damaged is None
    (refused,) = bench.events.of(SnapshotRefused)
    assert (refused.task, refused.store) == (TASK, "s")
    assert bench.events.of(SnapshotUsed) == [SnapshotUsed(TASK, "s", older.name, older.changelog_offset)]
    (started,) = bench.events.of(RestoreStarted)
    assert f"at offset {older.changelog_offset} is usable" in started.reason
    assert bench.quarantined() == []
    state.close()


def test_without_a_sound_snapshot_the_changelog_is_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    manifest = bench.snapshot()
    for file in (tmp_path / "snapshots").rglob(manifest.files[0].name):
        file.unlink()
    state = bench.open()
    assert keys_of(state) == [b"a"]
    assert len(bench.events.of(SnapshotRefused)) == 1
    (started,) = bench.events.of(RestoreStarted)
    assert "from the beginning of" in started.reason
    state.close()


def test_what_a_killed_process_has_fetched_is_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write([b"a"])
    bench.snapshot()
    left = bench.database.parent / "fetched" / "half.sst"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    bench.open().close()
    assert sorted(p.name for p in bench.database.parent.iterdir()) == ["lock", "rocksdb"]
    assert sorted(p.name for p in bench.directory.path.iterdir()) == [str(TASK), "identity.json"]


# -- a retention that was changed --------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["local", "snapshot"])
@pytest.mark.parametrize("retention_ms", [120_000, 720_000, 60_000])
def test_keys_of_another_retention_are_made_anew(tmp_path: Path, kept: str, retention_ms: int) -> None:
    bench = Bench(tmp_path, SESSIONS)
    session = b"k" + (1_000_000).to_bytes(8, "big") + (990_000).to_bytes(8, "big")
    bench.write([session], [b"A"])
    if kept == "local":
        bench.open().close()
    else:
        bench.snapshot()
    spec = dataclasses.replace(SESSIONS, retention_ms=retention_ms)
    state = bench.open(spec)
    found = SegmentedState(KeyValueStoreView(spec, state.backend)).fetch(b"k", 0, 2_000_000)
    assert [(e.time_ms, e.value) for e in found] == [(1_000_000, "A")]
    changed = retention_ms != SESSIONS.retention_ms
    kind = StoreQuarantined if kept == "local" else SnapshotRefused
    assert ["in segments of 60000 ms" in fact.reason for fact in bench.events.of(kind)] == [True] * changed
    assert bool(bench.quarantined()) == (changed and kept == "local")
    state.close()

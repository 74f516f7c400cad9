"""Changelogs that are trimmed behind snapshots: how far, in which order, and that a job that dies on the way harms
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.serdes.serde import BYTES
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import SnapshotRepository, open_repository
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.batch import changelog_trimming
from penstock.streams.batch.changelog_trimming import DELETIONS_KEPT_MS, trim, trimmed_stores
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm, write_snapshot
from penstock.streams.ports.log import Deletion, TopicSpec
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import LogEntry, MemoryLog

LOG = TopicPartition("app-counts-changelog", 0)


class Died(Exception):
    """The job, in the middle."""


class Admin(MemoryAdmin):
    """Dies before a step, if it is told to."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.steps: list[str] = []
        self.dies_before: str | None = None

    def _step(self, name: str) -> None:
        if name == self.dies_before:
            raise Died
        self.steps.append(name)

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        self._step(min(config))
        super().set_topic_config(topic, config)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        self._step("deleted")
        return super().delete_before(offsets)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create(TopicSpec(LOG.topic, 1, 1, {"cleanup.policy": "compact"}))
    for i in range(100):
        log.append(LOG, LogEntry(b"k%d" % i, b"v", i))
    return log


@pytest.fixture
def snapshots(tmp_path: Path) -> Iterator[SnapshotRepository]:
    yield open_repository(tmp_path)


def published(log: MemoryLog, snapshots: SnapshotRepository, offset: int) -> Manifest:
    facts = ChangelogFacts(LOG.topic, log.topics[LOG.topic].topic_id, log.cluster_id, 0, 100, True, 86_400_000)
    form = StoreForm("counts", "key_value", None, None)
    target = CompactTarget(0, "app", form, 0, facts, 0, offset, None, 1, None, -1)
    manifest = write_snapshot(snapshots, target, iter([(b"k", bytes(9))]), 1 << 20)
    snapshots.publish(manifest)
    return manifest


def begin(log: MemoryLog) -> int:
    return log.partition(LOG).first


def trim_now(
    admin: Admin, log: MemoryLog, snapshots: SnapshotRepository, newest: Manifest
) -> dict[TopicPartition, int]:
    return trim(admin, snapshots, [newest], {LOG: begin(log)})


def test_the_first_time_only_what_follows_the_newest_snapshot_stays(
    log: MemoryLog, snapshots: SnapshotRepository
) -> None:
    """Until then deletions may be missing behind the older ones."""
    admin = Admin(log)
    published(log, snapshots, 20)
    assert trim_now(admin, log, snapshots, published(log, snapshots, 50)) == {LOG: 50}
    assert begin(log) == 50
    assert admin.steps == ["cleanup.policy", "deleted", "delete.retention.ms"]
    config = admin.topic_config(LOG.topic)
    assert (config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]) == (
        "compact,delete",
        "-1",
        "-1",
    )
    assert int(config["delete.retention.ms"]) == DELETIONS_KEPT_MS


def test_later_all_snapshots_that_are_kept_stay_usable(log: MemoryLog, snapshots: SnapshotRepository) -> None:
    admin = Admin(log)
    trim_now(admin, log, snapshots, published(log, snapshots, 50))
    admin.steps.clear()
    assert trim_now(admin, log, snapshots, published(log, snapshots, 70)) == {}, "the one at 50 needs what follows it"
    third = published(log, snapshots, 90)
    snapshots.prune(third.of, keep=2, now_ms=1)
    assert trim_now(admin, log, snapshots, third) == {LOG: 70}
    assert admin.steps == ["deleted"]


@pytest.mark.parametrize("step", ["cleanup.policy", "deleted", "delete.retention.ms"])
def test_a_job_that_dies_is_run_again(log: MemoryLog, snapshots: SnapshotRepository, step: str) -> None:
    admin = Admin(log)
    admin.dies_before = step
    published(log, snapshots, 20)
    with pytest.raises(Died):
        trim_now(admin, log, snapshots, published(log, snapshots, 50))
    assert int(admin.topic_config(LOG.topic)["delete.retention.ms"]) < DELETIONS_KEPT_MS, "older ones still age"
    admin.dies_before = None
    trim_now(admin, log, snapshots, published(log, snapshots, 60))
    assert begin(log) == 60
    assert int(admin.topic_config(LOG.topic)["delete.retention.ms"]) == DELETIONS_KEPT_MS


def test_a_refusal_says_what_to_do(
    log: MemoryLog, snapshots: SnapshotRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(log)
    newest = published(log, snapshots, 50)
    monkeypatch.setattr(admin, "delete_before", lambda offsets: lambda: dict.fromkeys(offsets, "not authorized"))
    with pytest.raises(EnvironmentFault, match=r"app-counts-changelog \[0\].*not authorized.*ALTER_CONFIGS"):
        trim_now(admin, log, snapshots, newest)
    monkeypatch.setattr(admin, "delete_before", lambda offsets: lambda: None)
    monkeypatch.setattr(changelog_trimming, "_WAIT_S", 0.01)
    with pytest.raises(EnvironmentFault, match="did not answer"):
        trim_now(admin, log, snapshots, newest)


@pytest.mark.parametrize(
    ("kind", "source", "changelog", "trimmed"),
    [
        ("key_value", None, True, True),
        ("key_value", "table", True, False),
        ("key_value", None, False, False),
        ("window", None, True, False),
        ("list", None, True, False),
        ("versioned", None, True, False),
    ],
)
def test_which_stores_are_trimmed(kind: StoreKind, source: str | None, changelog: bool, trimmed: bool) -> None:
    spec = StoreSpec("s", kind, BYTES, BYTES, source_topic=source, changelog=changelog, retention_ms=10)
    assert trimmed_stores([spec]) == ({"s"} if trimmed else set())

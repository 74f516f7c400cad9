"""Where a restore begins: one test per rule, on both sides of each bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest

from penstock.state.recovery.position import Position
from penstock.state.recovery.restore_decision import (
    ChangelogFacts,
    Decision,
    FromBeginning,
    IngestSnapshot,
    Quarantine,
    RestoreProgress,
    Resume,
    decide,
)
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
OF = StorePartition("app", "counts", 0)
LOG = ChangelogFacts("app-counts-changelog", "topic-1", "cluster-1", 100, 1000, True, DAY_MS)
STORED = Position(600, {}, "cluster-1", {LOG.topic: "topic-1"}, NOW_MS - 1000)
SNAPSHOT = Manifest(
    application_id="app",
    store="counts",
    kind="key_value",
    partition=0,
    cluster_id="cluster-1",
    topic=LOG.topic,
    topic_id="topic-1",
    changelog_offset=800,
    attempt="a1",
    created_ms=NOW_MS - 1000,
    delete_retention_ms=DAY_MS,
    segment_ms=0,
    files=(SnapshotFile("a1-00000.sst", 10, "00", 0, None, None),),
)


def changed(**fields: object) -> Manifest:
    return msgspec.structs.replace(SNAPSHOT, **fields)


def decided(
    stored: Position | None, log: ChangelogFacts, now_ms: int, snapshots: Sequence[Manifest] = (), segment_ms: int = 0
) -> Decision:
    return decide(OF, stored, log, now_ms, snapshots, segment_ms=segment_ms)


def test_a_sound_position_resumes_even_beside_a_newer_snapshot() -> None:
    decision = decided(STORED, LOG, NOW_MS, [SNAPSHOT])
    assert decision == Resume(600, decision.reason)
    assert "400 before its end" in decision.reason


@pytest.mark.parametrize("offset", [100, 1000])
def test_both_ends_of_the_log_are_sound(offset: int) -> None:
    stored = dataclasses.replace(STORED, changelog_offset=offset)
    assert isinstance(decided(stored, LOG, NOW_MS), Resume)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster_id": "cluster-2"}, "belongs to cluster cluster-2"),
        ({"topic_ids": {LOG.topic: "topic-0"}}, "id topic-0, which now has id topic-1"),
        ({"topic_ids": {}}, "id None"),
        ({"changelog_offset": 1001}, "1001 is past the end 1000"),
        ({"changelog_offset": 99}, "99 is before the beginning 100"),
        ({"wall_time_ms": NOW_MS - int(0.9 * DAY_MS) - 1}, "some may be missing"),
        ({"wall_time_ms": NOW_MS + int(0.1 * DAY_MS) + 1}, "in the future"),
    ],
)
def test_what_cannot_be_proved_right_is_quarantined(change: dict[str, object], words: str) -> None:
    stored = dataclasses.replace(STORED, **change)  # type: ignore[arg-type]  # the fields come from the table above
    decision = decided(stored, LOG, NOW_MS)
    assert isinstance(decision, Quarantine)
    assert words in decision.reason
    assert isinstance(decision.then, FromBeginning)
    assert decision.then.offset == 100
    beside = decided(stored, LOG, NOW_MS, [SNAPSHOT])
    assert isinstance(beside, Quarantine)
    assert isinstance(beside.then, IngestSnapshot)


@pytest.mark.parametrize("wall_time_ms", [NOW_MS - int(0.9 * DAY_MS), NOW_MS + int(0.1 * DAY_MS)])
def test_the_bounds_of_the_age_are_sound(wall_time_ms: int) -> None:
    stored = dataclasses.replace(STORED, wall_time_ms=wall_time_ms)
    assert isinstance(decided(stored, LOG, NOW_MS), Resume)


def test_age_means_nothing_at_the_logs_end_or_without_compaction() -> None:
    old = dataclasses.replace(STORED, wall_time_ms=0)
    assert isinstance(decided(old, LOG, NOW_MS), Quarantine)
    assert isinstance(decided(dataclasses.replace(old, changelog_offset=1000), LOG, NOW_MS), Resume)
    assert isinstance(decided(old, dataclasses.replace(LOG, compacted=False), NOW_MS), Resume)


@pytest.mark.parametrize("wall_time_ms", [0, NOW_MS - 1000, NOW_MS + DAY_MS])
@pytest.mark.parametrize("begin", [100, 600, 601, 1000])
def test_what_holds_all_that_was_committed_lacks_nothing(begin: int, wall_time_ms: int) -> None:
    """However old it is, and although the log's retention has taken all that it was made of."""
    log = dataclasses.replace(LOG, begin_offset=begin, committed_end=600)
    stored = dataclasses.replace(STORED, wall_time_ms=wall_time_ms)
    decision = decided(stored, log, NOW_MS)
    assert decision == Resume(max(600, begin), decision.reason)
    snapshot = changed(changelog_offset=600, created_ms=wall_time_ms)
    taken = decided(None, log, NOW_MS, [snapshot])
    assert taken == IngestSnapshot(snapshot, max(600, begin), taken.reason)


def test_what_lacks_a_committed_record_is_held_to_the_rules() -> None:
    old, short = dataclasses.replace(STORED, wall_time_ms=0), dataclasses.replace(STORED, changelog_offset=599)
    assert isinstance(decided(old, dataclasses.replace(LOG, committed_end=601), NOW_MS), Quarantine)
    gone = dataclasses.replace(LOG, committed_end=600, begin_offset=600)
    assert isinstance(decided(short, gone, NOW_MS), Quarantine)
    beyond = dataclasses.replace(LOG, committed_end=600, end_offset=599)
    assert isinstance(decided(STORED, beyond, NOW_MS), Quarantine)


def test_an_empty_store_takes_the_highest_usable_snapshot() -> None:
    snapshots = [changed(changelog_offset=o, attempt=f"a{o}") for o in (300, 900, 1001, 500)]
    decision = decided(None, LOG, NOW_MS, snapshots)
    assert isinstance(decision, IngestSnapshot)
    assert (decision.offset, decision.manifest.attempt) == (900, "a900")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster_id": "cluster-2"}, "cluster-2"),
        ({"topic_id": "topic-0"}, "topic-0"),
        ({"topic": "other"}, "made from topic other"),
        ({"changelog_offset": 99}, "before the begin"),
        ({"changelog_offset": 1001}, "past the end"),
        ({"created_ms": NOW_MS - DAY_MS}, "missing"),
    ],
)
def test_an_unusable_snapshot_is_named_with_its_fault(change: dict[str, object], words: str) -> None:
    decision = decided(None, LOG, NOW_MS, [changed(**change)])
    assert isinstance(decision, FromBeginning)
    assert decision.offset == 100
    assert words in decision.reason


@pytest.mark.parametrize("change", [{"application_id": "b"}, {"store": "views"}, {"partition": 1}])
def test_snapshots_of_other_stores_do_not_count(change: dict[str, object]) -> None:
    decision = decided(None, LOG, NOW_MS, [changed(**change)])
    assert decision == FromBeginning(100, decision.reason)
    assert "there is no snapshot" in decision.reason


@pytest.mark.parametrize("held", ["position", "snapshot", "both"])
@pytest.mark.parametrize(("had", "has"), [(0, 60_000), (60_000, 0), (60_000, 360_000), (360_000, 60_000)])
def test_keys_in_segments_of_another_length_are_not_read(held: str, had: int, has: int) -> None:
    """Not even where nothing is left to be read."""
    log = dataclasses.replace(LOG, committed_end=600, end_offset=800)
    stored = None if held == "snapshot" else dataclasses.replace(STORED, changelog_offset=800, segment_ms=had)
    snapshots = [] if held == "position" else [changed(kind="list", segment_ms=had)]
    assert isinstance(decided(stored, log, NOW_MS, snapshots, had), Resume | IngestSnapshot)
    decision = decided(stored, log, NOW_MS, snapshots, has)
    if stored is not None:
        assert isinstance(decision, Quarantine)
        assert f"in segments of {had} ms, and the store has {has} ms" in decision.reason
        decision = decision.then
    assert isinstance(decision, FromBeginning)
    assert ("in segments of" in decision.reason) == bool(snapshots)


def test_a_log_that_has_dropped_records_is_told_of() -> None:
    decision = decided(None, LOG, NOW_MS)
    assert isinstance(decision, FromBeginning)
    assert "begins at offset 100: what is older has expired" in decision.reason
    whole = decided(None, dataclasses.replace(LOG, begin_offset=0), NOW_MS)
    assert isinstance(whole, FromBeginning)
    assert "expired" not in whole.reason


def test_progress_is_measured_in_offsets_and_never_goes_back() -> None:
    progress = RestoreProgress.begin(100, 300)
    assert (progress.done, progress.fraction) == (False, 0)
    progress = progress.advanced(200, records=40)
    assert progress.fraction == 0.5
    progress = progress.advanced(150, records=0)
    assert progress.offsets_done == 100
    progress = progress.advanced(305, records=10)
    assert (progress.done, progress.fraction, progress.records) == (True, 1.0, 50)


def test_an_empty_range_is_done_at_once() -> None:
    progress = RestoreProgress.begin(5, 5)
    assert (progress.done, progress.fraction) == (True, 1.0)

"""Decide from facts where the restore of a store begins. Pure; others perform it.

Local state is kept if it can be verified, else it is quarantined with a reason:

* another cluster or another incarnation of the topic: the offset is meaningless there;
* an offset past the log's end, or one that was read from a leader whose records a later leader lacked: the log lost
  records that the store holds;
* an offset before the log's beginning: records that the store lacks are gone;
* too old: the changelog may have dropped deletions that the store lacks, so that deleted keys would live on.
  The age is judged by 0.9 of ``delete.retention.ms``, and only where the changelog is compacted and has
  records to read; a store at the log's very end lacks nothing, whatever its age. A wall time in the future
  proves no age at all;
* keys in segments of another length than the store has now: its retention was changed, and they cannot be read.

The log's beginning and the age do not matter if the store holds everything that the task's last commit wrote. What
follows in the log was never committed: a transaction marker, aborted records, or records that will be written again
from the input. Under exactly-once a complete store always stands one marker before the log's end, and the log may have
dropped everything before it by age.

The same rules apply to a snapshot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from penstock.state.recovery.position import Position
from penstock.state.snapshots.manifest import Manifest, StorePartition

AGE_LIMIT_PERCENT = 90
"""The part of ``delete.retention.ms`` after which deletions count as lost; the rest is a margin for clock
differences."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChangelogFacts:
    """The cluster's facts about one changelog partition, read before the decision.

    ``end_offset`` is the end for readers of committed records. ``compacted``: the cleanup policy contains
    ``compact``. ``committed_end``: the offset after the last record of the task's last commit; ``None`` if unknown.
    ``epoch``: of the leader now, -1 if unknown.
    """

    topic: str
    topic_id: str
    cluster_id: str
    begin_offset: int
    end_offset: int
    compacted: bool
    delete_retention_ms: int
    committed_end: int | None = None
    epoch: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Resume:
    """Replay ``[offset, end)`` onto what the store holds; nothing to do when they are equal."""

    offset: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class FromBeginning:
    """Replay ``[offset, end)`` into an empty store. ``refused``: why each snapshot is not used."""

    offset: int
    reason: str
    refused: tuple[str, ...] = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class IngestSnapshot:
    """Ingest the snapshot into an empty store, then replay ``[offset, end)``. ``refused``: why newer ones are not used."""

    manifest: Manifest
    offset: int
    reason: str
    refused: tuple[str, ...] = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Quarantine:
    """Quarantine the local state, report the reason, and continue with ``then``."""

    reason: str
    then: FromBeginning | IngestSnapshot


Decision: TypeAlias = Resume | FromBeginning | IngestSnapshot | Quarantine


def decide(
    of: StorePartition,
    stored: Position | None,
    log: ChangelogFacts,
    now_ms: int,
    snapshots: Sequence[Manifest] = (),
    *,
    segment_ms: int,
    replaced: bool = False,
) -> Decision:
    """Decide how to restore one store partition.

    ``stored`` is the store's position, ``None`` for a store never written. Snapshots may come in any order and may
    belong to other stores and clusters; the usable one with the highest offset is taken. ``segment_ms`` is the store's.
    ``replaced``: the log no longer holds what the store has read.
    """
    afresh = decide_afresh(of, log, now_ms, snapshots, segment_ms=segment_ms)
    if stored is None:
        return afresh
    wrong = _distrust(
        log,
        offset=stored.changelog_offset,
        cluster_id=stored.cluster_id,
        topic_id=stored.topic_ids.get(log.topic),
        wall_time_ms=stored.wall_time_ms,
        now_ms=now_ms,
        segments_ms=(stored.segment_ms, segment_ms),
    )
    if wrong is None and replaced:
        wrong = (
            f"its offset {stored.changelog_offset} is of a time when the leader of {log.topic} had epoch {stored.epoch}; a "
            "later leader lacked records before it"
        )
    if wrong is not None:
        return Quarantine(f"the local state of {of} cannot be used: {wrong}", afresh)
    left = log.end_offset - stored.changelog_offset
    return Resume(
        max(stored.changelog_offset, log.begin_offset),
        f"the local state of {of} stands at offset {stored.changelog_offset} of {log.topic}, {left} before its end",
    )


def decide_afresh(
    of: StorePartition, log: ChangelogFacts, now_ms: int, snapshots: Sequence[Manifest], *, segment_ms: int
) -> FromBeginning | IngestSnapshot:
    """Decide how to restore an empty store partition; arguments as for ``decide``."""
    refused: list[str] = []
    mine = [m for m in snapshots if m.of == of]
    for manifest in sorted(mine, key=lambda m: (m.changelog_offset, m.attempt), reverse=True):
        wrong = why_not(manifest, log, now_ms, segment_ms)
        if wrong is None:
            offset = manifest.changelog_offset
            left = log.end_offset - offset
            return IngestSnapshot(
                manifest,
                max(offset, log.begin_offset),
                f"the snapshot of {of} at offset {offset} is usable, {left} before the log's end",
                tuple(refused),
            )
        refused.append(f"the snapshot at offset {manifest.changelog_offset} is refused: {wrong}")
    said = "; ".join(refused) or "there is no snapshot"
    if log.begin_offset:
        said += f"; it begins at offset {log.begin_offset}: what is older has expired or was deleted"
    reason = f"{of} is restored from the beginning of {log.topic}: {said}"
    return FromBeginning(log.begin_offset, reason, tuple(refused))


def why_not(manifest: Manifest, log: ChangelogFacts, now_ms: int, segment_ms: int) -> str | None:
    """Why the snapshot cannot be ingested for this log into a store with this ``segment_ms``; ``None`` if it can."""
    if manifest.topic != log.topic:
        return f"it was made from topic {manifest.topic}, and the changelog is {log.topic}"
    return _distrust(
        log,
        offset=manifest.changelog_offset,
        cluster_id=manifest.cluster_id,
        topic_id=manifest.topic_id,
        wall_time_ms=manifest.created_ms,
        now_ms=now_ms,
        segments_ms=(manifest.segment_ms, segment_ms),
    )


def _distrust(
    log: ChangelogFacts,
    *,
    offset: int,
    cluster_id: str,
    topic_id: str | None,
    wall_time_ms: int,
    now_ms: int,
    segments_ms: tuple[int, int],
) -> str | None:
    if cluster_id != log.cluster_id:
        return f"it belongs to cluster {cluster_id}, and this is cluster {log.cluster_id}"
    if topic_id != log.topic_id:
        return f"it was made from topic {log.topic} with id {topic_id}, which now has id {log.topic_id}"
    had_ms, has_ms = segments_ms
    if had_ms != has_ms:
        return f"its keys are in segments of {had_ms} ms, and the store has {has_ms} ms since its retention was changed"
    if offset > log.end_offset:
        return (
            f"its offset {offset} is past the end {log.end_offset} of {log.topic}, which has lost records, or "
            "past the last commit"
        )
    if log.committed_end is not None and offset >= log.committed_end:
        return None
    if offset < log.begin_offset:
        return f"its offset {offset} is before the beginning {log.begin_offset} of {log.topic}: records are gone"
    if not log.compacted or offset == log.end_offset:
        return None
    age_ms = now_ms - wall_time_ms
    limit_ms = log.delete_retention_ms * AGE_LIMIT_PERCENT // 100
    if age_ms > limit_ms:
        return (
            f"it is {age_ms} ms old, more than {AGE_LIMIT_PERCENT} % of the {log.delete_retention_ms} ms for which "
            f"{log.topic} keeps deletions, so some may be missing"
        )
    if -age_ms > log.delete_retention_ms - limit_ms:
        return f"its wall time lies {-age_ms} ms in the future, so its age is unknown"
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreProgress:
    """The progress of one store partition's restore. Offsets, not records, say when it is done: compaction and
    transactions leave gaps."""

    start_offset: int
    end_offset: int
    offset: int
    records: int = 0

    @classmethod
    def begin(cls, start_offset: int, end_offset: int) -> RestoreProgress:
        return cls(start_offset, end_offset, start_offset)

    def advanced(self, offset: int, records: int) -> RestoreProgress:
        """After ``records`` more records; ``offset`` is the reader's position, and never goes back."""
        return dataclasses.replace(self, offset=max(offset, self.offset), records=self.records + records)

    @property
    def done(self) -> bool:
        return self.offset >= self.end_offset

    @property
    def offsets_total(self) -> int:
        return max(self.end_offset - self.start_offset, 0)

    @property
    def offsets_done(self) -> int:
        return min(self.offset - self.start_offset, self.offsets_total)

    @property
    def fraction(self) -> float:
        """Between 0 and 1; an empty range is done."""
        return self.offsets_done / self.offsets_total if self.offsets_total else 1.0

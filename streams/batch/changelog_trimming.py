"""Changelogs that hold no more than what follows a snapshot: on request, a compaction deletes the records before it.

A worker restores such a store from a snapshot only, so the snapshot must never become too old to be used. A snapshot of a
compacted changelog ages with ``delete.retention.ms``: behind it, deletions that came later may be gone. So that time is made
as good as endless, which costs little where the log is trimmed. Until it is, earlier snapshots and the state of workers that
stood still may lack deletions: therefore the first trim leaves only what follows the newest snapshot, before the time is
changed. A job that dies in between is simply run again.

Changelogs of windows and of other stores that expire are not trimmed: their workers do that, by event time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import KEPT_FOR_EVER
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import SnapshotRepository
from penstock.state.stores.store import StoreSpec
from penstock.streams.ports.log import LogAdmin

TRIMMABLE = {"cleanup.policy": "compact,delete", **KEPT_FOR_EVER}
"""Brokers delete records on request only where the policy has ``delete``; nothing may expire there on its own."""
DELETIONS_KEPT_MS = 10 * 365 * 86_400_000
_WAIT_S, _TURN_S = 60.0, 0.2


def trimmed_stores(stores: Iterable[StoreSpec]) -> frozenset[str]:
    """The names of the stores whose changelogs may be trimmed: those with a changelog of their own, whose entries stay
    until they are deleted."""
    return frozenset(spec.name for spec in stores if spec.changelog and _is_trimmed(spec))


def _is_trimmed(spec: StoreSpec) -> bool:
    return spec.source_topic is None and spec.kind == "key_value"


def trim(
    admin: LogAdmin, snapshots: SnapshotRepository, newest: Sequence[Manifest], begins: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete what comes before the published snapshots: ``newest`` has one of each store partition, ``begins`` where their
    changelogs begin. Returns where those begin now that were trimmed. Raises ``EnvironmentFault`` where the brokers
    refuse."""
    topics = {manifest.topic for manifest in newest}
    settled = {topic for topic in topics if _keeps_deletions(admin, topic)}
    for topic in sorted(topics - settled):
        admin.set_topic_config(topic, TRIMMABLE)
    before: dict[TopicPartition, int] = {}
    for manifest in newest:
        tp = TopicPartition(manifest.topic, manifest.partition)
        kept = snapshots.find(manifest.of).manifests if manifest.topic in settled else (manifest,)
        usable = [
            m.changelog_offset for m in kept if m.changelog_offset >= begins[tp] and m.topic_id == manifest.topic_id
        ]
        if (offset := min(usable, default=begins[tp])) > begins[tp]:
            before[tp] = offset
    _delete(admin, before)
    for topic in sorted(topics - settled):
        admin.set_topic_config(topic, {"delete.retention.ms": str(DELETIONS_KEPT_MS)})
    return before


def _keeps_deletions(admin: LogAdmin, topic: str) -> bool:
    return int(admin.topic_config(topic).get("delete.retention.ms", 0)) >= DELETIONS_KEPT_MS


def _delete(admin: LogAdmin, before: Mapping[TopicPartition, int]) -> None:
    if not before:
        return
    pending = admin.delete_before(before)
    until_s = time.monotonic() + _WAIT_S
    while (failed := pending()) is None:
        if time.monotonic() > until_s:
            raise EnvironmentFault(
                f"the brokers did not answer within {_WAIT_S:.0f} s when records of {len(before)} changelogs were deleted; "
                "the snapshots are published. Run it again"
            )
        time.sleep(_TURN_S)
    if failed:
        tp, reason = next(iter(failed.items()))
        raise EnvironmentFault(
            f"{tp.topic} [{tp.partition}] cannot be trimmed: {reason}. The snapshots are published; give the job the rights "
            "DELETE and ALTER_CONFIGS on the changelogs, or leave --trim-changelogs out"
        )

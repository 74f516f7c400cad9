"""Snapshots as a compaction job publishes them, in the product's own repository. Only the format of their files is a
model's: that of the swarm's disks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.atomic_files import sha256_of
from penstock.state.recovery.changelog import changelog_topic, from_changelog_columns
from penstock.state.recovery.position import Position, encode_position
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition
from penstock.state.snapshots.repository import SnapshotRepository
from penstock.state.stores.store import StoreSpec
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import MemoryLog
from tests.simulation.restores import APP

Table = tuple[bytes, list[tuple[bytes, bytes]]]
"""A position, and entries in order."""


def read_table(file: Path) -> Table:
    """What a file holds."""
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=Table)
    except msgspec.MsgspecError as exc:
        raise StateCorruptedError(f"{file.name} is no table: {exc}") from exc


class Publisher:
    """Makes snapshots of what a log holds by then. ``folder``: for the files until they are uploaded."""

    def __init__(self, log: MemoryLog, repository: SnapshotRepository, folder: Path) -> None:
        self._log = log
        self._repository = repository
        self._folder = folder
        self._made = 0
        folder.mkdir(parents=True, exist_ok=True)

    def publish(self, task: TaskId, spec: StoreSpec, now_ms: int) -> Manifest:
        """Of one store of one task, up to the end of its changelog for readers of committed records."""
        tp = TopicPartition(changelog_topic(APP, spec), task.partition)
        log, admin = self._log.partition(tp), MemoryAdmin(self._log)
        end, kept_ms = log.last_stable, int(admin.topic_config(tp.topic)["delete.retention.ms"])
        rows = [entry for _, entry in log.committed(log.first)]
        folded = dict(
            from_changelog_columns(spec, [e.key for e in rows], [e.value for e in rows], [e.timestamp_ms for e in rows])
        )
        entries = sorted((key, value) for key, value in folded.items() if value is not None)
        ids, cluster = admin.topic_ids([tp.topic]), admin.cluster_id()
        position = encode_position(
            Position(end, {}, cluster, ids, now_ms, -1, log.epochs[-1][0], segment_ms=spec.segment_ms)
        )
        self._made += 1
        attempt = f"{now_ms:013d}-{self._made:012d}"
        file = self._folder / f"{attempt}-00000.sst"
        file.write_bytes(msgspec.msgpack.encode((position, entries)))
        keys = (entries[0][0], entries[-1][0]) if entries else (None, None)
        files = (SnapshotFile(file.name, file.stat().st_size, sha256_of(file), len(entries), *keys),)
        of = StorePartition(APP, spec.name, task.partition)
        self._repository.upload(of, self._folder, files)
        manifest = Manifest(
            application_id=APP,
            store=spec.name,
            kind=spec.kind,
            partition=task.partition,
            cluster_id=cluster,
            topic=tp.topic,
            topic_id=ids[tp.topic],
            changelog_offset=end,
            attempt=attempt,
            created_ms=now_ms,
            delete_retention_ms=kept_ms,
            segment_ms=spec.segment_ms,
            files=files,
        )
        self._repository.publish(manifest)
        return manifest


def damage(root: Path, manifest: Manifest) -> None:
    """The last byte of a published snapshot's only file changes."""
    (file,) = root.rglob(manifest.files[0].name)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

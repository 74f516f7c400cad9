"""Compacts the word count's changelog into a snapshot repository, without Spark: ``publisher BOOTSTRAP APP REPOSITORY``.

Reads the changelog up to the committed positions, folds it, and goes through the repository's own steps: write the table
files, upload, publish, prune. A process of its own, so that it can be killed at each of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic, from_changelog_columns
from penstock.state.recovery.position import Position, encode_position
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import StoredSnapshots, new_attempt
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.runtime.foreign_writes import read_range
from penstock.streams.worker.failpoint_actions import arm_from
from penstock.topologies.examples import word_count
from tests.integration.worker.application import PARTITIONS


def publish(servers: str, application_id: str, repository: str) -> None:
    """One snapshot of each partition; older ones are removed."""
    admin, snapshots = KafkaAdmin(admin_config(servers, {})), StoredSnapshots(repository)
    (spec,) = word_count.build("in", "out").stores
    topic = changelog_topic(application_id, spec)
    reader = KafkaConsumer(consumer_config(servers, f"{application_id}-publisher", {}))
    now_ms = time.time_ns() // 1_000_000
    ids, cluster_id = admin.topic_ids([topic]), admin.cluster_id()
    for partition in range(PARTITIONS):
        tp = TopicPartition(topic, partition)
        begin, end = reader.watermarks(tp)
        rows = dict(from_changelog_columns(spec, *read_range(reader, tp, begin, end)))
        entries: Iterator[tuple[bytes, bytes]] = ((k, v) for k, v in sorted(rows.items()) if v is not None)
        of, attempt = StorePartition(application_id, spec.name, partition), new_attempt(now_ms)
        with tempfile.TemporaryDirectory() as folder:
            position = encode_position(Position(end, {}, cluster_id, ids, now_ms, segment_ms=spec.segment_ms))
            files = write_ssts(Path(folder), attempt, entries, position=position, file_bytes=1 << 20)
            snapshots.upload(of, Path(folder), files)
        manifest = Manifest(
            application_id=application_id,
            store=spec.name,
            kind=spec.kind,
            partition=partition,
            cluster_id=cluster_id,
            topic=topic,
            topic_id=ids[topic],
            changelog_offset=end,
            attempt=attempt,
            created_ms=now_ms,
            delete_retention_ms=86_400_000,
            segment_ms=spec.segment_ms,
            files=tuple(files),
            input_offsets=None,
            oldest_ms=None,
            newest_ms=None,
            dropped=0,
        )
        snapshots.publish(manifest)
        snapshots.prune(of, keep=1, now_ms=now_ms)
    reader.close()


if __name__ == "__main__":
    arm_from(os.environ)
    publish(*sys.argv[1:])

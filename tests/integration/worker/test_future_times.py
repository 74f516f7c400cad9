"""State of windows that end far ahead of the clock reaches the changelog: brokers refuse times of the future elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import penstock as ps
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import Cluster, until
from tests.integration.worker.test_language import settings

DAYS_MS = 2 * 86_400_000


def test_counts_of_days_to_come(kafka: str, tmp_path: Path) -> None:
    """Records that are given a time of the day after tomorrow, through a repartition topic into a store."""
    cluster = Cluster(kafka, "future")
    source, out = cluster.create("in", 1), cluster.create("out", 1)
    builder = ps.StreamsBuilder("future", value=str)
    stream = builder.stream(source)
    ahead = stream.with_timestamp(lambda record: record.timestamp_ms + DAYS_MS)
    counts = ahead.group_by(lambda key, value: value).count()
    counts.to_stream().with_timestamp(lambda record: record.timestamp_ms - DAYS_MS).to(out)
    now_ms = int(time.time() * 1_000)
    cluster.write(source, [b"a", b"b"], keys=[b"k", b"k"], timestamps=[now_ms, now_ms + 1])
    worker = Worker(builder.build(), settings(cluster, tmp_path)).start()
    until("both counts", lambda: len(cluster.read(out, 1)) >= 2)
    worker.stop()

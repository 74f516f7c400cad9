"""Windows of events of long ago, as of a backlog: brokers look for what is too old, and open windows stay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.worker import worker
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology
from tests.integration.worker.application import Cluster, until

HOUR_MS = 3_600_000
DAYS_AGO_MS = 30 * 24 * HOUR_MS
BROKER_LOOKS_MS = 500


def counting(source: str, output: str) -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream(source).group_by_key()
    grouped.windowed_by(ps.tumbling("1h", grace=0)).count(name="counts").to_stream().to(output)
    return builder.build()


def test_windows_of_long_ago_outlive_the_brokers_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they no longer need is deleted by the worker."""
    monkeypatch.setattr(worker, "CHANGELOG_PURGE_INTERVAL_MS", 200)
    looks = {"log.retention.check.interval.ms": str(BROKER_LOOKS_MS), "log.retention.ms": str(7 * 24 * HOUR_MS)}
    with EmbeddedKafka(configs=looks) as kafka:
        cluster = Cluster(kafka.bootstrap_servers, "old-windows")
        source, output = cluster.create("in", 1), cluster.create("out", 1)
        changelog = TopicPartition(f"{cluster.name}-counts-changelog", 0)
        base_ms = (int(time.time() * 1000) - DAYS_AGO_MS) // HOUR_MS * HOUR_MS
        reader = KafkaConsumer(consumer_config(kafka.bootstrap_servers, "reader", {}))

        def started(host: str) -> Worker:
            given = {"application_id": cluster.name, "bootstrap_servers": kafka.bootstrap_servers}
            return Worker(
                counting(source, output),
                load_settings(env={}, state_dir=str(tmp_path / host), guarantee="exactly_once", **given),
            ).start()

        def write(count: int, at_ms: int) -> None:
            times = [base_ms + at_ms + n for n in range(count)]
            cluster.write(source, [b"v"] * count, keys=[b"k"] * count, timestamps=times, partition=0)

        def counts() -> list[int]:
            return [int.from_bytes(w.value or b"", "big") for w in cluster.read(output, 1)]

        first = started("one")
        write(5, 1_000)
        until("five are counted", lambda: len(counts()) == 5)
        # A changelog with a retention is empty by then, under a window that is open.
        time.sleep(10 * BROKER_LOOKS_MS / 1000)
        first.stop()
        second = started("two")
        write(3, 2_000)
        until("eight are counted", lambda: len(counts()) == 8)
        assert counts() == list(range(1, 9))
        assert reader.watermarks(changelog)[0] == 0
        write(1, 3 * HOUR_MS)
        write(1, 6 * HOUR_MS)
        until("what is over is deleted", lambda: reader.watermarks(changelog)[0] > 0)
        reader.close()
        second.stop()

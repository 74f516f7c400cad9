"""Every ready-made topology over a million records, exactly-once, by a worker that is killed twice: a replay in Spark gives
what is in its outputs and stores. Each prints a line, which ``-s`` shows."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, ClusterAddress, open_cluster
from penstock.streams.batch.handover.bootstrap_plan import outputs_of
from penstock.streams.kafka.client_config import producer_config
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.spark import Connection, verify
from penstock.topologies.graph.topology import Topology
from tests.child_process import started
from tests.integration.spark.live import Live
from tests.integration.spark.ready_made import CASES, Draw, Fed, topology_of
from tests.integration.worker.application import until

RECORDS = int(os.environ.get("READY_MADE_RECORDS", "1000000"))
PARTITIONS = 4
KILLED_AT = ("offsets_added", "committed")
"""The steps of a worker's third commit after which it kills itself: its outputs are in an open transaction, or in the log
and not yet in its stores."""
BEFORE_MS = 65 * 60_000
"""How long ago the input begins: brokers judge the age of changelog records by the clock."""
SENT_AT_ONCE = 20_000
LIMIT_S, QUIET_S = 1_800.0, 3.0


class Application:
    """A ready-made topology on a broker of its own, whose topics have the names that the topology gives them."""

    def __init__(self, case: str, servers: str, folder: Path) -> None:
        self.case, self.began_ms = case, (time.time_ns() // 1_000_000 - BEFORE_MS) // 60_000 * 60_000
        self.live, self._folder, self.log = Live(servers, "ready-made"), folder, folder / "worker.log"
        self.topology = partial(topology_of, case, self.began_ms)
        topology: Topology = self.topology()
        self.inputs = sorted(
            source.topic
            for source in (topology.source(name) for sub in topology.subtopologies for name in sub.sources)
            if not source.internal
        )
        self.live.create(PARTITIONS, *{*self.inputs, *outputs_of(topology, self.live.application_id, None)})

    def feed(self) -> int:
        """Write the input; how many records that is."""
        producer = KafkaProducer(producer_config(self.live.bootstrap_servers, {}))
        records = CASES[self.case].feed(RECORDS, Draw(self.case), self.began_ms)
        count = 0
        while part := list(islice(records, SENT_AT_ONCE)):
            by_topic: dict[str, list[Fed]] = defaultdict(list)
            for record in part:
                if record.topic in self.inputs:
                    by_topic[record.topic].append(record)
            for topic, mine in by_topic.items():
                _, keys, values, at_ms = zip(*mine, strict=True)
                producer.send(topic, keys, values, at_ms)
                count += len(mine)
        producer.flush(120)
        producer.close()
        return count

    @contextmanager
    def worker(self, killed_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A process that runs it."""
        settings = {
            "application_id": self.live.application_id,
            "bootstrap_servers": self.live.bootstrap_servers,
            "guarantee": "exactly_once",
            "state_dir": str(self._folder / "state"),
            "session_timeout_ms": 6_000,
            "commit_interval_ms": 200,
        }
        order: dict[str, Any] = {"case": self.case, "began_ms": self.began_ms, "settings": settings}
        order |= {"partitions": None, "signal_at": [killed_at, 3, signal.SIGKILL] if killed_at else None}
        process = started("tests.integration.spark.ready_made", order, self.log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, fed: int, killed_at: Sequence[str] = KILLED_AT) -> int:
        """Process everything, ``fed`` records of the input topics, by workers that die at these steps and a last one; how
        many died before they had read all."""
        name, topology = self.live.application_id, self.topology()
        with open_cluster(ClusterAddress(self.live.bootstrap_servers), name) as cluster:
            inputs = [TopicPartition(topic, p) for topic in self.inputs for p in range(PARTITIONS)]
            asked = [TopicPartition(t, p) for t in topology.source_topics(name) for p in range(PARTITIONS)]
            kills = 0
            for step in killed_at:
                with self.worker(step) as worker:
                    assert worker.wait(LIMIT_S) == -signal.SIGKILL, self.log.read_text()[-5_000:]
                kills += read(cluster, inputs) < fed
            with self.worker() as worker:
                # more than the records where a transaction's marker stands behind them
                until("all is read", self.at_work(worker, lambda: read(cluster, inputs) >= fed), LIMIT_S)
                before = -1
                while before != (before := read(cluster, asked)):
                    time.sleep(QUIET_S)
                worker.terminate()
                assert worker.wait(120) == 0
        return kills

    def at_work(self, process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> Callable[[], bool]:
        """The condition, while the worker lives."""

        def asked() -> bool:
            assert process.poll() is None, self.log.read_text()[-5_000:]
            return condition()

        return asked


def read(cluster: Cluster, asked: Sequence[TopicPartition]) -> int:
    """How many records are committed as read."""
    return sum(found.offset for found in cluster.committed(asked).values())


@pytest.mark.long
@pytest.mark.timeout(3 * LIMIT_S)
@pytest.mark.parametrize("case", CASES)
def test_a_replay_gives_what_a_killed_worker_wrote(spark: SparkSession, tmp_path: Path, case: str) -> None:
    with EmbeddedKafka() as kafka:
        app = Application(case, kafka.bootstrap_servers, tmp_path)
        kills = app.run(app.feed())
        name = app.live.application_id
        found = verify(app.topology, application_id=name, connection=Connection(kafka.bootstrap_servers))
    compared = "; ".join(f"{c.name} {c.mode} {c.stream_rows:,}" for c in found.comparisons)
    different = sum(c.differences for c in found.comparisons)
    print(
        f"| {case} | {found.records:,} | {kills} | {different} | {compared} | {'; '.join(found.cautions)} |", flush=True
    )
    assert kills == len(KILLED_AT) and found.records >= RECORDS and found.comparisons
    assert found.same, found

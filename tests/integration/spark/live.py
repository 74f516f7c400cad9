"""An application on real Kafka under exactly-once, in the test's process and thread: the real tasks, committer, consumer
and producer, with every step in the test's hands."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import time
from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.batch.cluster import retried
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.commit_protocol import Committer
from penstock.streams.runtime.start_positions import start_positions
from penstock.streams.runtime.topic_setup import TopicLayout, prepare_topics
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology

LIMIT_S = 300.0
Row = tuple[bytes | None, bytes | None, int]


@dataclasses.dataclass
class Live:
    """``application_id`` is also the group and the transactional id."""

    bootstrap_servers: str
    application_id: str

    def topic(self, name: str) -> str:
        """A topic name of this application's own."""
        return f"{self.application_id}.{name}"

    def create(self, partitions: int, *names: str, config: Mapping[str, str] | None = None) -> None:
        """Make topics that keep their records, whatever time these carry."""
        kept = {"retention.ms": "-1", **(config or {})}
        KafkaAdmin(admin_config(self.bootstrap_servers, {})).create_topics(
            [TopicSpec(n, partitions, 1, kept) for n in names]
        )

    def produce(self, topic: str, rows: Iterable[Row], partition: int | None = None, abort: bool = False) -> None:
        """Write rows in one transaction."""
        producer = KafkaProducer(
            producer_config(
                self.bootstrap_servers,
                {},
                transactional_id=f"{self.application_id}-input",
                transaction_timeout_ms=120_000,
            )
        )
        producer.init_transactions(120)
        producer.begin()
        rows = list(rows)
        producer.send(topic, [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], partition=partition)
        producer.flush(120)
        if abort:
            producer.abort(120)
        else:
            producer.commit(120)
        producer.close()
        self.settled(topic)

    def settled(self, *topics: str) -> dict[TopicPartition, int]:
        """Wait until readers of committed records may read all of these, and give the ends: a commit is answered before
        its markers are everywhere. There must be no open transaction."""
        counts = KafkaAdmin(admin_config(self.bootstrap_servers, {})).partition_counts(topics)
        config = consumer_config(self.bootstrap_servers, f"{self.application_id}-reader", {})
        readers = [KafkaConsumer(config), KafkaConsumer({**config, "isolation.level": "read_uncommitted"})]
        deadline = time.monotonic() + LIMIT_S
        found: dict[TopicPartition, int] = {}
        for tp in [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]:
            ends: set[int] = set()
            while len(ends) != 1:
                assert time.monotonic() < deadline, f"{tp} has an open transaction"
                ends = {reader.watermarks(tp)[1] for reader in readers}
            found[tp] = ends.pop()
        for reader in readers:
            reader.close()
        return found

    def delete_records(self, topic: str, before: int) -> None:
        """Remove the records before this offset from every partition; a compacted topic becomes one that is not, as the
        broker asks."""
        count = KafkaAdmin(admin_config(self.bootstrap_servers, {})).partition_counts([topic])[topic]
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
        places = [confluent_kafka.TopicPartition(topic, p, before) for p in range(count)]
        deadline = time.monotonic() + 30
        while True:
            try:
                for future in admin.delete_records(places).values():
                    future.result()
                return
            except confluent_kafka.KafkaException as exc:  # the new policy reaches the log a little later
                if exc.args[0].code() != confluent_kafka.KafkaError.POLICY_VIOLATION or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def read(self, topic: str) -> list[tuple[int, bytes | None, bytes | None, int]]:
        """Everything committed in a topic: partition, key, value, timestamp."""
        return [(p, k, v, ms) for p, _, k, v, ms in self.read_with_offsets(topic)]

    def read_with_offsets(self, topic: str) -> list[tuple[int, int, bytes | None, bytes | None, int]]:
        """The same, with the offset after the partition."""
        consumer = KafkaConsumer(consumer_config(self.bootstrap_servers, f"{self.application_id}-reader", {}))
        count = KafkaAdmin(admin_config(self.bootstrap_servers, {})).partition_counts([topic])[topic]
        parts = [TopicPartition(topic, p) for p in range(count)]
        left = {tp: consumer.watermarks(tp)[1] for tp in parts}
        consumer.assign_at(dict.fromkeys(parts, 0))
        left = {tp: end for tp, end in left.items() if end}
        out: list[tuple[int, int, bytes | None, bytes | None, int]] = []
        while left:
            fetched = consumer.poll(10_000, 1.0)
            for c in fetched.chunks:
                out += zip([c.partition] * len(c), c.offsets, c.keys, c.values, c.timestamps, strict=True)
            for tp, end in fetched.ends.items():
                if end >= left.get(tp, 1 << 62):
                    del left[tp]
        consumer.close()
        return out


def command(name: str, topology: str, live: Live, *more: str) -> int:
    """Run ``penstock <name>`` for an exactly-once application, in this process; gives the exit code."""
    parser = argparse.ArgumentParser()
    module = importlib.import_module(f"penstock.streams.cli.{name}")
    module.register(parser.add_subparsers())
    where = ["--application-id", live.application_id, "--bootstrap-server", live.bootstrap_servers]
    args = parser.parse_args([name, topology, *where, "--guarantee", "exactly_once", *more])
    return int(args.run(args))


class App:
    """The running application, all of its tasks in one unit."""

    def __init__(self, live: Live, topology: Topology, options: TaskOptions | None = None) -> None:
        self.live = live
        self.topology = topology
        servers, app = live.bootstrap_servers, live.application_id
        self.layout: TopicLayout = prepare_topics(
            topology,
            app,
            KafkaAdmin(admin_config(servers, {})),
            replication_factor=1,
            repartition_retention_ms=-1,
        )
        admin = KafkaAdmin(admin_config(servers, {}))
        self.topics = {*admin.topics(app), *topology.source_topics(app)}
        self.consumer = KafkaConsumer(consumer_config(servers, app, {}))
        self.committer = Committer(
            "exactly_once",
            self.consumer,
            lambda: KafkaProducer(
                # A run may be one transaction: a slow machine must not outlast it.
                producer_config(servers, {}, transactional_id=app, transaction_timeout_ms=600_000)
            ),
            lambda: app,
            lambda task, store, at_ms: b"",
        )
        self.committer.open()
        self.tasks: list[Task] = []
        self.ends: dict[TopicPartition, int] = {}
        """As told last: the client tells an end again only when it has moved."""
        self.owner: dict[TopicPartition, Task] = {}
        for sub in topology.subtopologies:
            for p in range(self.layout.tasks[sub.number]):
                self._open(TaskId(sub.number, p), options or TaskOptions())

    def _open(self, task_id: TaskId, options: TaskOptions) -> None:
        sub = self.topology.subtopologies[task_id.subtopology]
        topics = [self.topology.source(n).topic_name(self.live.application_id) for n in sub.sources]
        partitions = [TopicPartition(t, task_id.partition) for t in topics]
        start = retried(lambda: start_positions(self.consumer, partitions))
        task = Task(
            task_id,
            self.live.application_id,
            self.topology,
            sub,
            MemoryBackend(sub.stores),
            start,
            options,
            self.layout.topics,
            task_count=self.layout.tasks[task_id.subtopology],
        )
        self.tasks.append(task)
        self.owner |= dict.fromkeys(partitions, task)
        self.consumer.assign_at({tp: start[tp.topic][0] for tp in partitions})

    def run(self, commit_every: int = 1_000_000) -> None:
        """Process until every input is at its end and everything is committed, and can be read by everybody."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert time.monotonic() < deadline, f"{self.live.application_id} has not read all of its input"
            fetched = self.consumer.poll(2_000, 0.15)
            for chunk in fetched.chunks:
                self.owner[TopicPartition(chunk.topic, chunk.partition)].add(chunk, chunk.offsets[-1] + 1)
            for tp, end in fetched.ends.items():
                self.owner[tp].feed.set_end(tp.topic, end)
            self.ends |= fetched.ends
            busy = bool(fetched.chunks)
            for task in self.tasks:
                while task.process():
                    busy = True
                    self.committer.send_outputs(task)
                    if task.uncommitted_records >= commit_every:
                        self.committer.commit(self.tasks)
            if not busy:
                self.committer.commit(self.tasks)
                wanted = self.live.settled(*self.topics)
                if all(self.ends.get(tp) == wanted[tp] for tp in self.owner):
                    return

    def store(self, name: str) -> dict[tuple[int, bytes], bytes]:
        """The committed entries of a store, by partition and store key."""
        return {
            (t.id.partition, k): v for t in self.tasks if name in t.stores for k, v in t.backend.range(name, None, None)
        }

    def close(self) -> None:
        """Leave."""
        self.committer.close()
        self.consumer.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

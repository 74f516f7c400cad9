"""What is asked of a partition's leader, or of the controller, is asked of the next one if that broker is gone, within the
time for one request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Producer

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from tests.chaos.cluster import ChaosCluster
from tests.chaos.log_reading import LogReader
from tests.integration.worker.application import until

BROKERS = 3
LIMIT_S = 20.0
"""Several times as long as the controller takes to find a broker missing and to elect another leader."""
FAST = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ChaosCluster]:
    with ChaosCluster(BROKERS, FAST) as kafka:
        yield kafka


def test_the_next_one_answers(cluster: ChaosCluster) -> None:
    reader = LogReader(cluster.bootstrap_servers)
    topics = [f"moved-{n}" for n in range(2)]
    reader.create(topics, 1, BROKERS, min_insync_replicas="2")
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for topic in topics:
        writer.produce(topic, b"v", partition=0)
    assert writer.flush(60) == 0
    config = consumer_config(cluster.clients, "moved", {})
    consumer = KafkaConsumer(config, request_timeout_s=LIMIT_S)
    places = [TopicPartition(topic, 0) for topic in topics]
    before = consumer.leader_epochs(places)
    assert all(consumer.watermarks(tp) == (0, 1) for tp in places)
    broker = reader.admin.list_topics(topics[0], timeout=20).topics[topics[0]].partitions[0].leader
    admin = KafkaAdmin(admin_config(cluster.clients, {}), request_timeout_s=LIMIT_S)
    until("the broker is taken for the controller", lambda: admin._client.list_topics().controller_id == broker)
    assert admin.topic_config(topics[0])["min.insync.replicas"] == "2"
    cluster.kill_broker(broker)
    assert admin.topic_config(topics[0])["min.insync.replicas"] == "2"
    assert consumer.watermarks(places[0]) == (0, 1)
    after: dict[TopicPartition, int] = {}

    def known() -> bool:
        # What a commit asks has ten seconds; on a busy machine, an election may take longer.
        with suppress(RetriableError):
            after.update(consumer.leader_epochs(places))
        return bool(after)

    until("the successors tell their epochs", known, 90)
    assert after[places[0]] > before[places[0]]
    consumer.close()

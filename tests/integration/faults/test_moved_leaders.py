"""What is asked of a partition's leader is asked of the next one if that broker is gone, within the time for one request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.chaos.log_reading import LogReader

BROKERS = 3
LIMIT_S = 20.0
"""Several times as long as the controller takes to find a broker missing and to elect another leader."""
FAST = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(BROKERS, heap="224m", configs=FAST) as kafka:
        yield kafka


def test_the_next_leader_answers(cluster: EmbeddedKafka) -> None:
    reader = LogReader(cluster.bootstrap_servers)
    topics = [f"moved-{n}" for n in range(2)]
    reader.create(topics, 1, BROKERS, min_insync_replicas="2")
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for topic in topics:
        writer.produce(topic, b"v", partition=0)
    assert writer.flush(60) == 0
    config = consumer_config(cluster.bootstrap_servers, "moved", {})
    consumer = KafkaConsumer(config, request_timeout_s=LIMIT_S)
    places = [TopicPartition(topic, 0) for topic in topics]
    before = consumer.leader_epochs(places)
    assert all(consumer.watermarks(tp) == (0, 1) for tp in places)
    broker = reader.admin.list_topics(topics[0], timeout=20).topics[topics[0]].partitions[0].leader
    cluster.kill_broker(broker)
    assert consumer.watermarks(places[0]) == (0, 1)
    after = consumer.leader_epochs(places)
    assert after[places[0]] > before[places[0]]
    consumer.close()

"""What only a real cluster can show: its own group protocol, waiting for transactions, the client's log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.state.errors import PenstockError, RetriableError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import OffsetAndMetadata, TopicSpec
from penstock.streams.testing.contracts.log_world import topic
from penstock.streams.testing.contracts.reading import Membership, until
from tests.contract.worlds import NATIVE_MODES, KafkaWorld

pytestmark = pytest.mark.integration


@pytest.fixture(params=NATIVE_MODES)
def kafka(bootstrap_servers: str, request: pytest.FixtureRequest) -> Iterator[KafkaWorld]:
    world = KafkaWorld(bootstrap_servers, native=request.param)
    yield world
    world.close()


def filled(kafka: KafkaWorld, partitions: int) -> str:
    name = topic(kafka, partitions)
    producer = kafka.producer()
    for p in range(partitions):
        producer.send(name, [b"k"] * 20, [b"v"] * 20, [1] * 20, partition=p)
    producer.flush(60)
    return name


def test_a_static_member_that_closes_stays_one(kafka: KafkaWorld, bootstrap_servers: str) -> None:
    name, group = filled(kafka, 1), kafka.name("group")
    config = consumer_config(bootstrap_servers, group, {}, group_instance_id="one")
    member = Membership(kafka.keep(KafkaConsumer(config, native=kafka.native)), [name])
    until(lambda: len(member.mine) == 1, member.poll)
    member.consumer.close()
    assert kafka.admin().group_members(group) == 1


def test_settings_of_a_topic_that_not_every_broker_knows_yet(kafka: KafkaWorld) -> None:
    """Another worker has made it: one broker has told of it, and the broker that is asked learns of it a moment later."""
    name = kafka.name("new")
    maker = threading.Timer(1.0, kafka.admin().create_topics, [[TopicSpec(name, 1, config={"retention.ms": "77"})]])
    asking = kafka.admin()
    maker.start()
    assert asking.topic_config(name)["retention.ms"] == "77"
    maker.join()


def test_brokers_group_protocol_moves_only_what_must_move(kafka: KafkaWorld, bootstrap_servers: str) -> None:
    a, b, group = filled(kafka, 4), filled(kafka, 4), kafka.name("group")

    def member() -> Membership:
        config = consumer_config(bootstrap_servers, group, {"group.protocol": "consumer"})
        return Membership(kafka.keep(KafkaConsumer(config, native=kafka.native)), [a, b])

    first = member()
    until(lambda: len(first.read.ends) == 8, first.poll)
    kept_before = dict(first.read.offsets)
    second = member()
    until(lambda: len(first.mine) == 4 and len(second.read.ends) == 4, first.poll, second.poll)
    assert first.mine.isdisjoint(second.mine)
    for one in (first, second):
        assert {tp.partition for tp in one.mine if tp.topic == a} == {tp.partition for tp in one.mine if tp.topic == b}
    # What stayed was not read again, and the token that came with the change is valid.
    assert all(first.read.offsets[tp] == kept_before[tp] for tp in first.mine)
    producer = kafka.producer(kafka.name("tx"))
    producer.init_transactions(60)
    producer.begin()
    mine = min(first.mine)
    producer.send_offsets({mine: OffsetAndMetadata(3, "")}, first.token, 60)
    producer.commit(60)
    assert first.consumer.committed([mine]) == {mine: OffsetAndMetadata(3, "")}


def test_committed_positions_wait_for_the_transaction_that_changes_them(
    kafka: KafkaWorld, bootstrap_servers: str
) -> None:
    tp, group = TopicPartition(topic(kafka), 0), kafka.name("group")
    producer = kafka.producer(kafka.name("tx"))
    producer.init_transactions(60)
    producer.begin()
    producer.send_offsets({tp: OffsetAndMetadata(5, "m")}, group, 60)
    hasty = kafka.keep(KafkaConsumer(consumer_config(bootstrap_servers, group, {}), request_timeout_s=1.0))
    with pytest.raises(RetriableError):
        hasty.committed([tp])
    started = time.monotonic()
    timer = threading.Timer(1.0, producer.commit, [60])
    timer.start()
    assert kafka.consumer(group).committed([tp]) == {tp: OffsetAndMetadata(5, "m")}
    assert time.monotonic() - started >= 1.0
    timer.join()


def test_unreachable_brokers_are_retriable() -> None:
    nowhere = "127.0.0.1:1"
    admin = KafkaAdmin(admin_config(nowhere, {}), request_timeout_s=1.0)
    consumer = KafkaConsumer(consumer_config(nowhere, "g", {}), request_timeout_s=1.0)
    producer = KafkaProducer(producer_config(nowhere, {}))
    tp = TopicPartition("t", 0)
    producer.send("t", [b"k"], [b"v"], [1])
    for ask in (
        admin.cluster_id,
        lambda: admin.partition_counts(["t"]),
        lambda: admin.group_members("g"),
        lambda: consumer.watermarks(tp),
        lambda: consumer.committed([tp]),
        lambda: producer.flush(1.0),
    ):
        with pytest.raises(RetriableError):
            ask()
    consumer.close()
    started = time.monotonic()
    producer.close()
    assert time.monotonic() - started < 60


def test_unknown_librdkafka_key_is_refused_when_opened() -> None:
    with pytest.raises(PenstockError, match=r"no\.such\.key") as caught:
        KafkaConsumer(consumer_config("127.0.0.1:1", "g", {"no.such.key": "1"}))
    assert isinstance(caught.value, UserError)


def test_client_warnings_go_to_logging_without_the_wanted_one(
    kafka: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(kafka)
    with caplog.at_level(logging.DEBUG, logger="penstock.kafka"):
        producer = kafka.producer()
        producer.send(name, [b"k"], [b"v"], [1], partition=0)
        producer.flush(60)
    assert "gapless" not in caplog.text

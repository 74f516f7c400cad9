"""How defaults and the user's librdkafka keys merge, and which keys are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.state.errors import SettingsError
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config


def test_consumer_defaults_keep_the_promises() -> None:
    config = consumer_config("b:9092", "app", {}, session_timeout_ms=6_000)
    expected = {
        "bootstrap.servers": "b:9092",
        "group.id": "app",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 2_000,
        "queued.max.messages.kbytes": 16_384,
        "fetch.queue.backoff.ms": 10,
    }
    assert expected.items() <= config.items()


def test_producer_without_transactions_is_gapless() -> None:
    config = producer_config("b:9092", {})
    expected = {
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "acks": "all",
        "enable.gapless.guarantee": True,
        "message.timeout.ms": 0,
    }
    assert expected.items() <= config.items()
    assert "transactional.id" not in config


def test_producer_with_transactions() -> None:
    config = producer_config("b:9092", {}, transactional_id="app-1", transaction_timeout_ms=5_000)
    assert config["transactional.id"] == "app-1"
    assert config["transaction.timeout.ms"] == 5_000
    # The client refuses both beside a transactional id's own limits.
    assert "enable.gapless.guarantee" not in config
    assert "message.timeout.ms" not in config


def test_users_keys_win_under_any_of_their_names() -> None:
    config = producer_config("b", {"queue.buffering.max.ms": 50, "compression.codec": "zstd", "client.id": "me"})
    assert (config["linger.ms"], config["compression.type"], config["client.id"]) == (50, "zstd", "me")
    assert "queue.buffering.max.ms" not in config
    assert consumer_config("b", "g", {"queued.min.messages": 7})["queued.min.messages"] == 7


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap.servers",
        "metadata.broker.list",
        "group.id",
        "group.instance.id",
        "enable.auto.commit",
        "auto.offset.reset",
        "enable.partition.eof",
        "session.timeout.ms",
        "transactional.id",
        "transaction.timeout.ms",
        "on_delivery",
    ],
)
def test_keys_that_are_penstocks_are_refused_with_the_reason(key: str) -> None:
    builds: list[Callable[[], object]] = [
        lambda: consumer_config("b", "g", {key: "x"}),
        lambda: producer_config("b", {key: "x"}),
        lambda: admin_config("b", {key: "x"}),
    ]
    for build in builds:
        with pytest.raises(SettingsError, match=key) as caught:
            build()
        assert ": " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("isolation.level", "read_uncommitted"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("group.remote.assignor", "uniform"),
    ],
)
def test_consumer_promises_cannot_be_broken(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=value):
        consumer_config("b", "g", {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.idempotence", False),
        ("acks", 1),
        ("request.required.acks", "1"),
        ("partitioner", "consistent"),
        ("message.timeout.ms", 30_000),
        ("delivery.timeout.ms", 30_000),
        ("enable.gapless.guarantee", "false"),
    ],
)
def test_producer_promises_cannot_be_broken(key: str, value: object) -> None:
    with pytest.raises(SettingsError):
        producer_config("b", {key: value})


def test_a_promise_repeated_by_the_user_is_fine() -> None:
    config = producer_config("b", {"enable.idempotence": "True", "acks": -1, "partitioner": "murmur2_random"})
    assert config["acks"] == "all"
    assert producer_config("b", {"message.timeout.ms": 9_000}, transactional_id="t")["message.timeout.ms"] == 9_000
    level = {"isolation.level": "read_uncommitted"}
    assert consumer_config("b", "g", level, read_committed=False)["isolation.level"] == "read_uncommitted"


def test_one_key_under_two_names_is_refused() -> None:
    with pytest.raises(SettingsError, match="two names"):
        producer_config("b", {"linger.ms": 1, "queue.buffering.max.ms": 2})


def test_brokers_own_group_protocol() -> None:
    config = consumer_config("b", "g", {"group.protocol": "consumer"}, group_instance_id="slot-1")
    assert config["group.remote.assignor"] == "range"
    assert config["group.instance.id"] == "slot-1"
    # The broker sets these, and the client refuses to be given them.
    assert not config.keys() & {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}


def test_poll_interval_is_never_below_the_session() -> None:
    config = consumer_config("b", "g", {}, session_timeout_ms=1_000_000)
    assert config["max.poll.interval.ms"] == 1_000_000


def test_swift_clients_wait_for_no_company_unless_told() -> None:
    assert producer_config("b", {}, low_latency=True)["linger.ms"] < producer_config("b", {})["linger.ms"]
    assert producer_config("b", {"queue.buffering.max.ms": 7}, low_latency=True)["linger.ms"] == 7
    of_transactions = {
        producer_config("b", {}, transactional_id="t", low_latency=low)["linger.ms"] for low in (True, False)
    }
    assert len(of_transactions) == 1 and min(of_transactions) > producer_config("b", {})["linger.ms"]
    calm = consumer_config("b", "g", {})["fetch.queue.backoff.ms"]
    assert consumer_config("b", "g", {}, low_latency=True)["fetch.queue.backoff.ms"] < calm
    assert consumer_config("b", "g", {"fetch.queue.backoff.ms": 30}, low_latency=True)["fetch.queue.backoff.ms"] == 30


def test_members_hear_of_a_changing_group_within_seconds() -> None:
    assert consumer_config("b", "g", {}, session_timeout_ms=45_000)["heartbeat.interval.ms"] == 3_000
    assert consumer_config("b", "g", {}, session_timeout_ms=6_000)["heartbeat.interval.ms"] == 2_000


def test_transactions_are_tried_again_soon_unless_told_otherwise() -> None:
    assert producer_config("b", {}, transactional_id="t")["retry.backoff.ms"] == 10
    assert producer_config("b", {"retry.backoff.ms": 70}, transactional_id="t")["retry.backoff.ms"] == 70
    assert "retry.backoff.ms" not in producer_config("b", {})


def test_queues_take_what_they_may_and_the_users_keys_win() -> None:
    small = consumer_config("b", "g", {}, queue_max_bytes=4 << 20)
    assert (small["queued.max.messages.kbytes"], small["queued.min.messages"]) == (4_096, (4 << 20) // 800)
    assert consumer_config("b", "g", {"queued.max.messages.kbytes": 9}, queue_max_bytes=4 << 20)[
        "queued.max.messages.kbytes"
    ] == 9  # fmt: skip
    sent = producer_config("b", {}, queue_max_bytes=8 << 20)
    assert (sent["queue.buffering.max.kbytes"], sent["queue.buffering.max.messages"]) == (8_192, (8 << 20) // 320)
    usual = producer_config("b", {})
    assert (usual["queue.buffering.max.kbytes"], usual["queue.buffering.max.messages"]) == (32_768, 100_000)

"""What the client's statistics say of brokers and partitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.state.log import TopicPartition
from penstock.streams.events.facts import BrokersFound, WaitingForBrokers
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.watched_consumer import STATISTICS_INTERVAL_MS, BrokerWatch, WatchedConsumer
from tests.recorder import Recorder


def test_an_outage_is_reported_once_and_its_end_once() -> None:
    now_s, events = 0.0, Recorder()
    watch = BrokerWatch("b:1", events, lambda: now_s)
    for now_s, connected in enumerate([True, False, True, False, False, False, True, True, False]):  # noqa: B007  # read by the clock
        watch.saw(connected=connected)
    waiting, found = events.facts
    assert waiting == WaitingForBrokers("b:1")
    assert isinstance(found, BrokersFound) and (found.servers, found.away_s) == ("b:1", 3)


def statistics(state: str, **ends: int) -> str:
    """As the client writes them, in part."""
    partitions: dict[str, Any] = {
        name.removeprefix("p"): {"ls_offset": end, "hi_offset": end} for name, end in ends.items()
    }
    return json.dumps(
        {
            "name": "rdkafka#consumer-1",
            "brokers": {
                "b:1/bootstrap": {"state": "UP", "nodeid": -1},
                "b:1/0": {"state": state, "nodeid": 0, "rtt": {"avg": 1}},
            },
            "topics": {"in": {"topic": "in", "partitions": {**partitions, "-1": {"ls_offset": -1}}}},
        }
    )


def test_ends_and_brokers_come_from_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    events = Recorder()
    config = consumer_config("127.0.0.1:1", "g", {"stats_cb": given.append})
    consumer = WatchedConsumer(config, events, native="off")
    try:
        assert consumer.known_ends() == {}
        consumer._on_statistics(statistics("UP", p0=5, p1=-1001, p2=0))
        assert consumer.known_ends() == {TopicPartition("in", 0): 5, TopicPartition("in", 2): 0}
        consumer._on_statistics(statistics("TRY_CONNECT", p0=5))
        consumer._on_statistics(statistics("DOWN", p0=5))
        assert events.facts == [WaitingForBrokers("127.0.0.1:1")]
        assert len(given) == 3, "the user's own callback is called too"
    finally:
        consumer.close()


def test_the_client_takes_the_callback_and_calls_it() -> None:
    """Without a broker: the statistics say so."""
    events = Recorder()
    consumer = WatchedConsumer(consumer_config("127.0.0.1:1", "g", {"statistics.interval.ms": "50"}), events)
    try:
        for _ in range(100):
            consumer.poll(1, 0.1)
            if events.facts:
                break
        assert events.facts == [WaitingForBrokers("127.0.0.1:1")]
    finally:
        consumer.close()
    assert STATISTICS_INTERVAL_MS >= 1_000

"""A seek that the client loses, since its own thread starts or stops the partition at this moment: the partition is started
again at the position. The client is a script: the moment lasts microseconds, and a real one was not caught in it in
25,000 seeks (``tests/contract`` holds the consumer against a real one)."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.kafka import consumer
from penstock.streams.kafka.consumer import KafkaConsumer

MOVED, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Script:
    """Refuses each seek with one error, and says what it was told to read."""

    refusal = KafkaError._STATE

    def __init__(self, *_: Any, **__: Any) -> None:
        self.told: list[tuple[str, int, int]] = []

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.told += [("assign", p.partition, p.offset) for p in partitions]

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.told += [("unassign", p.partition, -1) for p in partitions]

    def seek(self, partition: confluent_kafka.TopicPartition) -> None:
        raise KafkaException(KafkaError(self.refusal))

    def pause(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.told += [("pause", p.partition, -1) for p in partitions]


def opened(monkeypatch: pytest.MonkeyPatch, refusal: int) -> tuple[KafkaConsumer, Script]:
    monkeypatch.setattr(consumer, "Consumer", Script)
    monkeypatch.setattr(Script, "refusal", refusal)
    made = KafkaConsumer({"bootstrap.servers": "127.0.0.1:1"}, native="off")
    made.assign_at({MOVED: 5, OTHER: 6})
    client: Any = made._client
    client.told.clear()
    return made, client


@pytest.mark.parametrize("refusal", [KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._OUTDATED])
def test_the_partition_starts_again_at_the_position(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    reading, client = opened(monkeypatch, refusal)
    reading.pause([OTHER])
    client.told.clear()
    reading.seek(MOVED, 322)
    assert client.told == [("unassign", 0, -1), ("assign", 0, 322), ("pause", 1, -1)]


def test_another_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, client = opened(monkeypatch, KafkaError._TIMED_OUT)
    with pytest.raises(RetriableError, match="seeking"):
        reading.seek(MOVED, 322)
    assert client.told == []

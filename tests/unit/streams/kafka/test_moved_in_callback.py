"""A partition that a rebalance callback moves in the middle of a poll: what was taken of it before is dropped. The client is
a script here, since no broker can be made to rebalance between two batches of one poll; what it does for each call is the
client's documented behaviour (``tests/contract`` holds the consumer against a real one)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from penstock.state.log import TopicPartition
from penstock.streams.kafka import columns, consumer
from penstock.streams.kafka.consumer import KafkaConsumer

STAYS, GOES = TopicPartition("t", 0), TopicPartition("t", 1)
END = 6_000


class Message:
    """A record."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset


class Script:
    """Hands out the records of one partition, and serves one callback before the ``consume`` of a number."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at: dict[int, int] = {}
        self.calls = 0
        self.events: dict[int, Callable[[], None]] = {}

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign, self.on_revoke = on_assign, on_revoke

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.at.update({p.partition: p.offset for p in partitions})

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        for p in partitions:
            self.at.pop(p.partition, None)

    def seek(self, partition: confluent_kafka.TopicPartition) -> None:
        self.at[partition.partition] = partition.offset

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.events.pop(self.calls, lambda: None)()
        self.calls += 1
        start = self.at.get(0, END)
        self.at[0] = min(start + count, END)
        return [Message(offset) for offset in range(start, self.at[0])]


def test_what_was_taken_before_the_move_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "Consumer", Script)
    monkeypatch.setattr(consumer, "_error", Message.error)
    for field in ("topic", "partition", "offset", "key", "value", "headers", "timestamp"):
        monkeypatch.setattr(columns, f"_{field}", getattr(Message, field))
    reads = KafkaConsumer({"group.protocol": "consumer"}, native="off")
    client: Any = reads._client
    reads.subscribe(
        ["t"],
        on_assign=lambda given: reads.assign_at(dict.fromkeys(given, 0)),
        on_revoke=lambda _: reads.seek(STAYS, 0),
        on_lost=lambda _: None,
    )

    def native(*partitions: TopicPartition) -> list[confluent_kafka.TopicPartition]:
        return [confluent_kafka.TopicPartition(p.topic, p.partition) for p in partitions]

    client.events[0] = lambda: client.on_assign(client, native(STAYS, GOES))
    assert not reads.poll(1, 0.0).chunks
    taken: list[int] = []
    client.events[client.calls + 1] = lambda: client.on_revoke(client, native(GOES))
    while STAYS not in reads._positions or reads._positions[STAYS] < END:
        taken += [offset for chunk in reads.poll(2 * columns.AT_A_TIME, 0.0).chunks for offset in chunk.offsets]
    assert taken == list(range(END))

"""A consumer whose client goes on in the wrong place behind a damaged batch: every record comes once and in order, by both
readers. The client is a script here: which bytes a real one takes for a batch is chance (``tests/integration`` damages a
real log)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.streams.kafka import columns, consumer
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.native_reader import Drained, ReaderEvent
from penstock.streams.kafka.reading_errors import DAMAGED_TRIES
from penstock.streams.ports.chunk import Chunk

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
END = 40
BATCH = 4
MODES = ("off", "require")
WRONG_CHECKSUM = KafkaError(KafkaError._BAD_MSG, "failed CRC32C check")
UNKNOWN_FORMAT = KafkaError(KafkaError._NOT_IMPLEMENTED, "Unsupported Message(Set) MagicByte 120")
NO_SUCH_OFFSET = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")


class Message:
    """A record, or an error."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._place, self._error = (partition, offset), error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def leader_epoch(self) -> None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Script:
    """Fetches a batch of each partition a call. ``damaged``: in which calls partition 0 has a damaged one behind it, or
    before it if ``at_once``; the client then goes on ``gap`` records later, or looks for an offset that is in no log."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at: dict[int, int] = {}
        self.calls = 0
        self.damaged: Iterable[int] = ()
        self.at_once = False
        self.gap = 0

    def incremental_assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.at.update({p.partition: p.offset for p in partitions})

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        for p in partitions:
            del self.at[p.partition]

    def _batch(self, partition: int) -> list[Message]:
        start = self.at[partition]
        self.at[partition] = max(start, min(start + BATCH, END))
        return [Message(partition, offset) for offset in range(start, self.at[partition])]

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        assert count >= 4 * BATCH
        self.calls += 1
        out: list[Message] = []
        for partition in sorted(self.at):
            if partition or self.calls not in self.damaged:
                out += self._batch(partition)
                continue
            if not self.at_once:
                out += self._batch(partition)
            out.append(Message(0, self.at[0], WRONG_CHECKSUM))
            if self.gap:
                self.at[0] += self.gap
                out += [Message(0, self.at[0], UNKNOWN_FORMAT), *self._batch(0)]
            else:
                self.at[0] = 1 << 60
                out += [Message(0, 1 << 60, UNKNOWN_FORMAT), Message(0, 1 << 60, NO_SUCH_OFFSET)]
        return out


class Queue:
    """The compiled reader over the same script: records and errors come apart."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def follow(self, partitions: Iterable[TopicPartition]) -> None: ...

    def leave(self, partitions: Iterable[TopicPartition]) -> None: ...

    def drain(self, max_records: int, timeout_s: float) -> Drained:
        found: dict[int, list[int]] = {}
        events = []
        for message in self._script.consume(max_records, timeout_s):
            err = message.error()
            if err is not None:
                events.append(ReaderEvent(TP, message.offset(), err))
            else:
                found.setdefault(message.partition(), []).append(message.offset())
        chunks = [Chunk("t", p, at, [None] * len(at), [b"v"] * len(at), [0] * len(at)) for p, at in found.items()]
        return Drained(chunks, events, [], {})


@pytest.fixture(params=MODES)
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KafkaConsumer:
    monkeypatch.setattr(consumer, "Consumer", Script)
    monkeypatch.setattr(consumer, "_error", Message.error)
    for field in ("topic", "partition", "offset", "key", "value", "headers", "timestamp"):
        monkeypatch.setattr(columns, f"_{field}", getattr(Message, field))
    made = KafkaConsumer({}, native="off")
    if request.param == "require":
        made._reader = Queue(script_of(made))  # type: ignore[assignment]  # stands for the compiled one
        monkeypatch.setattr(made, "_serve_group", lambda: None)
    made.assign_at({TP: 0, OTHER: 0})
    return made


def script_of(reads: KafkaConsumer) -> Script:
    client: Any = reads._client
    assert isinstance(client, Script)
    return client


def read(reads: KafkaConsumer, polls: int) -> dict[TopicPartition, list[int]]:
    """The offsets that so many polls return."""
    found: dict[TopicPartition, list[int]] = {TP: [], OTHER: []}
    for _ in range(polls):
        for chunk in reads.poll(1_000, 0.0).chunks:
            found[TopicPartition(chunk.topic, chunk.partition)] += chunk.offsets
    return found


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("gap", [0, 1, 3, 7])
def test_every_record_comes_once(reads: KafkaConsumer, gap: int, at_once: bool) -> None:
    script = script_of(reads)
    script.damaged, script.at_once, script.gap = (1, 2, 4, 5, 8), at_once, gap
    assert read(reads, 40) == {TP: list(range(END)), OTHER: list(range(END))}


def test_a_batch_that_stays_damaged_is_an_error(reads: KafkaConsumer) -> None:
    """What stands before it is returned, and what other partitions have."""
    script = script_of(reads)
    script.damaged, script.at_once = range(3, 1_000), True
    found = read(reads, DAMAGED_TRIES + 1)
    assert found[TP] == list(range(2 * BATCH))
    assert found[OTHER] == list(range(END))
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match=r"topic t, partition 0, at or after offset 8 is damaged: .*CRC32C"):
            read(reads, 1)

"""A range that an executor reads: what counts as silence of the brokers."""

from __future__ import annotations

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.streams.batch import reading
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.ports.log import Fetched, TopicSpec
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog

TP = TopicPartition("in", 0)
ADDRESS = ClusterAddress("memory")


class Clock:
    """Moves by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Sparing(MemoryConsumer):
    """Gives nothing at every second poll, and nothing at all once it is ``mute``; an empty poll takes its time."""

    def __init__(self, log: MemoryLog, clock: Clock) -> None:
        super().__init__(log, "reader")
        self._clock, self._polls, self.mute = clock, 0, False

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        self._polls += 1
        if self.mute or self._polls % 2:
            self._clock.now_s += timeout_s
            return Fetched([], {})
        return super().poll(max_records, timeout_s)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create(TopicSpec(TP.topic, 1, 1, {}))
    for i in range(5):
        log.append(TP, LogEntry(b"k", b"%d" % i, i))
    return log


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "BATCH_ROWS", 1)
    return clock


@pytest.fixture
def consumer(log: MemoryLog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Sparing:
    consumer = Sparing(log, clock)
    monkeypatch.setattr(reading, "open_consumer", lambda address, group: consumer)
    return consumer


def test_a_reader_that_takes_long_for_a_chunk_blames_nobody(consumer: Sparing, clock: Clock) -> None:
    found = []
    for chunk in reading.read_range(ADDRESS, "app", TP, 0, 5):
        found += list(chunk.values)
        clock.now_s += 1_000
    assert found == [b"0", b"1", b"2", b"3", b"4"]


def test_brokers_that_give_nothing_are_named(consumer: Sparing, clock: Clock) -> None:
    chunks = reading.read_range(ADDRESS, "app", TP, 0, 5)
    next(chunks)
    consumer.mute = True
    with pytest.raises(EnvironmentFault, match="in partition 0 gave no record for 120 s, before offset 5"):
        next(chunks)
    assert clock.now_s < 130

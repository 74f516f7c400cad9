"""A bounded consumer shows each partition up to its stop, wherever it is placed."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.bounded_consumer import BoundedConsumer
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create(TopicSpec("t", 2))
    for tp in (A, B):
        for i in range(10):
            log.append(tp, LogEntry(b"k", b"%d" % i, i))
    return log


def read(consumer: BoundedConsumer) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, int]]:
    """Offsets and ends of some polls."""
    offsets: dict[TopicPartition, list[int]] = {}
    ends: dict[TopicPartition, int] = {}
    for _ in range(12):
        fetched = consumer.poll(3, 0.0)
        for chunk in fetched.chunks:
            offsets.setdefault(TopicPartition(chunk.topic, chunk.partition), []).extend(chunk.offsets)
        ends |= fetched.ends
    return offsets, ends


def test_records_from_the_stop_on_are_left_out_and_the_stop_is_the_end(log: MemoryLog) -> None:
    consumer = BoundedConsumer(MemoryConsumer(log, "g"), {A: 4, B: 10})
    consumer.assign_at({A: 0, B: 7})
    assert read(consumer) == ({A: [0, 1, 2, 3], B: [7, 8, 9]}, {A: 4, B: 10})


def test_a_partition_that_is_placed_at_its_stop_is_at_its_end(log: MemoryLog) -> None:
    consumer = BoundedConsumer(MemoryConsumer(log, "g"), {A: 4, B: 2})
    consumer.assign_at({A: 4, B: 6})
    assert read(consumer) == ({}, {A: 4, B: 2})


def test_a_partition_that_was_over_is_read_again_when_it_is_moved_back(log: MemoryLog) -> None:
    consumer = BoundedConsumer(MemoryConsumer(log, "g"), {A: 4, B: 0})
    consumer.assign_at({A: 0, B: 0})
    read(consumer)
    consumer.seek(A, 2)
    assert read(consumer) == ({A: [2, 3]}, {A: 4})
    consumer.seek(A, 4)
    assert read(consumer) == ({}, {A: 4})


def test_what_is_over_is_not_resumed(log: MemoryLog) -> None:
    consumer = BoundedConsumer(MemoryConsumer(log, "g"), {A: 4, B: 0})
    consumer.assign_at({A: 0, B: 0})
    consumer.pause([A])
    assert read(consumer)[0] == {}
    consumer.resume([A, B])
    assert read(consumer)[0] == {A: [0, 1, 2, 3]}
    consumer.resume([A, B])
    assert read(consumer) == ({}, {})


def test_a_chunk_is_cut_with_all_of_its_columns() -> None:
    lists = Chunk("t", 0, [3, 5, 9], [b"a", None, b"c"], [b"1", b"2", None], [1, 2, 3], [(), (("h", b"x"),), ()])
    for chunk in (lists, lists.in_columns()):
        assert chunk.before(9) == Chunk("t", 0, [3, 5], [b"a", None], [b"1", b"2"], [1, 2], [(), (("h", b"x"),)])
        assert not len(chunk.before(3)) and len(chunk.before(10)) == 3
    assert isinstance(lists.in_columns().before(5).times, np.ndarray)

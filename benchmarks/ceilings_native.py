"""Ceilings of the optional native reader and writer, which keep records in columns; none where it is not built."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition, cimpl

from benchmarks.ceiling_topic import COUNTS, CeilingTopic
from benchmarks.measured import Ceiling, best, measure

TIMES = 3


class Relay(NamedTuple):
    """What a workload without state moves, with nothing done to it: of every ``nth`` record it reads it writes one, with
    a value of ``value_bytes`` (``None``: the one that was read)."""

    workload: str
    nth: int
    value_bytes: int | None


RELAYS = {"events": (Relay("pass-through", 1, None), Relay("filter", 3, None), Relay("project", 1, 78))}
"""A third of the events are views; what ``project`` writes has 114 bytes, of which 36 are the key."""


def _built() -> Any:
    try:
        import penstock_native
    except ImportError:
        return None
    return penstock_native


def _client(config: dict[str, Any]) -> tuple[str, int, str]:
    """What the module asks about a client: its library, the version, the name."""
    return cimpl.__file__, confluent_kafka.libversion()[1], config.get("client.id", "rdkafka")


def of_log(of: CeilingTopic, size: float) -> Iterator[Ceiling]:
    """Its writer, from columns that are there already, and its reader, into columns."""
    native = _built()
    if native is None:
        yield Ceiling("fetch", f"{of.name}: native reader", "records", 0.0, 0.0, note="penstock_native is not built")
        return
    yield best(TIMES, partial(_written, native, of, size))
    yield best(TIMES, partial(_read, native, of, size))
    for relay in RELAYS.get(of.name, ()):
        yield best(TIMES, partial(_relayed, native, of, size, relay))


def _relayed(native: Any, of: CeilingTopic, size: float, relay: Relay) -> Ceiling:
    """Fetching and producing at once, by the same thread, as a worker does."""
    out = f"{of.topic}-relayed"
    consumer, producer = of.consumer(start=False), of.producer(out)
    reader, writer = native.Reader(consumer, *_client({})), native.Writer(producer, *_client({}))
    for partition in of.partitions:
        reader.follow(of.topic, partition)
    consumer.assign([TopicPartition(of.topic, partition, 0) for partition in of.partitions])
    shorter = _column([b"x" * relay.value_bytes] * COUNTS) if relay.value_bytes else None

    def turn(timeout_ms: int) -> int:
        read = 0
        for _, partition, _, _, _, times, keys, values, _, _ in reader.drain(COUNTS, timeout_ms)[0]:
            count = len(times) // 8
            columns = _numbers(keys), shorter or _numbers(values), np.frombuffer(times, np.int64), None
            partitions, done = np.full(count, partition, np.int32), 0
            while done < count // relay.nth:
                done += writer.send(out, *columns, partitions, done, count // relay.nth)
                producer.poll(0)
            read += count
        return read

    def work() -> float:
        seen = first
        while seen < len(of.made):
            seen += turn(1_000)
        producer.flush()
        return seen - first

    try:
        first = 0
        while not first:
            first = turn(1_000)
        producer.flush()
        return measure("relay", f"{relay.workload}: native reader and writer", "records", work, bytes=size)
    finally:
        writer.close()
        reader.close()
        consumer.close()
        of.log.delete([out])


def _numbers(column: tuple[Any, bytes, bytes | None]) -> tuple[Any, np.ndarray, Any]:
    """A read column as the writer takes it."""
    data, ends, nulls = column
    return data, np.frombuffer(ends, np.int64), None if nulls is None else np.frombuffer(nulls, np.uint8)


def _column(values: list[bytes]) -> tuple[bytes, np.ndarray, None]:
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=ends[1:])
    return b"".join(values), ends, None


def _written(native: Any, of: CeilingTopic, size: float) -> Ceiling:
    producer: Producer = of.producer()
    count = len(of.made)
    keys, values = _column([row[0] for row in of.made]), _column([row[1] for row in of.made])
    times = np.array([row[2] for row in of.made], np.int64)
    partitions = (np.arange(count) % len(of.partitions)).astype(np.int32)
    writer = native.Writer(producer, *_client({}))

    def work() -> float:
        done = 0
        while done < count:
            end = min(done + COUNTS, count)
            done += writer.send(of.topic, keys, values, times, None, partitions, done, end)
            producer.poll(0)
        producer.flush()
        return count

    try:
        return measure("produce", f"{of.name}: native writer", "records", work, bytes=size)
    finally:
        writer.close()


def _read(native: Any, of: CeilingTopic, size: float) -> Ceiling:
    consumer: Consumer = of.consumer(start=False)
    reader = native.Reader(consumer, *_client({}))
    for partition in of.partitions:
        reader.follow(of.topic, partition)
    consumer.assign([TopicPartition(of.topic, partition, 0) for partition in of.partitions])

    def turn(timeout_ms: int) -> int:
        return sum(len(chunk[5]) // 8 for chunk in reader.drain(COUNTS, timeout_ms)[0])

    def work() -> float:
        seen = first
        while seen < len(of.made):
            seen += turn(1_000)
        return seen - first

    try:
        first = 0
        while not first:
            first = turn(1_000)
        return measure("fetch", f"{of.name}: native reader", "records", work, bytes=size)
    finally:
        reader.close()
        consumer.close()

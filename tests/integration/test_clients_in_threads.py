"""What the compiled reader and the producer do in threads of their own, on a real broker: nothing shows that they do.
Collected where the native part was built (``conftest.py``)."""

from __future__ import annotations

import random
import time

import msgspec
import numpy as np
import pytest

from penstock.state.log import TopicPartition
from penstock.streams.kafka.producer import BACKGROUND_MIN
from penstock.streams.ports.log import AbortableError
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.operator_api.columns import BytesColumn
from tests.integration.test_native_clients import PARTITIONS, Clients, clients, until

__all__ = ["clients"]
pytestmark = pytest.mark.integration


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_ahead_follows_every_move(clients: Clients, seed: int) -> None:
    """Each partition goes on at the next record, or where it was moved to, although full polls read ahead of it."""
    topic, count, rng = clients.topic("ahead"), 8_000, random.Random(seed)
    producer = clients.producer("require")
    for p in range(PARTITIONS):
        producer.send(topic, [b"key"] * count, [b"%d" % i for i in range(count)], [1] * count, partition=p)
    producer.flush(60)
    consumer = clients.consumer("require", topic)
    following = {TopicPartition(topic, p): 0 for p in range(PARTITIONS)}
    paused: set[TopicPartition] = set()
    consumer.assign_at(following)

    def polled(most: int) -> int:
        chunks = consumer.poll(most, 0.02).chunks
        assert sum(map(len, chunks)) <= most
        for chunk in chunks:
            tp = TopicPartition(chunk.topic, chunk.partition)
            assert tp not in paused
            assert list(chunk.offsets) == list(range(following[tp], following[tp] + len(chunk)))
            assert chunk.values == [b"%d" % offset for offset in chunk.offsets]
            following[tp] += len(chunk)
        return sum(map(len, chunks))

    full = 0
    for _ in range(80):
        for most in rng.choices([1, 70, 500, 3_000], k=3):
            full += polled(most) == most > 64
        if rng.random() < 0.3:
            time.sleep(0.005)
        chosen, move = rng.choice(list(following)), rng.randrange(4)
        if move == 0:
            following[chosen] = rng.randrange(count)
            consumer.seek(chosen, following[chosen])
        elif move == 1:
            paused.add(chosen)
            consumer.pause([chosen])
        elif move == 2:
            paused.discard(chosen)
            consumer.resume([chosen])
        else:
            following[chosen], again = rng.randrange(count), rng.random() < 0.5
            paused.discard(chosen)
            if again:
                consumer.unassign([chosen])
            consumer.assign_at({chosen: following[chosen]})
            if not again:
                consumer.resume([chosen])
    assert full > 20, "hardly anything was read ahead"
    consumer.resume(list(following))
    paused.clear()
    until(lambda: all(at == count for at in following.values()), lambda: polled(3_000))


class Event(msgspec.Struct):
    """A record whose fields are read ahead."""

    number: int
    text: str | None = None


def test_fields_that_are_read_ahead_are_those_of_the_records(clients: Clients) -> None:
    """Two projections take turns on one partition, and some records are not of the type."""
    topic, count, rng = clients.topic("fields", 1), 30_000, random.Random(5)
    bad = {rng.randrange(count) for _ in range(20)}
    records = [
        b'{"number":"%d"}' % i if i in bad else msgspec.json.encode(Event(i, rng.choice([None, "é", f"t{i}"])))
        for i in range(count)
    ]
    records[7] = b'{"number":70000000000000000000}'
    producer, tp = clients.producer("require"), TopicPartition(topic, 0)
    producer.send(topic, [b"key"] * count, records, [1] * count, partition=0)
    producer.flush(60)
    consumer = clients.consumer("require", topic)
    consumer.assign_at({tp: 0})
    decode = msgspec.json.Decoder(Event).decode
    read = [JsonProjection(Event, fields, decode) for fields in (["number"], ["text", "number"])]
    plain = [JsonProjection(Event, fields, decode) for fields in (["number"], ["text", "number"])]
    at, ahead, polls = 0, 0, 0

    def compare() -> None:
        nonlocal at, ahead, polls
        time.sleep(0.005)  # a task works while its reader reads on
        for chunk in consumer.poll(rng.choice([400, 3_000, *[600] * 12]), 0.2).chunks:
            column, polls = chunk.value_column, polls + 1
            if column is None:
                at += len(chunk)
                continue
            which = polls // 6 % 2
            bare = BytesColumn(column.data, column.offsets, column.nulls)
            projector = read[which]._ahead
            assert column.ahead is not None
            ahead += projector is not None and column.ahead.by(projector) is not None
            if rng.random() < 0.2:
                cut = len(column) // 3
                column, bare = column.slice(cut, len(column)), bare.slice(cut, len(column))
            found, expected = read[which].read(column), plain[which].read(bare)
            assert [row for row, _ in found.failed] == [row for row, _ in expected.failed]
            assert {n: c.to_list() for n, c in found.columns.items()} == {
                n: c.to_list() for n, c in expected.columns.items()
            }
            at += len(chunk)
        if rng.random() < 0.05:
            consumer.seek(tp, at)

    until(lambda: at == count, compare)
    assert ahead > 5, "hardly anything was read ahead"


@pytest.mark.parametrize("transactional", [False, True])
def test_what_is_queued_in_the_background_keeps_its_order_and_its_errors(clients: Clients, transactional: bool) -> None:
    """Sends of all sizes follow one another; then one has a record that is too large, of which the next call tells."""
    topic, rng = clients.topic("background", 2), random.Random(7)
    producer = clients.producer("require", f"{topic}-tx" if transactional else None)
    at = {0: 0, 1: 0}

    def send(count: int, large: int = -1) -> None:
        partitions = rng.choice([[rng.randrange(2) for _ in range(count)], [0] * count])
        values = []
        for place, p in enumerate(partitions):
            values.append(b"x" * 2_000_000 if place == large else b"%d" % at[p])
            at[p] += 1
        keys, times = BytesColumn.of([b"k"] * count), np.ones(count, np.int64)
        producer.send(topic, keys, BytesColumn.of(values), times, partition=partitions)
        partitions[:] = [1 - p for p in partitions]  # the list is still its owner's

    for _ in range(4):
        if transactional:
            producer.begin()
        for _ in range(5):
            send(rng.choice([1, BACKGROUND_MIN, 3_000]))
        ends = producer.flush(60)
        if transactional:
            producer.commit(60)
    assert len(ends) == 2
    written = dict(at)
    if transactional:
        producer.begin()
    send(3_000, large=1_700)
    with pytest.raises(AbortableError, match="too large"):
        rng.choice([lambda: send(1), lambda: producer.flush(60)])()
    with pytest.raises(AbortableError, match="too large"):
        producer.flush(60)
    if transactional:
        producer.abort(60)
    consumer = clients.consumer("off", f"{topic}-reader")
    consumer.assign_at({TopicPartition(topic, p): 0 for p in range(2)})
    found: dict[int, list[bytes | None]] = {0: [], 1: []}

    def step() -> None:
        for chunk in consumer.poll(10_000, 0.2).chunks:
            found[chunk.partition] += chunk.values

    until(lambda: all(len(found[p]) >= written[p] for p in found), step)
    for p, values in found.items():
        assert values[: written[p]] == [b"%d" % i for i in range(written[p])]

"""Records are read as they were written: columns, partitions, nulls, headers, timestamps, limits."""

from __future__ import annotations

import pytest

from penstock.state.errors import UserError
from penstock.state.log import TopicPartition
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import AbortableError, ProducerRetiredError
from penstock.streams.ports.log_errors import OffsetOutOfRangeError
from penstock.streams.testing.contracts.log_world import (
    BROKER_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    QUEUE_MAX_RECORDS,
    TOO_LARGE,
    World,
    topic,
)
from penstock.streams.testing.contracts.reading import Read, poll_into, read_to_end, until


class LogRecordsContract:
    """Records, to mix into a class of tests with the fixture ``world``."""

    def test_columns_come_back_as_they_were_sent(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        keys = [b"a", None, b"", b"d"]
        values = [b"1", b"", None, b"\x00\xff"]
        producer.send(name, keys, values, [5, 1_700_000_000_000, 1, 3], partition=0)
        assert producer.flush(60) == {TopicPartition(name, 0): 4}
        read = read_to_end(world, name)
        tp = TopicPartition(name, 0)
        assert read.offsets[tp] == [0, 1, 2, 3]
        assert read.keys[tp] == keys
        assert read.values[tp] == values
        assert read.timestamps[tp] == [5, 1_700_000_000_000, 1, 3]
        assert read.headers[tp] == [()] * 4

    def test_chunk_without_headers_has_no_headers_column(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        producer.send(name, [b"k"], [b"v"], [1], partition=0)
        producer.flush(60)
        consumer = world.consumer(world.name("g"))
        consumer.assign_at({TopicPartition(name, 0): 0})
        chunks: list[Chunk] = []
        until(lambda: bool(chunks), lambda: chunks.extend(consumer.poll(10, 0.1).chunks))
        assert chunks[0].headers is None

    def test_headers_keep_order_repeats_and_nulls(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        first = (("a", b"1"), ("a", None), ("b", b""))
        producer.send(name, [b"k", b"k"], [b"v", b"w"], [1, 2], [first, ()], partition=0)
        producer.flush(60)
        assert read_to_end(world, name).headers[TopicPartition(name, 0)] == [first, ()]

    def test_timestamp_zero_survives_and_its_header_does_not_show(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        producer.send(name, [b"k"] * 3, [b"v"] * 3, [0, 7, 0], partition=0)
        producer.send(name, [b"k"], [b"v"], [0], [(("own", b"1"),)], partition=0)
        producer.flush(60)
        read = read_to_end(world, name)
        tp = TopicPartition(name, 0)
        assert read.timestamps[tp] == [0, 7, 0, 0]
        assert read.headers[tp] == [(), (), (), (("own", b"1"),)]

    def test_keys_go_where_murmur2_says(self, world: World) -> None:
        name = topic(world, partitions=7)
        producer = world.producer()
        keys: list[bytes | None] = [
            *(b"key-%d" % i for i in range(200)),
            b"",
            b"21",
            b"foobar",
            b"a-little-bit-long-string",
        ]
        producer.send(name, keys, keys, [1] * len(keys))
        assert producer.flush(60) == {}
        read = read_to_end(world, name, range(7))
        for p in range(7):
            assert read.keys.get(TopicPartition(name, p), []) == [k for k in keys if partition_for(k or b"", 7) == p]

    def test_one_partition_each(self, world: World) -> None:
        name = topic(world, partitions=3)
        producer = world.producer()
        producer.send(name, [b"k"] * 5, [b"%d" % i for i in range(5)], [1] * 5, partition=[2, 0, 2, 0, 2])
        producer.send(name, [None], [b"5"], [1], partition=0)
        assert producer.flush(60) == {TopicPartition(name, 0): 3, TopicPartition(name, 2): 3}
        read = read_to_end(world, name, range(3))
        assert read.values == {TopicPartition(name, 0): [b"1", b"3", b"5"], TopicPartition(name, 2): [b"0", b"2", b"4"]}

    def test_minus_one_among_partitions_means_by_key(self, world: World) -> None:
        name = topic(world, partitions=3)
        producer = world.producer()
        chosen = (partition_for(b"k", 3) + 1) % 3
        producer.send(name, [b"k", b"k"], [b"by key", b"chosen"], [1, 1], partition=[-1, chosen])
        assert producer.flush(60)[TopicPartition(name, chosen)] == 1
        values = read_to_end(world, name, range(3)).values
        assert values[TopicPartition(name, partition_for(b"k", 3))] == [b"by key"]
        assert values[TopicPartition(name, chosen)] == [b"chosen"]

    def test_null_keys_are_all_there(self, world: World) -> None:
        name = topic(world, partitions=3)
        producer = world.producer()
        producer.send(name, [None] * 50, [b"%d" % i for i in range(50)], [1] * 50)
        producer.flush(60)
        read = read_to_end(world, name, range(3))
        assert sorted(v for column in read.values.values() for v in column if v) == sorted(b"%d" % i for i in range(50))

    def test_flush_tells_offsets_since_the_last_flush(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        for end in (3, 6):
            producer.send(name, [b"k"] * 3, [b"v"] * 3, [1] * 3, partition=0)
            assert producer.flush(60) == {TopicPartition(name, 0): end}
        assert producer.flush(60) == {}

    def test_acknowledgements_come_without_waiting_for_them(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        producer.send(name, [b"k"] * 3, [b"v"] * 3, [1] * 3, partition=0)
        producer.send(name, [b"k"], [b"v"], [1])
        until(lambda: producer.unacknowledged() == 0, lambda: None)
        assert producer.flush(0.1) == {TopicPartition(name, 0): 3}
        assert sum(map(len, read_to_end(world, name).keys.values())) == 4

    def test_full_queue_keeps_every_record_in_order(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        count = QUEUE_MAX_RECORDS * 50
        values: list[bytes | None] = [b"%d" % i for i in range(count)]
        producer.send(name, values, values, [1] * count, partition=0)
        producer.send(name, values, values, [0] * count, partition=[0] * count)
        assert producer.flush(60) == {TopicPartition(name, 0): 2 * count}
        assert read_to_end(world, name).values[TopicPartition(name, 0)] == values * 2

    def test_record_over_the_client_limit_raises_at_once(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        with pytest.raises(AbortableError, match=name):
            producer.send(name, [b"k"] * 3, [b"v", b"x" * (MESSAGE_MAX_BYTES + 1), b"w"], [1] * 3, partition=0)
        with pytest.raises(AbortableError):
            producer.flush(60)

    def test_refused_record_in_the_middle_is_an_error_and_leaves_no_gap(self, world: World) -> None:
        name = topic(world, max_message_bytes=BROKER_MAX_BYTES)
        producer = world.producer()
        values: list[bytes | None] = [b"%d" % i for i in range(5)]
        producer.send(name, values, values, [1] * 5, partition=0)
        producer.flush(60)
        with pytest.raises(AbortableError):
            producer.send(name, [b"big"], [TOO_LARGE], [1], partition=0)
            producer.send(name, values, values, [1] * 5, partition=0)
            producer.flush(60)
        with pytest.raises((AbortableError, ProducerRetiredError)):
            producer.flush(60)
        assert read_to_end(world, name).values[TopicPartition(name, 0)] == values
        # The failed handle is of no more use, a new one is.
        again = world.producer()
        again.send(name, values, values, [1] * 5, partition=0)
        assert again.flush(60) == {TopicPartition(name, 0): 10}

    def test_sending_to_an_unknown_partition_is_refused(self, world: World) -> None:
        name = topic(world)
        producer = world.producer()
        producer.send(name, [b"k"], [b"v"], [1], partition=0)
        producer.flush(60)
        with pytest.raises(AbortableError):
            producer.send(name, [b"k"], [b"v"], [1], partition=9)
            producer.flush(60)

    def test_poll_never_gives_more_than_asked(self, world: World) -> None:
        name = topic(world, partitions=2)
        producer = world.producer()
        for p in range(2):
            producer.send(name, [b"k"] * 25, [b"v"] * 25, [1] * 25, partition=p)
        producer.flush(60)
        consumer = world.consumer(world.name("g"))
        read = Read()
        consumer.assign_at({TopicPartition(name, p): 0 for p in range(2)})
        until(lambda: len(read.ends) == 2, lambda: poll_into(consumer, read, max_records=7))
        assert read.offsets == {TopicPartition(name, p): list(range(25)) for p in range(2)}

    def test_position_past_retention_is_an_error_that_names_the_place(self, world: World) -> None:
        name = topic(world)
        tp = TopicPartition(name, 0)
        producer = world.producer()
        producer.send(name, [b"k"] * 10, [b"v"] * 10, [1] * 10, partition=0)
        producer.flush(60)
        world.delete_before(tp, 6)
        consumer = world.consumer(world.name("g"))
        assert consumer.watermarks(tp) == (6, 10)
        for gone in (2, 99):
            consumer.assign_at({tp: gone})
            with pytest.raises(OffsetOutOfRangeError) as caught:
                until(lambda: False, lambda: consumer.poll(10, 0.1))
            assert (caught.value.partition, caught.value.offset) == (tp, gone)
            assert name in str(caught.value)
        consumer.seek(tp, 6)
        read = Read()
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        assert read.offsets[tp] == [6, 7, 8, 9]

    def test_unknown_topic_is_an_error(self, world: World) -> None:
        consumer = world.consumer(world.name("g"))
        name = world.name("absent")

        def nothing(_: object) -> None: ...

        consumer.subscribe([name], on_assign=nothing, on_revoke=nothing, on_lost=nothing)
        with pytest.raises(UserError, match=name):
            until(lambda: False, lambda: consumer.poll(10, 0.1))

    def test_records_are_deleted_up_to_an_offset(self, world: World) -> None:
        name = topic(world, 2)
        producer = world.producer()
        for p in range(2):
            producer.send(name, [b"k"] * 5, [b"v"] * 5, [1] * 5, partition=p)
        producer.flush(60)
        deletion = world.admin().delete_before({TopicPartition(name, 1): 3})
        until(lambda: deletion() is not None, lambda: None)
        assert deletion() == {}
        consumer = world.consumer(world.name("g"))
        assert [consumer.watermarks(TopicPartition(name, p)) for p in range(2)] == [(0, 5), (3, 5)]

"""A bit that is wrong in a log segment of a real broker, which hands it out as it is: the checksum of the batch tells."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.reading_errors import DAMAGED_TRIES
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import TopicSpec
from tests.chaos.frames import batches_in
from tests.contract.worlds import NATIVE_MODES

LIMIT_S = 60.0
RECORD = b"x" * 1_000
"""The client takes these bytes behind the damage for a batch of a format that it does not know."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(heap="256m") as cluster:
        yield cluster


class Damaged:
    """A topic of three batches, the second with a wrong bit."""

    def __init__(self, kafka: EmbeddedKafka, topic: str) -> None:
        KafkaAdmin(admin_config(kafka.bootstrap_servers, {})).create_topics([TopicSpec(topic, 1)])
        writer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self.tp = TopicPartition(topic, 0)
        for number in range(3):
            writer.produce(topic, RECORD, key=b"%d" % number, partition=0)
            assert writer.flush(LIMIT_S) == 0
        self._servers = kafka.bootstrap_servers
        (self._segment,) = Path(kafka.data_dir).glob(f"**/{topic}-0/{0:020}.log")
        _, (_, end), _ = batches_in(self._segment.read_bytes())
        self._at = end - 1
        self.flip()

    def flip(self) -> None:
        """The broker reads the file each time."""
        with self._segment.open("r+b") as segment:
            segment.seek(self._at)
            (byte,) = segment.read(1)
            segment.seek(self._at)
            segment.write(bytes([byte ^ 1]))

    @contextlib.contextmanager
    def reading(self, native: str) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(consumer_config(self._servers, "g", {}), native=native)
        try:
            consumer.assign_at({self.tp: 0})
            yield consumer
        finally:
            consumer.close()


def keys_of(chunks: list[Chunk]) -> list[bytes | None]:
    return [key for chunk in chunks for key in chunk.keys]


@pytest.mark.parametrize("native", NATIVE_MODES)
def test_it_is_read_again_until_it_is_whole(kafka: EmbeddedKafka, native: str) -> None:
    """As where the leader changes to a replica that is whole."""
    damaged = Damaged(kafka, f"passing-{native}")
    with damaged.reading(native) as consumer:
        chunks: list[Chunk] = []
        until = time.monotonic() + LIMIT_S
        while not chunks and time.monotonic() < until:
            chunks += consumer.poll(100, 0.1).chunks
        for _ in range(DAMAGED_TRIES // 2):
            chunks += consumer.poll(100, 0.1).chunks
        assert keys_of(chunks) == [b"0"]
        damaged.flip()
        until = time.monotonic() + LIMIT_S
        while len(keys_of(chunks)) < 3 and time.monotonic() < until:
            chunks += consumer.poll(100, 0.1).chunks
    assert keys_of(chunks) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("native", NATIVE_MODES)
def test_it_is_an_error_if_it_stays(kafka: EmbeddedKafka, native: str) -> None:
    damaged = Damaged(kafka, f"lasting-{native}")
    # The client reads on behind the damage, where it takes what it finds for an offset: either may be its last word.
    said = rf"topic {damaged.tp.topic}, partition 0, at or after offset 1 is damaged: .*(failed CRC32C|Offset out of range)"
    with damaged.reading(native) as consumer:
        chunks: list[Chunk] = []
        with pytest.raises(EnvironmentFault, match=said):
            until = time.monotonic() + LIMIT_S
            while time.monotonic() < until:
                chunks += consumer.poll(100, 0.2).chunks
        assert keys_of(chunks) == [b"0"]

"""What a reader must raise, and what passes by itself."""

from __future__ import annotations

from confluent_kafka import KafkaError

from penstock.state.errors import EnvironmentFault, SerdeError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.reading_errors import DAMAGED_TRIES, ReadingErrors
from penstock.streams.ports.log_errors import OffsetOutOfRangeError

TP = TopicPartition("t", 0)
DAMAGED = KafkaError(KafkaError._BAD_MSG, "failed CRC32C check")


def test_connections_that_come_and_go_pass() -> None:
    errors = ReadingErrors()
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.NOT_LEADER_FOR_PARTITION):
        assert errors.failure(TP, 1, KafkaError(code)) is None


def test_what_reading_again_does_not_cure_is_raised() -> None:
    assert isinstance(ReadingErrors().failure(TP, 1, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)), OffsetOutOfRangeError)


def test_damaged_batch_is_fetched_again_until_it_is_plain_that_the_log_has_it_so() -> None:
    errors = ReadingErrors()
    for _ in range(3):  # elsewhere, or further on: each begins to count by itself
        for at in (5, 6):
            assert [errors.failure(TP, at, DAMAGED) for _ in range(DAMAGED_TRIES - 1)] == [None] * (DAMAGED_TRIES - 1)
    failure = errors.failure(TP, 6, DAMAGED)
    assert isinstance(failure, EnvironmentFault)
    assert "failed CRC32C check" in str(failure)


def test_a_batch_that_cannot_be_decompressed_is_named_with_the_limit() -> None:
    failure = ReadingErrors().failure(TP, 7, KafkaError(KafkaError._BAD_COMPRESSION, "Decompression failed"))
    assert isinstance(failure, SerdeError)
    assert f"topic {TP.topic}, partition {TP.partition}, at or after offset 7" in str(failure)
    assert "receive.message.max.bytes" in str(failure)

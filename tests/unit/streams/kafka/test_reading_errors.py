"""What a reader must raise, and what passes by itself."""

from __future__ import annotations

from confluent_kafka import KafkaError

from penstock.state.errors import EnvironmentFault, SerdeError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.reading_errors import DAMAGED_TRIES, ReadingErrors
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log_errors import OffsetOutOfRangeError

TP = TopicPartition("t", 0)
DAMAGED = KafkaError(KafkaError._BAD_MSG, "failed CRC32C check")
UNKNOWN_FORMAT = KafkaError(KafkaError._NOT_IMPLEMENTED, "Unsupported Message(Set) MagicByte 120")
NO_SUCH_OFFSET = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")


def chunk(first: int, stop: int, partition: int = 0) -> Chunk:
    """Records at these offsets."""
    count = stop - first
    return Chunk("t", partition, range(first, stop), [None] * count, [b"v"] * count, [0] * count)


def test_connections_that_come_and_go_pass() -> None:
    errors = ReadingErrors()
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.NOT_LEADER_FOR_PARTITION):
        assert errors.failure(TP, 1, 1, KafkaError(code)) is None
    assert not errors.damaged


def test_what_reading_again_does_not_cure_is_raised() -> None:
    assert isinstance(ReadingErrors().failure(TP, 1, 1, NO_SUCH_OFFSET), OffsetOutOfRangeError)


def test_what_the_client_cannot_do_at_all_is_raised() -> None:
    """It names no partition."""
    errors = ReadingErrors()
    assert isinstance(errors.failure(TopicPartition("", -1), -1, -1, UNKNOWN_FORMAT), EnvironmentFault)
    assert not errors.damaged


def test_damaged_batch_is_read_again_until_it_is_plain_that_the_log_has_it_so() -> None:
    errors = ReadingErrors()

    def poll(position: int) -> BaseException | None:
        for at, err in ((position, DAMAGED), (1 << 60, UNKNOWN_FORMAT), (1 << 61, NO_SUCH_OFFSET)):
            assert errors.failure(TP, at, position, err) is None
        assert errors.damaged
        again, failure = errors.again({TP: position})
        assert again == [TP]
        assert not errors.damaged
        return failure

    for _ in range(3):  # further on, or back again: each begins to count by itself
        for position in (5, 6):
            assert [poll(position) for _ in range(DAMAGED_TRIES - 1)] == [None] * (DAMAGED_TRIES - 1)
    failure = poll(6)
    assert isinstance(failure, EnvironmentFault)
    for said in ("topic t, partition 0, at or after offset 6", "failed CRC32C check", "kafka-consumer-groups"):
        assert said in str(failure)


def test_what_a_partition_returns_behind_its_damage_is_dropped() -> None:
    """The client may go on in the wrong place, and leave records out."""
    errors = ReadingErrors()
    errors.failure(TP, 5, 3, DAMAGED)
    other = chunk(3, 9, partition=1)
    ends, bad = {TP: 9, TopicPartition("t", 1): 9}, {TP: 7}
    assert errors.sound([chunk(3, 9), other], ends, bad) == [chunk(3, 5), other]
    assert (ends, bad) == ({TopicPartition("t", 1): 9}, {})
    assert errors.again({TP: 5}) == ([TP], None)


def test_no_record_is_left_when_a_batch_is_damaged_in_which_the_reader_stands() -> None:
    errors = ReadingErrors()
    errors.failure(TP, 1, 3, DAMAGED)
    bad = {TP: 0}
    assert errors.sound([chunk(3, 9)], {}, bad) == []
    assert bad == {TP: 0}  # met before the damage


def test_records_end_the_count() -> None:
    errors = ReadingErrors()
    for _ in range(DAMAGED_TRIES * 2):
        errors.failure(TP, 5, 3, DAMAGED)
        assert errors.sound([chunk(3, 9)], {}, {}) == [chunk(3, 5)]
        assert errors.again({TP: 5}) == ([TP], None)
        assert errors.sound([chunk(5, 6)], {}, {}) == [chunk(5, 6)]


def test_an_offset_that_the_log_no_longer_has_is_an_error_soon_after_damage_too() -> None:
    """An offset that the damage made up is none, also if it is reported after the partition was sent back."""
    errors = ReadingErrors()
    errors.failure(TP, 5, 5, DAMAGED)
    assert errors.again({TP: 5}) == ([TP], None)
    assert errors.failure(TP, 1 << 60, 5, NO_SUCH_OFFSET) is None
    assert errors.again({TP: 5}) == ([TP], None)
    assert isinstance(errors.failure(TP, 5, 5, NO_SUCH_OFFSET), OffsetOutOfRangeError)


def test_a_batch_that_cannot_be_decompressed_is_named_with_the_limit() -> None:
    failure = ReadingErrors().failure(TP, None, 7, KafkaError(KafkaError._BAD_COMPRESSION, "Decompression failed"))
    assert isinstance(failure, SerdeError)
    assert f"topic {TP.topic}, partition {TP.partition}, at or after offset 7" in str(failure)
    assert "receive.message.max.bytes" in str(failure)

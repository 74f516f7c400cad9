"""What a consumer raises for what a partition gives instead of records, and for records that cannot be handed out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Message

from penstock.state.errors import SerdeError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.errors import translate, translated
from penstock.streams.ports.log_errors import OffsetOutOfRangeError, UnknownTopicError

_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


def place_of(message: Message) -> TopicPartition:
    """The partition that a message, or an error, is of; -1 where it is of none."""
    topic, partition = message.topic(), message.partition()
    return TopicPartition(topic or "", -1 if partition is None else partition)


@contextlib.contextmanager
def translating(doing: str) -> Iterator[None]:
    """What the client raises inside becomes one of Penstock's errors."""
    try:
        yield
    except (KafkaException, SystemError) as exc:
        raise translated(exc, doing) from exc


def failure_of(tp: TopicPartition, at: int, err: KafkaError) -> BaseException:
    """The exception of an error that the client told of a partition, read at this offset."""
    code = err.code()
    if code in _GONE:
        return OffsetOutOfRangeError(tp, at, err.str())
    if code in _UNKNOWN:
        return UnknownTopicError(tp.topic or "?", err.str())
    return translate(err, f"reading {tp.topic}" if tp.topic else "reading from the cluster")


def unreadable(tp: TopicPartition, offset: int) -> SerdeError:
    """The exception of a record that has a header whose name is not UTF-8. No policy can meet it: the client gives nobody
    such a record's headers."""
    return SerdeError(
        f"the record at topic {tp.topic}, partition {tp.partition}, offset {offset} has a header whose name is not UTF-8, "
        "which the client cannot read. Nothing from that record on is handed out. Have its writer mend the name; to go on "
        f"behind the record, stop the application and set its group to offset {offset + 1} of this partition "
        "(kafka-consumer-groups --reset-offsets), or delete the partition's records up to there (kafka-delete-records)"
    )

"""A consumer's errors: for what a partition returns instead of records, and for records that cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Message

from penstock.state.errors import RetriableError, SerdeError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.catchable import CATCHABLE
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import translate, translated
from penstock.streams.ports.log_errors import OffsetOutOfRangeError, UnknownTopicError

_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


# Reported although the client recovers by itself: it reconnects, or the lost callback follows. So are retriable errors.
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED})
DAMAGED_TRIES = 20
"""So often a batch whose checksum is wrong is fetched again: a bit may flip on the way, and not twenty times."""


class ReadingErrors:
    """Tells what a reader must raise from what passes by itself. The client fetches a damaged batch again."""

    def __init__(self) -> None:
        self._damaged: dict[TopicPartition, tuple[int, int]] = {}

    def failure(self, tp: TopicPartition, at: int, err: KafkaError) -> BaseException | None:
        """Return the exception for an error of a partition, read at this offset; ``None``: reading goes on."""
        if err.code() in _PASSING:
            return None
        if err.code() == KafkaError._BAD_MSG:
            known, tries = self._damaged.get(tp, (at, 0))
            self._damaged[tp] = (at, tries + 1 if known == at else 1)
            client_logger().warning("%s [%d]: %s; fetching it again", tp.topic, tp.partition, err.str())
            if self._damaged[tp][1] < DAMAGED_TRIES:
                return None
        failure = failure_of(tp, at, err)
        return None if isinstance(failure, RetriableError) else failure


def place_of(message: Message) -> TopicPartition:
    """Return the partition of a message or an error; -1 if it has none."""
    topic, partition = message.topic(), message.partition()
    return TopicPartition(topic or "", -1 if partition is None else partition)


@contextlib.contextmanager
def translating(doing: str) -> Iterator[None]:
    """Translate the client's exceptions raised inside into Penstock's errors."""
    try:
        with CATCHABLE:
            yield
    except (KafkaException, SystemError) as exc:
        raise translated(exc, doing) from exc


def failure_of(tp: TopicPartition, at: int, err: KafkaError) -> BaseException:
    """Return the exception for an error that the client reported for a partition, read at this offset."""
    code = err.code()
    if code in _GONE:
        return OffsetOutOfRangeError(tp, at, err.str())
    if code == KafkaError._BAD_COMPRESSION:
        return _compressed(tp, at, err.str())
    if code in _UNKNOWN:
        return UnknownTopicError(tp.topic or "?", err.str())
    return translate(err, f"reading {tp.topic}" if tp.topic else "reading from the cluster")


def _compressed(tp: TopicPartition, at: int, said: str) -> SerdeError:
    """The exception for a batch that is damaged, or larger than the client's limit (of zstd alone; librdkafka decompresses
    a batch of another codec whole)."""
    return SerdeError(
        f"a batch of topic {tp.topic}, partition {tp.partition}, at or after offset {at} cannot be decompressed: {said}. "
        "Nothing from that batch on is read. If its records are that large, set receive.message.max.bytes of the consumer "
        "(100,000,000 by default) above the batch's size; if it is damaged, stop the application and set its group "
        "to the offset after the batch (kafka-consumer-groups --reset-offsets)"
    )


def unreadable(tp: TopicPartition, offset: int) -> SerdeError:
    """Return the exception for a record with a header name that is not UTF-8. Policies cannot handle it: the client
    does not return the headers of such a record."""
    return SerdeError(
        f"the record at topic {tp.topic}, partition {tp.partition}, offset {offset} has a header whose name is not UTF-8, "
        "which the client cannot read. Nothing from that record on is read. Fix the name in its writer; to go on "
        f"after the record, stop the application and set its group to offset {offset + 1} of this partition "
        "(kafka-consumer-groups --reset-offsets), or delete the partition's records up to there (kafka-delete-records)"
    )

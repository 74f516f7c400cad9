"""A consumer's errors: for what a partition returns instead of records, and for records that cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from penstock.state.errors import EnvironmentFault, RetriableError, SerdeError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.catchable import CATCHABLE
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import translate, translated
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log_errors import OffsetOutOfRangeError, UnknownTopicError

_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


# Reported although the client recovers by itself: it reconnects, or the lost callback follows. So are retriable errors.
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED})
DAMAGED_TRIES = 20
"""So often a batch whose checksum is wrong is read again: a bit may flip on the way, and not twenty times."""
_DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED})
"""A wrong checksum, and a record batch of no known format."""


class _Damage(NamedTuple):
    at: int
    said: str


class ReadingErrors:
    """Tells what a reader must raise from what passes by itself, and what of a poll must be read again.

    Behind a batch whose checksum is wrong the client goes on in the wrong place. There it may take any bytes for the
    format and the offset of the next batch, and then fetch from that offset. So nothing counts that a partition returns
    behind its damage: it is dropped, and the partition is read again from the reader's own position."""

    def __init__(self) -> None:
        self._damaged: dict[TopicPartition, _Damage] = {}
        self._tries: dict[TopicPartition, tuple[int, int]] = {}

    @property
    def damaged(self) -> bool:
        """Whether there is anything to read ``again``."""
        return bool(self._damaged)

    def failure(self, tp: TopicPartition, at: int | None, position: int, err: KafkaError) -> BaseException | None:
        """Return the exception for an error at an offset of a partition; ``None``: reading goes on, perhaps ``again``.
        ``position``: of the reader, before it returns what it has taken in this poll."""
        code, at = err.code(), position if at is None or at < 0 else at
        if code in _PASSING:
            return None
        # The client has looked for an offset that the damage made up.
        astray = code in _GONE and at != position and (tp in self._damaged or self._tries.get(tp, (-1,))[0] == position)
        if astray or (code in _DAMAGED and tp.topic):
            known = self._damaged.get(tp)
            if known is None:
                client_logger().warning("%s [%d]: %s; reading it again", tp.topic, tp.partition, err.str())
            self._damaged[tp] = _Damage(at, err.str()) if known is None else _Damage(min(at, known.at), known.said)
            return None
        failure = failure_of(tp, at, err)
        ended = err.fatal() or code == KafkaError._FATAL  # another client may be let in later, but not this one
        return None if isinstance(failure, RetriableError) and not ended else failure

    def sound(
        self, chunks: list[Chunk], ends: dict[TopicPartition, int], bad: dict[TopicPartition, int]
    ) -> list[Chunk]:
        """Return what was taken before any damage. Ends and unreadable records behind it are removed from ``ends`` and
        ``bad``."""
        for tp, damage in self._damaged.items():
            ends.pop(tp, None)
            if bad.get(tp, -1) >= damage.at:
                del bad[tp]
            places = [TopicPartition(c.topic, c.partition) for c in chunks]
            chunks = [c.before(damage.at) if p == tp else c for p, c in zip(places, chunks, strict=True)]
        if self._damaged or self._tries:
            chunks = [c for c in chunks if c]
            for chunk in chunks:
                self._tries.pop(TopicPartition(chunk.topic, chunk.partition), None)
        return chunks

    def again(self, positions: Mapping[TopicPartition, int]) -> tuple[list[TopicPartition], BaseException | None]:
        """Return the partitions to read again from these positions, and the exception for one that was damaged in
        ``DAMAGED_TRIES`` polls at one position. ``positions``: after the sound records were returned."""
        damaged, self._damaged = self._damaged, {}
        failure = None
        for tp, damage in damaged.items():
            position = positions.get(tp, -1)
            known, tries = self._tries.get(tp, (position, 0))
            self._tries[tp] = (position, tries + 1 if known == position else 1)
            if self._tries[tp][1] >= DAMAGED_TRIES:
                failure = failure or _stays_damaged(tp, damage, position)
        return sorted(damaged), failure


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


def _stays_damaged(tp: TopicPartition, damage: _Damage, position: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"a batch of topic {tp.topic}, partition {tp.partition}, at or after offset {position} is damaged: {damage.said}. "
        f"To read it again {DAMAGED_TRIES} times has not helped, so it is not the network. Nothing from that batch on is "
        "read. Look for the broker's log and disk; if another replica is whole, make it the leader. If none is, stop the "
        "application and set its group to the offset after the batch (kafka-consumer-groups --reset-offsets)"
    )


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

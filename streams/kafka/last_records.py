"""Where the last records of partitions begin. Offsets do not tell: markers of transactions have some, and what compaction
removed had."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from penstock.streams.kafka.errors import translate
from penstock.streams.kafka.reading_errors import place_of

_POLL_S: Final = 0.2
_BATCH_MAX: Final = 1_000
_MORE: Final = 16
_LOOKUP_S: Final = 30.0


def last_records(consumer: Consumer, places: Sequence[TopicPartition], number: int) -> list[TopicPartition]:
    """The partitions with the offset of the record before which ``number - 1`` others follow; of the first one where there
    are fewer, of the end where there is none. Leaves the consumer assigned to some of them."""
    bounds = {(p.topic, p.partition): consumer.get_watermark_offsets(p, timeout=_LOOKUP_S) for p in places}
    begin: dict[tuple[str, int], int] = {}
    span = number + _MORE
    while left := [place for place in bounds if place not in begin]:
        starts = {place: max(bounds[place][0], bounds[place][1] - span) for place in left}
        for place, offsets in _read(consumer, starts, number).items():
            if len(offsets) == number or starts[place] == bounds[place][0]:
                begin[place] = offsets[0] if offsets else OFFSET_END
        span *= 4
    return [TopicPartition(p.topic, p.partition, begin[p.topic, p.partition]) for p in places]


def _read(consumer: Consumer, starts: dict[tuple[str, int], int], number: int) -> dict[tuple[str, int], deque[int]]:
    """The last offsets of records from these on, to each partition's end."""
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    offsets = {place: deque[int](maxlen=number) for place in starts}
    unread = set(starts)
    while unread:
        for message in consumer.consume(_BATCH_MAX, _POLL_S):
            at, error = place_of(message), message.error()
            if error is None:
                offsets[at.topic, at.partition].append(int(message.offset() or 0))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((at.topic, at.partition))
            else:
                raise translate(error, f"consuming {at.topic}")
    return offsets

"""Read topics from a place on, for ``penstock consume``, ``tail`` and ``dlq``. Joins no group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from penstock.state.log import TIMESTAMP_ZERO, Headers
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.columns import read_headers
from penstock.streams.kafka.errors import refused_config, translate, translated
from penstock.streams.kafka.last_records import last_records
from penstock.streams.kafka.reading_errors import place_of, unreadable
from penstock.streams.kafka.record_order import InOrder
from penstock.streams.kafka.topics import Topics, ignore_connection_error

_POLL_S = 0.2  # Ctrl-C is checked between two polls
_BATCH_MAX = 1000
_WAITING_MAX, _WAITING_MIN = 5_000, 1_000
"""A partition that is ahead of others is not read while this many of its records wait for theirs."""
_LOOKUP_S = 30.0


class FoundRecord(NamedTuple):
    """A record as stored in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Start(NamedTuple):
    """Where to begin: the first record, what comes from now on, the last ``number`` records of each partition, or the first
    record of the time ``number`` (milliseconds)."""

    at: Literal["beginning", "end", "last", "since"]
    number: int = 0


BEGINNING, END = Start("beginning"), Start("end")


def follow(
    servers: str,
    client_config: Mapping[str, str],
    topics: Sequence[str],
    write: Callable[[list[FoundRecord]], None],
    *,
    start: Start = END,
    in_order: bool = False,
    max_messages: int | None = None,
    timeout_s: float | None = None,
    to_the_end: bool = False,
    on_end: Callable[[], None] | None = None,
) -> int:
    """Pass committed records to ``write``, until there were ``max_messages``, or none came for ``timeout_s``, or
    (``to_the_end``) every partition was read to the end that it had; without any of them, forever. ``in_order``: by
    timestamp over all partitions, as far as records are there. ``on_end`` is called once, when every partition was read to
    the end that it had: from then on nothing is missed. Returns the number of records.

    Raises ``UserError`` if a topic does not exist.
    """
    asked = Topics(servers, client_config)
    partitions = {topic: asked.require(topic) for topic in topics}
    consumer = _consumer(servers, client_config)
    try:
        places = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        consumer.assign(_begun(consumer, places, start))
        return _Following(consumer, places, write, in_order, max_messages).run(timeout_s, to_the_end, on_end)
    except KafkaException as exc:
        raise translated(exc, f"consuming {', '.join(topics)}") from exc
    finally:
        consumer.close()


def _consumer(servers: str, client_config: Mapping[str, str]) -> Consumer:
    config: dict[str, Any] = {
        "group.id": "penstock-console",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "log_level": 2,
        "error_cb": ignore_connection_error,
        **client_config,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "bootstrap.servers": servers,
    }
    try:
        return Consumer(config, logger=client_logger())
    except (KafkaException, ValueError, TypeError) as exc:
        raise refused_config(exc) from exc


def _begun(consumer: Consumer, places: Sequence[TopicPartition], start: Start) -> list[TopicPartition]:
    """The partitions with the offsets to begin at."""
    if start.at == "since":
        asked = [TopicPartition(p.topic, p.partition, start.number) for p in places]
        found = consumer.offsets_for_times(asked, timeout=_LOOKUP_S)
        return [TopicPartition(p.topic, p.partition, p.offset if p.offset >= 0 else OFFSET_END) for p in found]
    if start.at == "last":
        return last_records(consumer, places, start.number)
    offset = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}[start.at]
    return [TopicPartition(p.topic, p.partition, offset) for p in places]


class _Following:
    """One run over assigned partitions."""

    def __init__(
        self,
        consumer: Consumer,
        places: Sequence[TopicPartition],
        write: Callable[[list[FoundRecord]], None],
        in_order: bool,
        max_messages: int | None,
    ) -> None:
        self._consumer = consumer
        self._write = write
        self._max = max_messages
        self._order = InOrder[FoundRecord]((p.topic, p.partition) for p in places) if in_order else None
        self._unread = {(p.topic, p.partition) for p in places}
        self._paused: set[tuple[str, int]] = set()
        self.count = 0

    def run(self, timeout_s: float | None, to_the_end: bool, on_end: Callable[[], None] | None = None) -> int:
        """Read until one of the reasons to stop."""
        quiet_since = time.monotonic()
        while self._wanted:
            if on_end is not None and not self._unread:
                on_end()
                on_end = None
            if to_the_end and not self._unread:
                break
            if self._polled():
                quiet_since = time.monotonic()
            elif timeout_s is not None and time.monotonic() - quiet_since >= timeout_s:
                break
        if self._order is not None:
            self._give(self._order.take(all_of_them=True))
        return self.count

    @property
    def _wanted(self) -> int:
        return _BATCH_MAX if self._max is None else min(_BATCH_MAX, self._max - self.count)

    def _polled(self) -> bool:
        """Whether one poll gave records."""
        records: list[FoundRecord] = []
        for message in self._consumer.consume(_BATCH_MAX if self._order is not None else self._wanted, _POLL_S):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                at = place_of(message)
                place = (at.topic, at.partition)
                self._unread.discard(place)
                if self._order is not None:
                    self._order.ended(place)
                continue
            records.append(_record(message))
        if self._order is None:
            self._give(records)
            return bool(records)
        for record in records:
            self._order.add(record)
        self._give(self._order.take())
        self._hold_back(self._order)
        return bool(records)

    def _give(self, records: list[FoundRecord]) -> None:
        given = records if self._max is None else records[: self._max - self.count]
        if given:
            self._write(given)
            self.count += len(given)

    def _hold_back(self, order: InOrder[FoundRecord]) -> None:
        """Do not read what is far ahead of the others."""
        for tp in self._consumer.assignment():
            place = (tp.topic, tp.partition)
            waiting = order.waiting(place)
            if waiting > _WAITING_MAX and place not in self._paused:
                self._consumer.pause([tp])
                self._paused.add(place)
            elif waiting < _WAITING_MIN and place in self._paused:
                self._consumer.resume([tp])
                self._paused.discard(place)


def _record(message: Message) -> FoundRecord:
    error = message.error()
    if error is not None:
        raise translate(error, f"consuming {message.topic()}")
    read = read_headers([message])
    if not read:
        raise unreadable(place_of(message), int(message.offset() or 0))
    headers: Headers = tuple(read[0] or ())
    _, timestamp_ms = message.timestamp()
    if TIMESTAMP_ZERO in headers:
        timestamp_ms = 0
        headers = tuple(header for header in headers if header != TIMESTAMP_ZERO)
    return FoundRecord(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        timestamp_ms,
        message.key(),
        message.value(),
        headers,
    )

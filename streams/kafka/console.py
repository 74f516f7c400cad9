"""Write lines to a topic and read records from it, for ``penstock produce`` and ``penstock consume`` do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from penstock.state.errors import UserError
from penstock.state.log import TIMESTAMP_ZERO, Headers
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.columns import read_headers
from penstock.streams.kafka.errors import translate, translated
from penstock.streams.kafka.reading_errors import place_of, unreadable
from penstock.streams.kafka.topics import Topics, ignore_connection_error, refused_config

_POLL_S = 0.2  # Ctrl-C is checked between two polls
_BATCH_MAX = 1000
_DELIVERY_TIMEOUT_MS = 60_000


class ConsoleRecord(NamedTuple):
    """A record as stored in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def split_line(
    line: bytes, number: int, key_separator: bytes | None, null_marker: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Split one line, without its end, into key and value. Without ``key_separator`` the key is null; a key or value
    equal to ``null_marker`` is null.

    Raises ``UserError`` if the line lacks the separator. ``number`` is the line's number, from 1, for the message.
    """
    key: bytes | None = None
    value: bytes | None = line
    if key_separator is not None:
        head, found, tail = line.partition(key_separator)
        if not found:
            raise UserError(
                f"line {number} has no key separator {key_separator.decode(errors='backslashreplace')!r}; nothing of it "
                "or after it was produced. Correct the line or --key-separator"
            )
        key, value = head, tail
    if null_marker is not None:
        key = None if key == null_marker else key
        value = None if value == null_marker else value
    return key, value


def produce_lines(
    servers: str,
    client_config: Mapping[str, str],
    topic: str,
    lines: Iterable[bytes],
    *,
    key_separator: bytes | None = None,
    null_marker: bytes | None = None,
) -> int:
    """Write each line as a record. Returns how many were acknowledged. Partitions are chosen as in Java: murmur2 of the
    key.

    Raises ``UserError`` if the topic does not exist, or a line lacks the separator; the lines before it are produced.
    Raises ``PenstockError`` if a record was not acknowledged; the message says how many were.
    """
    Topics(servers, client_config).require(topic)
    config: dict[str, Any] = {
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "compression.type": "lz4",
        "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
        "log_level": 2,
        "error_cb": ignore_connection_error,
        **client_config,
        "bootstrap.servers": servers,
    }
    try:
        producer = Producer(config, logger=client_logger())
    except (KafkaException, ValueError, TypeError) as exc:
        raise refused_config(exc) from exc
    sent = _Deliveries(topic)
    try:
        for number, line in enumerate(lines, 1):
            key, value = split_line(line.removesuffix(b"\n"), number, key_separator, null_marker)
            _produce(producer, topic, key, value, sent)
            sent.check()
    finally:
        # Also after an error or Ctrl-C: lines that were read must reach the log.
        while len(producer) > 0:
            producer.flush(_POLL_S)
    sent.check()
    return sent.acknowledged


class _Deliveries:
    """The delivery reports of one run."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._error: KafkaError | None = None
        self.acknowledged = 0

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self._error is None:
            self._error = error

    def check(self) -> None:
        """Raise ``PenstockError`` if a record was refused."""
        if self._error is not None:
            done = f"producing to {self._topic}, {self.acknowledged} records acknowledged"
            raise translate(self._error, done)


def _produce(producer: Producer, topic: str, key: bytes | None, value: bytes | None, sent: _Deliveries) -> None:
    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=sent)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(_POLL_S)
        except KafkaException as exc:
            raise translated(exc, f"producing to {topic}") from exc


def consume_records(
    servers: str,
    client_config: Mapping[str, str],
    topic: str,
    write: Callable[[list[ConsoleRecord]], None],
    *,
    from_beginning: bool = False,
    max_messages: int | None = None,
    timeout_s: float | None = None,
) -> int:
    """Pass the topic's committed records to ``write``, until there were ``max_messages``, or none came for
    ``timeout_s``; without either, forever. Joins no group and commits nothing. Returns the number of records.

    Raises ``UserError`` if the topic does not exist.
    """
    partitions = Topics(servers, client_config).require(topic)
    config: dict[str, Any] = {
        "group.id": "penstock-console",
        "isolation.level": "read_committed",
        "log_level": 2,
        "error_cb": ignore_connection_error,
        **client_config,
        "enable.auto.commit": False,
        "bootstrap.servers": servers,
    }
    try:
        consumer = Consumer(config, logger=client_logger())
    except (KafkaException, ValueError, TypeError) as exc:
        raise refused_config(exc) from exc
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    count = 0
    try:
        consumer.assign([TopicPartition(topic, partition, start) for partition in range(partitions)])
        quiet_since = time.monotonic()
        while max_messages is None or count < max_messages:
            wanted = _BATCH_MAX if max_messages is None else min(_BATCH_MAX, max_messages - count)
            records = [_record(message) for message in consumer.consume(wanted, _POLL_S)]
            if records:
                write(records)
                count += len(records)
                quiet_since = time.monotonic()
            elif timeout_s is not None and time.monotonic() - quiet_since >= timeout_s:
                break
    except KafkaException as exc:
        raise translated(exc, f"consuming {topic}") from exc
    finally:
        consumer.close()
    return count


def _record(message: Message) -> ConsoleRecord:
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
    return ConsoleRecord(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        timestamp_ms,
        message.key(),
        message.value(),
        headers,
    )

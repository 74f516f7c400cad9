"""Write lines and records to a topic, for ``penstock produce``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.state.errors import UserError
from penstock.state.log import TIMESTAMP_ZERO, Headers
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import refused_config, translate, translated
from penstock.streams.kafka.topics import Topics, ignore_connection_error

_POLL_S = 0.2  # Ctrl-C is checked between two polls
_DELIVERY_TIMEOUT_MS = 60_000


class NewRecord(NamedTuple):
    """A record to write. ``timestamp_ms``: ``None`` is now. ``partition``: ``None`` is that of the key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: Headers = ()
    partition: int | None = None


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
    """Write each line as a record; see ``produce_records``. Raises ``UserError`` if a line lacks the separator."""

    def records() -> Iterator[NewRecord]:
        for number, line in enumerate(lines, 1):
            yield NewRecord(*split_line(line.removesuffix(b"\n"), number, key_separator, null_marker))

    return produce_records(servers, client_config, topic, records())


def produce_records(servers: str, client_config: Mapping[str, str], topic: str, records: Iterable[NewRecord]) -> int:
    """Write records. Returns how many were acknowledged. Partitions are chosen as in Java: murmur2 of the key.

    Raises ``UserError`` if the topic does not exist, and what ``records`` raises; the records before it are produced.
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
        for record in records:
            _produce(producer, topic, record, sent)
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


def _produce(producer: Producer, topic: str, record: NewRecord, sent: _Deliveries) -> None:
    more: dict[str, Any] = {}
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    if record.timestamp_ms is not None:
        more["timestamp"] = record.timestamp_ms
        if record.timestamp_ms == 0:
            headers.append(TIMESTAMP_ZERO)
    if record.partition is not None:
        more["partition"] = record.partition
    while True:
        try:
            producer.produce(
                topic, value=record.value, key=record.key, headers=headers or None, on_delivery=sent, **more
            )
            producer.poll(0)
            return
        except BufferError:
            producer.poll(_POLL_S)
        except KafkaException as exc:
            raise translated(exc, f"producing to {topic}") from exc

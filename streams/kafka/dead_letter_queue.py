"""Dead letters as a queue: what waits, and how it goes back to where it came from, or is dropped.

The group ``<topic>-handled`` has a position in each partition of the dead letter topic: letters before it were handled.
Handling goes in the order of each partition, and letters of one key are in one partition, so the order of a key's records
stays. What is written and the positions are one transaction, and a second handler fences the first: each letter is handled
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.state.errors import UserError
from penstock.state.log import Header, Headers, TopicPartition
from penstock.streams.kafka.client_config import consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.follow import BEGINNING, FoundRecord, follow
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.kafka.topics import Topics
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.topologies.operator_api.internal_names import INTERNAL_SUFFIXES

RETRY_HEADER: Final = "penstock.retry"
"""How often a record was sent back."""
_ADDED: Final = ("error", "operator", "declared", "traceback", "topic", "partition", "offset")
_TIMEOUT_S: Final = 30.0


class DeadLetter(NamedTuple):
    """A record that failed. ``origin`` and ``offset``: where it was read; ``None`` for what a clock or a commit emitted.
    ``declared``: the line of the operator, if known. ``headers``: its own."""

    record: FoundRecord
    origin: TopicPartition | None
    offset: int | None
    operator: str
    error: str
    traceback: tuple[str, ...]
    declared: str | None
    headers: Headers

    @property
    def retries(self) -> int:
        """How often it was sent back before."""
        text = next((value for name, value in self.headers if name == RETRY_HEADER), None)
        return int(text) if text is not None and text.isdigit() else 0


class Replacement(NamedTuple):
    """The key and value that a letter goes back with."""

    key: bytes | None
    value: bytes | None


def letter_of(record: FoundRecord) -> DeadLetter | None:
    """The dead letter that a record is; ``None`` for a record that no policy wrote. Its headers are the last of their names:
    a letter of a letter has them twice."""
    own, added = list(record.headers), dict[str, str]()
    while own:
        name, value = own[-1]
        short = name.removeprefix("penstock.")
        if name == short or short not in _ADDED or short in added:
            break
        added[short] = "" if value is None else value.decode(errors="backslashreplace")
        own.pop()
    if "error" not in added:
        return None
    origin = offset = None
    if added.get("partition", "").isdigit() and added.get("offset", "").isdigit() and added.get("topic"):
        origin, offset = TopicPartition(added["topic"], int(added["partition"])), int(added["offset"])
    lines = tuple(added.get("traceback", "").splitlines())
    operator, declared = added.get("operator", ""), added.get("declared")
    return DeadLetter(record, origin, offset, operator, added["error"], lines, declared, tuple(own))


class DeadLetterQueue:
    """The letters of one topic. ``client``: librdkafka keys besides the address."""

    def __init__(self, servers: str, client: Mapping[str, Any], topic: str) -> None:
        self._servers = servers
        self._client = client
        self.topic = topic
        self.group = f"{topic}-handled"
        self._partitions = Topics(servers, client).require(topic)

    def waiting(self) -> list[FoundRecord]:
        """The records that wait, in the order in which they are handled."""
        done = self._positions()
        found: list[FoundRecord] = []
        follow(self._servers, self._client, [self.topic], found.extend, start=BEGINNING, in_order=True, to_the_end=True)
        return [r for r in found if r.offset >= done.get(TopicPartition(r.topic, r.partition), 0)]

    def handle(
        self, count: int | None, *, send: bool, replaced: Mapping[tuple[int, int], Replacement] | None = None
    ) -> list[DeadLetter]:
        """Send the next ``count`` letters (``None``: all) back to where they came from, or (not ``send``) drop them; return
        them. ``replaced``: other contents of letters, by partition and offset. Raises ``UserError`` for a letter that
        cannot be sent back; nothing is done then."""
        producer = KafkaProducer(
            producer_config(self._servers, self._client, transactional_id=f"{self.group}-letters"), native="off"
        )
        try:
            producer.init_transactions(_TIMEOUT_S)  # before the positions are read: an earlier handler has ended
            taken = self.waiting()[:count]
            letters = [_required(record) for record in taken]
            if send:
                for letter in letters:
                    self._check(letter)
            if letters:
                producer.begin()
                if send:
                    for letter in letters:
                        self._send(producer, letter, replaced or {})
                ends = {TopicPartition(self.topic, r.partition): OffsetAndMetadata(r.offset + 1, "") for r in taken}
                producer.send_offsets(ends, self.group, _TIMEOUT_S)
                producer.flush(_TIMEOUT_S)
                producer.commit(_TIMEOUT_S)
            return letters
        finally:
            producer.close()

    def _positions(self) -> dict[TopicPartition, int]:
        consumer = KafkaConsumer(consumer_config(self._servers, self.group, self._client), native="off")
        try:
            places = [TopicPartition(self.topic, number) for number in range(self._partitions)]
            return {tp: at.offset for tp, at in consumer.committed(places).items() if at is not None}
        finally:
            consumer.close()

    def _check(self, letter: DeadLetter) -> None:
        place = f"letter {letter.record.partition}:{letter.record.offset} of {self.topic}"
        if letter.origin is None:
            raise UserError(
                f"{place} came from no input record, but from a clock or a commit, so it cannot be sent back; drop it with: "
                f"penstock dlq drop {self.topic}"
            )
        if letter.origin.topic.endswith(INTERNAL_SUFFIXES):
            raise UserError(
                f"{place} came from {letter.origin.topic}, which only its application writes, so it cannot be sent back; "
                f"produce its input again, and drop it with: penstock dlq drop {self.topic}"
            )

    def _send(
        self, producer: KafkaProducer, letter: DeadLetter, replaced: Mapping[tuple[int, int], Replacement]
    ) -> None:
        record, origin = letter.record, letter.origin
        assert origin is not None
        given = replaced.get((record.partition, record.offset), Replacement(record.key, record.value))
        own: list[Header] = [header for header in letter.headers if header[0] != RETRY_HEADER]
        own.append((RETRY_HEADER, str(letter.retries + 1).encode()))
        producer.send(
            origin.topic,
            [given.key],
            [given.value],
            [record.timestamp_ms],
            [tuple(own)],
            partition=origin.partition,
        )


def _required(record: FoundRecord) -> DeadLetter:
    letter = letter_of(record)
    if letter is None:
        raise UserError(
            f"the record at {record.topic} [{record.partition}] offset {record.offset} is not a dead letter: it has no "
            "header penstock.error; name the dead letter topic of the policies"
        )
    return letter


def letters_of(records: Sequence[FoundRecord]) -> list[DeadLetter]:
    """The letters of records. Raises ``UserError`` for a record that is none."""
    return [_required(record) for record in records]

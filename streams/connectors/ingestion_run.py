"""Runs an ingestion: each batch of a source and its position are one transaction of Kafka.

The order is what makes records exactly-once. The producer is initialised first, which ends the open transaction of an
earlier run and fences it; only then are positions read, so that they are the last that any run will have written. A run
that was frozen, and wakes after another has begun, is refused its commit. Whatever fails or stays unanswered, the run
begins again from the committed positions. Clock and pauses are given, so that tests decide them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec

from penstock.state.errors import IncompatibleError, ProcessingError, RetriableError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import OWN_TIMES
from penstock.streams.connectors.ingestion import Ingestion, RecordWriter, UnreadableError
from penstock.streams.connectors.source import SourceBatch, SourceReader
from penstock.streams.ports.log import (
    AbortableError,
    Log,
    LogProducer,
    ProducerRetiredError,
    TopicSpec,
    UnknownOutcomeError,
)
from penstock.topologies.windows.durations import duration_s

_AGAIN: Final = (RetriableError, AbortableError, UnknownOutcomeError, ProducerRetiredError)
_ATTEMPTS: Final = 5
"""How often what is not known to pass by itself is tried without progress."""
_PAUSES_S: Final = (0.1, 0.5, 2.0, 5.0)
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_POLLS_MAX: Final = 300


class _SplitPosition(msgspec.Struct):
    """Where a split stands, and which topic has what is before it."""

    position: str
    topic: str
    topic_id: str


@dataclasses.dataclass
class Progress:
    """``records``: in the topic, by this run. ``skipped``: unreadable ones. ``split``: which is read, and ``position``:
    where it stands. ``waiting``: why the run waits; "" while it does not. ``last_skipped``: the last one, and why."""

    records: int = 0
    skipped: int = 0
    split: str = ""
    position: str | None = None
    waiting: str = ""
    last_skipped: str = ""


class IngestionRun:
    """One run. ``stop``: asked between batches. ``pause``: waits that many seconds, less if it is to stop. ``report``:
    called after each commit, and when a wait begins."""

    def __init__(
        self,
        ingestion: Ingestion,
        log: Log,
        *,
        now_ms: Callable[[], int],
        pause: Callable[[float], object],
        stop: Callable[[], bool] = lambda: False,
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self._ingestion, self._log = ingestion, log
        self._now_ms, self._pause, self._stop, self._report = now_ms, pause, stop, report
        self._writer = RecordWriter(ingestion)
        self._forgets = False
        self.progress = Progress()

    def run(self, *, from_beginning: bool = False) -> Progress:
        """Ingest until the source has ended, or forever if the ingestion follows it. ``from_beginning``: forget the
        positions first, so that all is written again. Raises ``TaskMigratedError`` if another run of this name began, and
        ``ProcessingError`` for a record that is not to be skipped."""
        self._forgets, failed = from_beginning, 0
        while True:
            before = self.progress.records
            try:
                self._session()
                return self.progress
            except _AGAIN as exc:
                failed = 0 if self.progress.records > before else failed + 1
                if self._stop() or (failed >= _ATTEMPTS and not isinstance(exc, RetriableError)):
                    raise
                self.progress.waiting = str(exc)
                self._report(self.progress)
                self._pause(_PAUSES_S[min(failed, len(_PAUSES_S) - 1)])

    def _session(self) -> None:
        """From opening the producer to the end of the source, or to the first failure."""
        topic_id = self._prepared()
        with closing(self._log.producer(self._ingestion.transactional_id, bulk=True)) as producer:
            producer.init_transactions(_TIMEOUT_S)
            positions = self._positions()
            if self._forgets:
                self._forget(producer, positions)
            else:
                self._check(positions, topic_id)
            while not self._stop():
                for split in self._ingestion.source.splits():
                    self._ingest(producer, split, positions, topic_id)
                if not self._ingestion.follow:
                    return
                self._pause(duration_s(self._ingestion.poll_interval))

    def _prepared(self) -> str:
        """Make the topic of positions; the id of the topic that is written to."""
        ingestion = self._ingestion
        admin = self._log.admin()
        ids = admin.topic_ids([ingestion.topic])
        if ingestion.topic not in ids:
            raise SettingsError(
                f"topic {ingestion.topic} does not exist; create it first, for example: penstock topics create "
                f"{ingestion.topic} --partitions 4"
            )
        config = {"cleanup.policy": "compact", **OWN_TIMES}
        admin.create_topics([TopicSpec(ingestion.positions_topic, 1, config=config)])
        return ids[ingestion.topic]

    def _positions(self) -> dict[str, _SplitPosition]:
        place, found = TopicPartition(self._ingestion.positions_topic, 0), dict[str, _SplitPosition]()
        with closing(self._log.reader(self._ingestion.name)) as consumer:
            begin, end = consumer.watermarks(place)
            if begin >= end:
                return found
            consumer.assign_at({place: begin})
            for _ in range(_POLLS_MAX):
                fetched = consumer.poll(10_000, _POLL_S)
                for chunk in fetched.chunks:
                    for key, value in zip(chunk.keys, chunk.values, strict=True):
                        _take(found, key, value)
                    begin = int(chunk.offsets[-1]) + 1
                if begin >= end or fetched.ends.get(place, 0) >= end:
                    return found
        raise RetriableError(f"{place.topic} could not be read to its end")

    def _check(self, positions: dict[str, _SplitPosition], topic_id: str) -> None:
        ingestion = self._ingestion
        for split, at in positions.items():
            if (at.topic, at.topic_id) != (ingestion.topic, topic_id):
                was = (
                    f"topic {at.topic}" if at.topic != ingestion.topic else f"a topic {at.topic} that was deleted since"
                )
                raise IncompatibleError(
                    f"ingestion {ingestion.name} has written {split or 'its records'} up to {at.position} to {was}; what is "
                    f"before would be missing in {ingestion.topic}. Start over with --from-beginning, or give the "
                    "ingestion another name"
                )

    def _forget(self, producer: LogProducer, positions: dict[str, _SplitPosition]) -> None:
        splits = sorted(positions)
        if splits:
            with _transaction(producer):
                keys = [split.encode() for split in splits]
                now = [self._now_ms()] * len(splits)
                producer.send(self._ingestion.positions_topic, keys, [None] * len(splits), now, partition=0)
            positions.clear()
        self._forgets = False

    def _ingest(self, producer: LogProducer, split: str, positions: dict[str, _SplitPosition], topic_id: str) -> None:
        """One split to its end."""
        at = positions.get(split)
        self.progress.split, self.progress.position = split, None if at is None else at.position
        with closing(self._ingestion.source.open(split, self.progress.position)) as reader:
            ended = False
            while not ended and not self._stop():
                batch = reader.read(self._ingestion.batch_records)
                ended = batch.ended
                known = positions[split].position if split in positions else None
                if batch.records or batch.position not in (None, known):
                    self._commit(producer, reader, split, batch, topic_id)
                    if batch.position is not None:
                        positions[split] = _SplitPosition(batch.position, self._ingestion.topic, topic_id)

    def _commit(
        self, producer: LogProducer, reader: SourceReader, split: str, batch: SourceBatch, topic_id: str
    ) -> None:
        keys, values, times, headers = self._columns(reader, batch)
        with _transaction(producer):
            if keys:
                producer.send(self._ingestion.topic, keys, values, times, headers if any(headers) else None)
            if batch.position is not None:
                kept = msgspec.json.encode(_SplitPosition(batch.position, self._ingestion.topic, topic_id))
                producer.send(self._ingestion.positions_topic, [split.encode()], [kept], [self._now_ms()], partition=0)
        reader.committed()
        self.progress.records += len(keys)
        self.progress.position, self.progress.waiting = batch.position, ""
        self._report(self.progress)

    def _columns(self, reader: SourceReader, batch: SourceBatch) -> tuple[list[Any], list[Any], list[int], list[Any]]:
        keys, values, times, headers = list[Any](), list[Any](), list[int](), list[Any]()
        now_ms = self._now_ms()
        for record in batch.records:
            try:
                key, value = self._writer.written(record)
            except UnreadableError as exc:
                if self._ingestion.on_error == "fail":
                    raise ProcessingError(
                        f"ingestion {self._ingestion.name}: {exc}. Nothing of its batch or after it was written; correct "
                        'the record or the types, or set on_error="skip"'
                    ) from exc
                reader.skipped(record, str(exc))
                self.progress.skipped += 1
                self.progress.last_skipped = str(exc)
                continue
            keys.append(key)
            values.append(value)
            times.append(now_ms if record.timestamp_ms is None else record.timestamp_ms)
            headers.append(record.headers)
        return keys, values, times, headers


@contextmanager
def _transaction(producer: LogProducer) -> Iterator[None]:
    """All or nothing. What is left open is ended by the producer that is initialised next."""
    producer.begin()
    yield
    producer.flush(_TIMEOUT_S)
    producer.commit(_TIMEOUT_S)


def _take(found: dict[str, _SplitPosition], key: bytes | None, value: bytes | None) -> None:
    split = (key or b"").decode()
    if value is None:
        found.pop(split, None)
        return
    try:
        found[split] = msgspec.json.decode(value, type=_SplitPosition)
    except msgspec.MsgspecError as exc:
        raise IncompatibleError(f"the position of {split!r} cannot be read ({exc}); a later release wrote it") from exc

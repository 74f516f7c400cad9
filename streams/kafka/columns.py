"""Turn the messages of a poll into columns, with as few Python steps per record as the client allows.

All work per record is a C function mapped over a list. librdkafka returns whole fetched batches, so a large poll holds
a few runs of one partition each. Runs are found by counting in the column of partitions; single records are never
sorted or hashed.

A poll takes its messages in portions and releases each as soon as its columns exist: the next portion reuses the memory
while it is still in the processor's caches, which is faster than one large portion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final

from confluent_kafka import Message

from penstock.state.log import TIMESTAMP_ZERO, Headers, TopicPartition
from penstock.streams.ports.chunk import Chunk

AT_A_TIME: Final = 2_000
"""The number of messages to take at once; see the module."""

# The client's types allow None everywhere; records that are not errors have a topic, a partition and an offset.
_topic: Any = Message.topic
_partition: Any = Message.partition
_offset: Any = Message.offset
_key: Any = Message.key
_value: Any = Message.value
_headers: Any = Message.headers
_timestamp: Any = Message.timestamp
_time: Any = itemgetter(1)  # of a message's timestamp pair


class Gathered:
    """The records of a poll, by partition."""

    def __init__(self) -> None:
        self._parts: dict[TopicPartition, _PartitionRecords] = {}
        self.unreadable: dict[TopicPartition, int] = {}
        """Offset of a record with a header name that is not UTF-8. It and later records are not added."""

    def add(self, messages: list[Message], single_topic: bool) -> None:
        """Add messages, which are not needed afterwards. None may be an error, and those of a partition must be in
        offset order. ``single_topic`` promises that all are of one topic, which saves looking."""
        for tp, run in _runs(messages, single_topic):
            if tp in self.unreadable:
                continue
            headers = read_headers(run)
            if len(headers) < len(run):
                self.unreadable[tp] = _offset(run[len(headers)])
                run = run[: len(headers)]
            if not run:
                continue
            part = self._parts.get(tp)
            if part is None:
                part = self._parts[tp] = _PartitionRecords()
            part.add(run, headers)

    def chunks(self) -> list[Chunk]:
        """Return one chunk per partition, in order of first appearance."""
        return [part.chunk(tp) for tp, part in self._parts.items()]


def _runs(messages: list[Message], single_topic: bool) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Split the messages into runs of one partition."""
    if not messages:
        return
    partitions = list(map(_partition, messages))
    topics = None
    if not single_topic:
        topics = list(map(_topic, messages))
        if topics.count(topics[0]) == len(topics):
            topics = None
    if topics is None and partitions.count(partitions[0]) == len(partitions):
        yield TopicPartition(_topic(messages[0]), partitions[0]), messages
        return
    start = 0
    for (topic, partition), count in _counted(_topic(messages[0]) if topics is None else topics, partitions):
        stop = start + count
        yield TopicPartition(topic, partition), messages[start:stop]
        start = stop


def _counted(topics: str | list[str], partitions: list[int]) -> list[tuple[tuple[str, int], int]]:
    """Return the place of each run's records, and how many records it has. If each partition of one topic has one run,
    which is nearly always so, they are counted, which is much faster."""
    if isinstance(topics, str):
        runs: list[tuple[tuple[str, int], int]] = []
        start = 0
        while start < len(partitions):
            partition = partitions[start]
            count = partitions.count(partition)
            if partitions[start : start + count].count(partition) != count:
                break
            runs.append(((topics, partition), count))
            start += count
        else:
            return runs
    of = zip(repeat(topics) if isinstance(topics, str) else topics, partitions, strict=False)
    return [(place, sum(1 for _ in run)) for place, run in groupby(of)]


def read_headers(messages: list[Message]) -> list[Any]:
    """Return the headers of messages, up to the first with a header name that is not UTF-8: for that one the client
    creates a broken list and raises. Do not ask a message again: it would then return that list."""
    found: list[Any] = []
    with contextlib.suppress(SystemError, UnicodeDecodeError):
        found.extend(map(_headers, messages))
    return found


class _PartitionRecords:
    """The records of one partition."""

    def __init__(self) -> None:
        self._offsets: Sequence[int] = range(0)
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[Headers] | None = None
        self._epoch = -1

    def add(self, messages: list[Message], headers: list[Any]) -> None:
        self._add_offsets(messages)
        epoch = messages[-1].leader_epoch()
        self._epoch = -1 if epoch is None else epoch
        before = len(self._keys)
        self._keys += map(_key, messages)
        self._values += map(_value, messages)
        self._timestamps += map(_time, map(_timestamp, messages))
        if any(headers):
            if self._headers is None:
                self._headers = [()] * before
            self._add_headers(headers, before)
        elif self._headers is not None:
            self._headers += [()] * len(messages)

    def _add_offsets(self, messages: list[Message]) -> None:
        """Offsets ascend, so the ends tell whether any is missing in between."""
        first, last = _offset(messages[0]), _offset(messages[-1])
        whole = last - first + 1 == len(messages)
        offsets = range(first, last + 1) if whole else list(map(_offset, messages))
        if not self._offsets:
            self._offsets = offsets
        elif whole and isinstance(self._offsets, range) and self._offsets.stop == first:
            self._offsets = range(self._offsets.start, last + 1)
        else:
            self._offsets = [*self._offsets, *offsets]

    def _add_headers(self, raw: list[Any], before: int) -> None:
        """Add headers as tuples. The header that stands for timestamp 0 is applied and removed, so a record that is
        forwarded with another timestamp does not carry it."""
        assert self._headers is not None
        for i, found in enumerate(raw, before):
            headers: Headers = tuple(found) if found else ()
            if TIMESTAMP_ZERO in headers:
                self._timestamps[i] = 0
                headers = tuple(h for h in headers if h != TIMESTAMP_ZERO)
            self._headers.append(headers)

    def chunk(self, tp: TopicPartition) -> Chunk:
        headers = self._headers if self._headers is not None and any(self._headers) else None
        columns = self._keys, self._values, self._timestamps
        return Chunk(tp.topic, tp.partition, self._offsets, *columns, headers, leader_epoch=self._epoch)

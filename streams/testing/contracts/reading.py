"""Reading until something is there, with a limit that fails instead of hanging."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import LogConsumer
from penstock.streams.testing.contracts.log_world import World

LIMIT_S = 120.0


@dataclasses.dataclass
class Read:
    """All that was read, column by column per partition, and the last end that was seen of each."""

    offsets: dict[TopicPartition, list[int]] = dataclasses.field(default_factory=dict)
    values: dict[TopicPartition, list[bytes | None]] = dataclasses.field(default_factory=dict)
    keys: dict[TopicPartition, list[bytes | None]] = dataclasses.field(default_factory=dict)
    timestamps: dict[TopicPartition, list[int]] = dataclasses.field(default_factory=dict)
    headers: dict[TopicPartition, list[Headers]] = dataclasses.field(default_factory=dict)
    epochs: dict[TopicPartition, list[int]] = dataclasses.field(default_factory=dict)
    """The leader epoch of each chunk."""
    ends: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """Append a chunk, whose columns must be equally long and in offset order."""
        tp = TopicPartition(chunk.topic, chunk.partition)
        columns = (chunk.keys, chunk.values, chunk.timestamps)
        assert all(len(column) == len(chunk.offsets) for column in columns)
        assert list(chunk.offsets) == sorted(set(chunk.offsets))
        self.offsets.setdefault(tp, []).extend(chunk.offsets)
        self.values.setdefault(tp, []).extend(chunk.values)
        self.keys.setdefault(tp, []).extend(chunk.keys)
        self.timestamps.setdefault(tp, []).extend(chunk.timestamps)
        self.headers.setdefault(tp, []).extend(chunk.headers or [()] * len(chunk))
        self.epochs.setdefault(tp, []).append(chunk.leader_epoch)


def poll_into(consumer: LogConsumer, read: Read, max_records: int = 1000, timeout_s: float = 0.1) -> None:
    """One poll, checked: at most one chunk per partition, and an end never before its chunk's last record."""
    fetched = consumer.poll(max_records, timeout_s)
    places = [TopicPartition(c.topic, c.partition) for c in fetched.chunks]
    assert len(places) == len(set(places))
    assert sum(map(len, fetched.chunks)) <= max_records
    for chunk in fetched.chunks:
        read.add(chunk)
        end = fetched.ends.get(TopicPartition(chunk.topic, chunk.partition))
        assert end is None or end > chunk.offsets[-1]
    read.ends.update(fetched.ends)


def until(condition: Callable[[], bool], *steps: Callable[[], object]) -> None:
    """Repeat the steps until the condition holds; fails after ``LIMIT_S``."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "the expected did not happen in time"
        for step in steps:
            step()


def read_to_end(world: World, topic: str, partitions: Sequence[int] = (0,), end: int | None = None) -> Read:
    """Everything that a reader of committed records gets up to the end of each partition.

    ``end`` is needed after a transaction: the answer to a commit comes before the markers that publish it, so the end
    that the broker names at that moment may lie before them.
    """
    consumer = world.consumer(world.name("reader"))
    places = [TopicPartition(topic, p) for p in partitions]
    consumer.assign_at(dict.fromkeys(places, 0))
    goal = {tp: consumer.watermarks(tp)[1] if end is None else end for tp in places}
    read = Read()
    until(lambda: all(read.ends.get(tp) == goal[tp] for tp in places), lambda: poll_into(consumer, read))
    consumer.close()
    return read


def read_values(world: World, topic: str, count: int) -> list[bytes | None]:
    """The values of partition 0 once there are ``count`` committed ones, wherever the end is."""
    consumer = world.consumer(world.name("reader"))
    tp = TopicPartition(topic, 0)
    consumer.assign_at({tp: 0})
    read = Read()
    until(lambda: len(read.values.get(tp, ())) >= count, lambda: poll_into(consumer, read))
    consumer.close()
    return read.values[tp]


class Membership:
    """A group member that starts each partition at its committed position, or at 0, and records its callbacks."""

    def __init__(self, consumer: LogConsumer, topics: Sequence[str]) -> None:
        self.consumer = consumer
        self.read = Read()
        self.mine: set[TopicPartition] = set()
        self.told: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.token: object = None
        consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lost)

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assign", tuple(sorted(partitions))))
        self.token = self.consumer.group_metadata()
        found = self.consumer.committed(partitions)
        self.consumer.assign_at(start_of(found))
        self.mine.update(partitions)

    def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoke", tuple(sorted(partitions))))
        self.mine.difference_update(partitions)

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", tuple(sorted(partitions))))
        self.mine.difference_update(partitions)

    def poll(self) -> None:
        """One poll into ``read``."""
        poll_into(self.consumer, self.read)


def start_of(found: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
    """The committed offset, or 0 where nothing was committed."""
    return {tp: getattr(committed, "offset", 0) for tp, committed in found.items()}

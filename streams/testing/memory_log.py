"""A log broker inside the process: the model that the real one is compared with, and the basis of simulations.

It behaves as Kafka does where the ports can tell: records and control markers take offsets, readers of committed
records stop at the first open transaction and skip aborted ones, transactional ids have epochs that fence, groups have
generations. It has no clock, thread or randomness: time passes by ``advance``, rebalances happen when members poll, and
the same calls always give the same log.

**Faults.** ``log.fault(point, nth, action)`` performs ``action`` at the ``nth`` next passage of ``point``: an exception
is raised, a callable is called. Points, in the words of the ports: ``init``, ``begin``, ``send``, ``flush``,
``send_offsets``, ``commit_before`` (nothing happened yet), ``commit_after`` (committed, the answer is lost),
``abort``, ``poll``, ``committed``, ``consumer_commit_before``, ``consumer_commit_after``. ``log.passages`` counts them,
so that a seeded test can draw ``nth`` from a dry run.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from penstock.state.errors import IncompatibleError, TaskMigratedError, UserError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata, TopicSpec
from penstock.streams.ports.log_errors import UnknownTopicError
from penstock.streams.testing.memory_groups import MemoryGroup
from penstock.streams.testing.memory_incremental_groups import IncrementalGroup

FaultAction: TypeAlias = BaseException | Callable[[], None]
DELETE_RETENTION_MS = 86_400_000
"""A topic's default."""
MAX_MESSAGE_BYTES = 1_048_588
"""A broker's default limit of one record."""

POINTS = frozenset(
    {"init", "begin", "send", "flush", "send_offsets", "commit_before", "commit_after", "abort", "poll", "committed"}
    | {"consumer_commit_before", "consumer_commit_after"}
)


@dataclasses.dataclass(eq=False)
class Transaction:
    """One transaction: its data is in the log already, its outcome decides who sees it."""

    transactional_id: str
    epoch: int
    started_ms: int
    timeout_ms: int
    state: Literal["open", "committed", "aborted"] = "open"
    first_offsets: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class LogEntry:
    """One offset: a record, or (``control``) the marker that ends a transaction here."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    transaction: Transaction | None = None
    control: bool = False

    @property
    def visible(self) -> bool:
        """Whether a reader of committed records is given it (once it lies below the last stable offset)."""
        return not self.control and (self.transaction is None or self.transaction.state == "committed")


class PartitionLog:
    """The entries of one partition. ``first`` grows by retention, ``end`` by writing."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self.first = 0
        self._segments = [0]
        """Where each begins that was not cleaned yet; the last one is written to."""
        self._deleted_until_ms: dict[int, int] = {}
        """How long deletions stay, by their offsets, from the first time that they were cleaned."""
        self.epochs = [(0, 0)]
        """The epochs of its leaders, with the offset where each began."""
        self.open: dict[str, int] = {}
        """First offset of each transactional id's open transaction."""

    @property
    def end(self) -> int:
        """The offset that is written next."""
        return self.first + len(self._entries)

    @property
    def last_stable(self) -> int:
        """Where readers of committed records must stop."""
        return min(self.open.values(), default=self.end)

    def append(self, entry: LogEntry) -> int:
        """Write at the end; returns the offset."""
        self._entries.append(entry)
        return self.end - 1

    def committed(self, start: int) -> Iterator[tuple[int, LogEntry]]:
        """Visible records from ``start`` to the last stable offset."""
        for offset in range(start, self.last_stable):
            entry = self._entries[offset - self.first]
            if entry.visible:
                yield offset, entry

    def compact(self, now_ms: int, deletions_kept_ms: int, newest_ms: int | None = None) -> None:
        """Begin a new segment, and compact those before it as the log cleaner does: within the stable part, and before the
        first segment with a record newer than ``newest_ms``, keep only the last record of each key. A deletion stays for
        this long after it was first cleaned, whenever it was written (KIP-534). Offsets stay."""
        if self._segments[-1] < self.end:
            self._segments.append(self.end)
        end = self._cleanable(newest_ms)
        rows = [(o, e) for o, e in self.committed(self.first) if o < end]
        last: dict[bytes | None, int] = {entry.key: offset for offset, entry in rows}
        for offset, entry in rows:
            if entry.value is None and last[entry.key] == offset:
                if now_ms <= self._deleted_until_ms.setdefault(offset, now_ms + deletions_kept_ms):
                    continue
            elif last[entry.key] == offset:
                continue
            self._entries[offset - self.first] = LogEntry(None, None, entry.timestamp_ms, control=True)
        self._segments = [s for s in self._segments if s >= end]

    def _cleanable(self, newest_ms: int | None) -> int:
        """Where the first segment begins that must not be cleaned. Records are judged by their own time, as brokers do."""
        for start, end in pairwise(self._segments):
            rows = range(max(start, self.first), min(end, self.end))
            times = [self._entries[o - self.first].timestamp_ms for o in rows]
            if newest_ms is not None and max(times, default=newest_ms) > newest_ms:
                return start
        return self._segments[-1]

    def old_until(self, oldest_ms: int) -> int:
        """The offset of the first record that is not older than this, within the stable part."""
        for offset, entry in enumerate(self._entries[: self.last_stable - self.first], self.first):
            if entry.timestamp_ms >= oldest_ms and not entry.control:
                return offset
        return self.last_stable

    def elect(self) -> None:
        """Another leader, which has all records."""
        self.epochs.append((self.epochs[-1][0] + 1, self.end))

    def truncate(self, offset: int) -> None:
        """An unclean election: the new leader lacks the records from this offset on."""
        del self._entries[max(offset - self.first, 0) :]
        self._deleted_until_ms = {o: until for o, until in self._deleted_until_ms.items() if o < self.end}
        next_epoch = self.epochs[-1][0] + 1
        self.epochs = [(e, start) for e, start in self.epochs if start <= self.end] + [(next_epoch, self.end)]

    def epoch_end(self, epoch: int) -> int:
        """Where the records of the last leader up to this epoch end; -1 where no leader had it yet."""
        later = [start for e, start in self.epochs if e > epoch]
        if epoch > self.epochs[-1][0]:
            return -1
        return later[0] if later else self.end

    def epoch_of(self, offset: int) -> int:
        """The epoch of the leader that the record at this offset was written to."""
        return max((e for e, start in self.epochs if start <= offset), default=0)

    def delete_before(self, offset: int) -> None:
        """Drop records before this offset, as retention does."""
        offset = min(max(offset, self.first), self.end)
        del self._entries[: offset - self.first]
        self.first = offset


@dataclasses.dataclass
class Topic:
    """A topic with its settings and partitions."""

    spec: TopicSpec
    topic_id: str
    partitions: list[PartitionLog]

    @property
    def max_message_bytes(self) -> int:
        """The largest record that the broker takes."""
        return int(self.spec.config.get("max.message.bytes", MAX_MESSAGE_BYTES))


class MemoryLog:
    """The broker. Clients are made with it as first argument: ``penstock.streams.testing.memory_clients``."""

    def __init__(self, cluster_id: str = "memory") -> None:
        self.cluster_id = cluster_id
        self.now_ms = 0
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.passages: Counter[str] = Counter()
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._faults: list[tuple[str, int, FaultAction]] = []
        self._topics_made = 0

    # --- faults and time

    def fault(self, point: str, nth: int, action: FaultAction) -> None:
        """Perform ``action`` once, at the ``nth`` passage (from 1) of ``point`` counted from now. A point that does not
        exist raises ``ValueError``: a fault that can never strike proves nothing."""
        if point not in POINTS or nth < 1:
            raise ValueError(f"no passage {nth} of point {point!r}; points: {sorted(POINTS)}")
        self._faults.append((point, self.passages[point] + nth, action))

    def pass_point(self, point: str) -> None:
        """Called by the clients at each point."""
        self.passages[point] += 1
        due = [f for f in self._faults if f[0] == point and f[1] == self.passages[point]]
        self._faults = [f for f in self._faults if f not in due]
        for _, _, action in due:
            if isinstance(action, BaseException):
                raise action
            action()

    def advance(self, ms: int) -> None:
        """Let time pass: transactions and members that are past their timeouts are ended."""
        self.now_ms += ms
        for transaction in list(self._open.values()):
            if self.now_ms - transaction.started_ms > transaction.timeout_ms:
                self.end(transaction, "aborted")
                # The broker raises the epoch, so that the producer learns of it.
                self._epochs[transaction.transactional_id] += 1
        for group in self.groups.values():
            group.expire(self.now_ms)

    # --- topics

    def create(self, spec: TopicSpec) -> None:
        """Create a topic, or find it as wanted; another partition count is ``IncompatibleError``."""
        there = self.topics.get(spec.name)
        if there is None:
            self._topics_made += 1
            self.topics[spec.name] = Topic(
                spec, f"topic-{self._topics_made}", [PartitionLog() for _ in range(spec.partitions)]
            )
        elif len(there.partitions) != spec.partitions:
            raise IncompatibleError(
                f"topic {spec.name} has {len(there.partitions)} partitions, the topology needs {spec.partitions}; "
                "delete the topic if it may go, or use another application_id"
            )

    def make_again(self, name: str) -> None:
        """Delete a topic and create it as it was created first, without its records."""
        self.create(self.topics.pop(name).spec)

    def topic(self, name: str) -> Topic:
        """A topic that exists. Raises ``UnknownTopicError``."""
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopicError(name, f"the memory log has {sorted(self.topics)}")
        return found

    def partition(self, tp: TopicPartition) -> PartitionLog:
        """A partition that exists. Raises ``UnknownTopicError``."""
        topic = self.topic(tp.topic)
        if not 0 <= tp.partition < len(topic.partitions):
            raise UnknownTopicError(tp.topic, f"it has {len(topic.partitions)} partitions, no {tp.partition}")
        return topic.partitions[tp.partition]

    def read(self, topic: str) -> list[tuple[TopicPartition, int, LogEntry]]:
        """Every committed record of a topic with its place, partition by partition: what a test looks at."""
        return [
            (TopicPartition(topic, p), offset, entry)
            for p, log in enumerate(self.topic(topic).partitions)
            for offset, entry in log.committed(log.first)
        ]

    def compact(self, topic: str, clock_ms: int = 0) -> None:
        """Clean a topic now, if it is compacted. Deletions stay for its ``delete.retention.ms``; records that are not older
        than its ``min.compaction.lag.ms`` at ``clock_ms``, the broker's clock on the wall, are left alone."""
        config = self.topic(topic).spec.config
        if "compact" not in config.get("cleanup.policy", "delete"):
            return
        keep_ms = int(config.get("delete.retention.ms", DELETE_RETENTION_MS))
        lag_ms = int(config.get("min.compaction.lag.ms", 0))
        for log in self.topic(topic).partitions:
            log.compact(self.now_ms, keep_ms, clock_ms - lag_ms if lag_ms else None)

    # --- writing

    def append(self, tp: TopicPartition, entry: LogEntry) -> int:
        """Write one record, as part of its transaction if it has one; returns its offset."""
        log = self.partition(tp)
        offset = log.append(entry)
        transaction = entry.transaction
        if transaction is not None and tp not in transaction.first_offsets:
            transaction.first_offsets[tp] = offset
            log.open[transaction.transactional_id] = offset
        return offset

    # --- transactions

    def init_transactions(self, transactional_id: str) -> int:
        """Fence older producers of this id, end their transaction, and return the new epoch."""
        dangling = self._open.get(transactional_id)
        if dangling is not None:
            self.end(dangling, "aborted")
        self._epochs[transactional_id] = self._epochs.get(transactional_id, -1) + 1
        return self._epochs[transactional_id]

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        """Raises ``TaskMigratedError`` when a newer producer has this id."""
        current = self._epochs[transactional_id]
        if current != epoch:
            raise TaskMigratedError(
                f"producer {transactional_id!r} of epoch {epoch} is fenced by epoch {current}; "
                "discard uncommitted work and join the group again"
            )

    def transaction(self, transactional_id: str, epoch: int, timeout_ms: int) -> Transaction:
        """The open transaction of this producer, opened now if there is none."""
        found = self._open.get(transactional_id)
        if found is None:
            found = Transaction(transactional_id, epoch, self.now_ms, timeout_ms)
            self._open[transactional_id] = found
        return found

    def open_transaction(self, transactional_id: str) -> Transaction | None:
        """The open transaction of this id, if records or positions were added to one."""
        return self._open.get(transactional_id)

    def end(self, transaction: Transaction, outcome: Literal["committed", "aborted"]) -> None:
        """Write the markers, publish or drop its positions."""
        transaction.state = outcome
        self._open.pop(transaction.transactional_id, None)
        marker = LogEntry(None, None, self.now_ms, transaction=transaction, control=True)
        for tp in transaction.first_offsets:
            log = self.partition(tp)
            log.append(marker)
            log.open.pop(transaction.transactional_id, None)
        if outcome == "committed":
            for group, offsets in transaction.offsets.items():
                self.group(group).offsets.update(offsets)

    # --- groups

    def group(self, name: str) -> MemoryGroup:
        """A group, made when it is first named."""
        return self.groups.setdefault(name, MemoryGroup(name))

    def incremental_group(self, name: str) -> IncrementalGroup:
        """A group under the broker's own protocol. One of the classic protocol becomes one if it has no members, and keeps
        its positions; with members it is ``UserError``."""
        found = self.group(name)
        if isinstance(found, IncrementalGroup):
            return found
        if found.members:
            raise UserError(f"group {name} has members of the classic protocol; stop them all before this one joins")
        made = self.groups[name] = IncrementalGroup(name)
        made.offsets = found.offsets
        return made

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The number of partitions of each topic that exists."""
        return {t: len(self.topics[t].partitions) for t in topics if t in self.topics}

    def pending_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those whose committed position an open transaction is about to change."""
        touched = {tp for t in self._open.values() for tp in t.offsets.get(group, ())}
        return [tp for tp in partitions if tp in touched]

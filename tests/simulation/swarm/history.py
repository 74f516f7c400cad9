"""The log with a memory: what was ever written and committed, whatever was compacted since, and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import from_changelog_columns
from penstock.state.stores.store import StoreSpec
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import LogEntry, MemoryLog, Transaction
from tests.simulation.swarm.journals import JournalOracle
from tests.simulation.swarm.oracle import Folds, Oracle

APP = "app"
Tenure = tuple[int, int]
"""Changes when a partition may have another owner."""


class Violation(AssertionError):
    """An invariant does not hold."""


def _require(wrong: Iterable[str]) -> None:
    if found := list(wrong):
        raise Violation("; ".join(found[:4]))


class HistoryLog(MemoryLog):
    """Checks at each commit of positions: they never go back (I12), one owner per generation commits (I7), and with the
    positions comes what belongs to them (I4). ``one_each``: the output topic that gets a record for each of this input."""

    def __init__(self, one_each: tuple[str, str] | None, *, exact: bool) -> None:
        super().__init__()
        self._apart = False
        self.passed: Callable[[str], None] = lambda point: None
        self.writer: Callable[[], str] = lambda: ""
        self.opening: Callable[[str, int], None] = lambda transactional_id, epoch: None
        self.fixed_epochs: dict[str, int] = {}
        """Of the last worker to change positions of each fixed partition, by its transactional id."""
        self.fixed_lost: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        """The positions of each producer's last aborted transaction."""
        self.history: defaultdict[TopicPartition, dict[int, LogEntry]] = defaultdict(dict)
        self.trace: list[object] = []
        self._one_each = one_each if exact else None
        self._positions: dict[TopicPartition, int] = {}
        self._owners: dict[tuple[TopicPartition, Tenure], str] = {}
        self._accepted: dict[str, Mapping[TopicPartition, Tenure]] = {}
        """In which tenures each writer's positions were last accepted."""
        self._made: defaultdict[int, list[tuple[TopicPartition, LogEntry]]] = defaultdict(list)
        self.broken: set[TopicPartition] = set()
        """Those that have lost records: only what was written before counts."""
        self.oracle: Oracle | None = None
        """Looks at each commit."""
        self.journals: JournalOracle | None = None
        """Looks at the journals in it."""
        self.folds = Folds(self.rows, lambda tp: self.partition(tp).last_stable)

    def pass_point(self, point: str) -> None:
        """With the faults of the swarm."""
        if self._apart:
            return
        super().pass_point(point)
        if point == "consumer_commit_after":
            self._committed(self.writer())
        self.passed(point)
        if point == "send_offsets":
            self._accepted[f"{APP}-{self.writer()}"] = self.group(APP).tenures()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The faults at these points are for the run loop, not for the thread that restores."""
        self._apart = True
        try:
            yield
        finally:
            self._apart = False

    def compact(self, topic: str, clock_ms: int = 0) -> None:
        """Retention by time goes with it, judged by the records' own times."""
        super().compact(topic, clock_ms)
        config = MemoryAdmin(self).topic_config(topic)
        kept_ms = int(config["retention.ms"])
        if "delete" not in config["cleanup.policy"] or kept_ms < 0:
            return
        for log in self.topic(topic).partitions:
            log.delete_before(log.old_until(clock_ms - kept_ms))

    def make_again(self, name: str) -> None:
        """See ``lose``."""
        super().make_again(name)
        for p in range(len(self.topic(name).partitions)):
            self.lose(TopicPartition(name, p))

    def lose(self, tp: TopicPartition) -> None:
        """A partition has lost records. What was written before is remembered. Of what comes nobody can say whether it is
        right, only that it must end."""
        self.broken.add(tp)
        self.oracle = self._one_each = None

    def init_transactions(self, transactional_id: str) -> int:
        """Tells of it before anybody is fenced."""
        self.opening(transactional_id, self._epochs.get(transactional_id, -1) + 1)
        return super().init_transactions(transactional_id)

    def stands(self, transactional_id: str) -> bool:
        """Whether the positions of its last aborted transaction were committed all the same: by another one, to which the
        same records were the same. A worker that does not know its outcome takes them for its own."""
        lost = self.fixed_lost.get(transactional_id, {})
        return bool(lost) and all(self.group(APP).offsets.get(tp) == c for tp, c in lost.items())

    def append(self, tp: TopicPartition, entry: LogEntry) -> int:
        """Kept for ever."""
        offset = super().append(tp, entry)
        if tp not in self.broken:
            self.history[tp][offset] = entry
        self.trace.append((tp.topic, tp.partition, offset, entry.key, entry.value))
        if entry.transaction is not None:
            self._made[id(entry.transaction)].append((tp, entry))
        return offset

    def end(self, transaction: Transaction, outcome: Literal["committed", "aborted"]) -> None:
        """Looks at what became visible."""
        before, asked = dict(self._positions), transaction.offsets.get(APP, {})
        changes = any(self.group(APP).offsets.get(tp) != c for tp, c in asked.items())
        super().end(transaction, outcome)
        if outcome == "aborted":
            self.fixed_lost[transaction.transactional_id] = asked
        made = self._made.pop(id(transaction), [])
        self.trace.append((transaction.transactional_id, transaction.epoch, outcome))
        if outcome == "aborted":
            return
        fixed = f"{APP}-p" in transaction.transactional_id
        self._committed(transaction.transactional_id + (f" of epoch {transaction.epoch}" if fixed else ""))
        if fixed and changes:
            self.fixed_epochs[transaction.transactional_id] = transaction.epoch
        if self._one_each is not None:
            source, output = self._one_each
            read = sum(c.offset - before.get(tp, 0) for tp, c in asked.items() if tp.topic == source)
            gave = sum(tp.topic == output for tp, _ in made)
            if gave != read:
                raise Violation(f"I4 a transaction took {read} records of {source} and gave {gave} of {output}")
        if self.oracle is not None:
            taken: defaultdict[str, list[LogEntry]] = defaultdict(list)
            for tp, c in asked.items():
                taken[tp.topic] += [e for _, e in self.rows(tp, before.get(tp, 0), c.offset)]
            _require(self.oracle.committed(taken, made))
        if self.journals is not None:
            after = {tp: c.offset for tp, c in self.group(APP).offsets.items()}
            _require(self.journals.committed(after, made))

    def _committed(self, writer: str) -> None:
        group = self.group(APP)
        tenures = self._accepted.pop(writer, group.tenures())
        for tp, committed in group.offsets.items():
            before = self._positions.get(tp, 0)
            if committed.offset == before:
                continue
            if committed.offset < before:
                raise Violation(f"I12 the position of {tp} went back from {before} to {committed.offset} by {writer}")
            self._positions[tp] = committed.offset
            self.trace.append((tp, committed.offset, writer))
            if "epoch" in writer:
                continue  # the brokers have compared the epochs
            tenure = tenures[tp]
            owner = self._owners.setdefault((tp, tenure), writer)
            if owner != writer:
                raise Violation(f"I7 {owner} and {writer} both committed {tp} in generation {tenure[0]}")

    def committed_records(self, topic: str) -> list[tuple[TopicPartition, LogEntry]]:
        """Of all that was ever written, in the order of each partition."""
        found = sorted((tp for tp in self.history if tp.topic == topic), key=lambda tp: tp.partition)
        return [(tp, e) for tp in found for _, e in sorted(self.history[tp].items()) if e.visible]

    def rows(self, tp: TopicPartition, start: int, end: int) -> list[tuple[int, LogEntry]]:
        """What readers of committed records are given from ``start`` on, or were before it was cleaned."""
        history = self.history[tp]
        return [(o, e) for o in range(start, end) if (e := history.get(o)) is not None and e.visible]

    def folded(self, tp: TopicPartition, spec: StoreSpec, end: int | None = None) -> dict[bytes, bytes]:
        """What a store of this changelog holds at ``end``, by the last value of each key; cleaning plays no part."""
        rows = self.rows(tp, 0, self.partition(tp).end if end is None else end)
        entries = from_changelog_columns(
            spec, [e.key for _, e in rows], [e.value for _, e in rows], [e.timestamp_ms for _, e in rows]
        )
        return {k: v for k, v in entries if v is not None}

    def unread(self, topics: Sequence[str]) -> Iterator[TopicPartition]:
        """Partitions with visible records behind their committed position."""
        for topic in topics:
            for p, log in enumerate(self.topic(topic).partitions):
                tp = TopicPartition(topic, p)
                committed = self.group(APP).offsets.get(tp)
                start = log.first if committed is None else committed.offset
                if any(True for _ in log.committed(max(start, log.first))):
                    yield tp

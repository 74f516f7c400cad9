"""The three ports on the in-memory log. The same contract tests run on them and on a real cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import Asked, Deletion, Fetched, OffsetAndMetadata, OnPartitions, TopicSpec
from penstock.streams.ports.log_errors import OffsetOutOfRangeError, UnknownTopicError
from penstock.streams.testing.memory_groups import GroupToken, Member
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.testing.memory_producer import MemoryProducer

__all__ = ["MemoryAdmin", "MemoryConsumer", "MemoryProducer"]


@dataclasses.dataclass
class _ReadPosition:
    """Where one partition is read. ``reported_end`` is the end that was last told."""

    position: int
    paused: bool = False
    reported_end: int = -1
    fetched: bool = False
    """Records were fetched before the pause, and are still to be given."""


class MemoryConsumer:
    """``LogConsumer`` on a ``MemoryLog``. ``poll`` never waits; ``poll_interval_max_ms`` is in the log's time. A member that
    was removed learns of it ``late_polls`` polls late, as from the answer to a heartbeat, and reads on until then; the first
    of these polls gives nothing. ``stable_positions=False``: ``committed`` does not look at open transactions, as for
    readers of uncommitted records. ``late_chunks``: what was fetched before ``on_assign`` paused a partition still comes.
    ``instance_id`` makes the membership static."""

    def __init__(
        self,
        log: MemoryLog,
        group: str,
        *,
        poll_interval_max_ms: int = 300_000,
        late_polls: int = 0,
        client_id: str = "",
        stable_positions: bool = True,
        late_chunks: bool = False,
        instance_id: str = "",
    ) -> None:
        self._log = log
        self._instance_id = instance_id
        self._late_chunks = late_chunks
        self._client_id = client_id
        self._stable_positions = stable_positions
        self._group = group
        self._poll_interval_max_ms = poll_interval_max_ms
        self._late_polls = self._ignorant = late_polls
        self._reading: dict[TopicPartition, _ReadPosition] = {}
        self._topics: tuple[str, ...] = ()
        self._member: Member | None = None
        self._callbacks: tuple[OnPartitions, OnPartitions, OnPartitions] | None = None
        self._offered: set[TopicPartition] | None = None
        self._failure: PenstockError | None = None
        self._turn = 0
        self._closed = False

    def subscribe(
        self, topics: Sequence[str], *, on_assign: OnPartitions, on_revoke: OnPartitions, on_lost: OnPartitions
    ) -> None:
        """See the port."""
        self._check_open()
        self._topics = tuple(topics)
        self._callbacks = (on_assign, on_revoke, on_lost)
        self._join()

    def _join(self) -> None:
        group = self._log.group(self._group)
        self._member = group.join(
            self._topics, self._poll_interval_max_ms, self._log.now_ms, self._client_id, self._instance_id
        )

    def _take_part(self) -> None:
        """Serve the group's events for this member, callbacks included."""
        if self._member is None or self._callbacks is None:
            return
        on_assign, on_revoke, on_lost = self._callbacks
        group = self._log.group(self._group)
        for topic in self._topics:
            self._log.topic(topic)
        if not group.has(self._member):
            if self._ignorant:
                self._ignorant -= 1
                return
            self._ignorant = self._late_polls
            group.check_instance(self._member.member_id, self._instance_id)
            self._give_up(on_lost)
            self._join()
        member = self._member
        member.last_poll_ms = self._log.now_ms
        if member.round != group.round:
            self._give_up(on_revoke)
            if not group.has(member):
                return  # giving up took too long: it joins again at the next poll
            group.take_part(
                member, self._log.partition_counts(sorted({t for m in group.members.values() for t in m.topics}))
            )
        if not member.taken:
            member.taken = True
            if member.assignment:
                self._accept(member.assignment, on_assign)

    def _give_up(self, callback: OnPartitions) -> None:
        mine = sorted(self._reading)
        try:
            if mine:
                callback(mine)
        finally:
            self._reading.clear()

    def _accept(self, partitions: Sequence[TopicPartition], on_assign: OnPartitions) -> None:
        self._offered = set()
        try:
            on_assign(partitions)
            missing = [tp for tp in partitions if tp not in self._offered]
        finally:
            self._offered = None
        if missing:
            raise PenstockError(f"on_assign gave no position for {missing}; call assign_at for each partition")

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._check_open()
        fresh = [tp for tp in offsets if tp not in self._reading]
        if self._offered is None and self._member is not None and fresh:
            raise PenstockError(f"{sorted(fresh)} are not this member's; the group assigns partitions, inside poll")
        if self._offered is not None:
            self._offered.update(offsets)
        for tp, offset in offsets.items():
            self._reading[tp] = _ReadPosition(offset)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        for tp in partitions:
            self._reading.pop(tp, None)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port."""
        self._check_open()
        self._log.pass_point("poll")
        self._take_part()
        if self._ignorant == self._late_polls - 1:
            return Fetched([], {})  # the first answer to a fetch is on its way
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        chunks: list[Chunk] = []
        ends: dict[TopicPartition, int] = {}
        order = sorted(self._reading)
        # A different partition is first each time, so that a small max_records starves none.
        self._turn += 1
        room = max_records
        for i in range(len(order)):
            tp = order[(i + self._turn) % len(order)]
            reading = self._reading[tp]
            if (reading.paused and not reading.fetched) or room <= 0:
                continue
            reading.fetched = False
            chunk = self._read(tp, reading, room, ends)
            if chunk is not None:
                room -= len(chunk)
                chunks.append(chunk)
        if self._failure is not None and not chunks and not ends:
            failure, self._failure = self._failure, None
            raise failure
        return Fetched(chunks, ends)

    def _read(
        self, tp: TopicPartition, reading: _ReadPosition, room: int, ends: dict[TopicPartition, int]
    ) -> Chunk | None:
        log = self._log.partition(tp)
        if not log.first <= reading.position <= log.end:
            if self._failure is None:
                self._failure = OffsetOutOfRangeError(tp, reading.position, f"it holds [{log.first}, {log.end})")
            return None
        found: list[tuple[int, LogEntry]] = []
        for offset, entry in log.committed(reading.position):
            if len(found) == room:
                reading.position = offset
                break
            found.append((offset, entry))
        else:
            end = reading.position = max(reading.position, log.last_stable)
            if reading.reported_end != end:
                reading.reported_end = ends[tp] = end
        if not found:
            return None
        entries = [entry for _, entry in found]
        headers = [entry.headers for entry in entries]
        return Chunk(
            topic=tp.topic,
            partition=tp.partition,
            offsets=[offset for offset, _ in found],
            keys=[entry.key for entry in entries],
            values=[entry.value for entry in entries],
            timestamps=[entry.timestamp_ms for entry in entries],
            headers=headers if any(headers) else None,
            leader_epoch=log.epoch_of(found[-1][0]),
        )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        for tp in partitions:
            if tp in self._reading:
                self._reading[tp].paused = True
                self._reading[tp].fetched = self._late_chunks and self._offered is not None

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        for tp in partitions:
            if tp in self._reading:
                self._reading[tp].paused = False

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See the port."""
        reading = self._reading.get(partition)
        if reading is None:
            raise PenstockError(f"cannot seek {partition}: it is not assigned; call assign_at first")
        reading.position, reading.reported_end = offset, -1

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See the port. It cannot wait: a pending transaction is a ``RetriableError`` at once."""
        self._check_open()
        self._log.pass_point("committed")
        pending = self._log.pending_offsets(self._group, partitions)
        if pending and self._stable_positions:
            raise RetriableError(f"positions of {pending} are part of a transaction that is still open; try again")
        offsets = self._log.group(self._group).offsets
        return {tp: offsets.get(tp) for tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port."""
        self._check_open()
        group = self._log.group(self._group)
        self._log.pass_point("consumer_commit_before")
        if self._member is not None:
            group.check(self.group_metadata(), offsets)
        elif group.members:
            raise TaskMigratedError(
                f"group {self._group} has members, so only they may commit; discard uncommitted work and join the group"
            )
        group.offsets.update(offsets)
        self._log.pass_point("consumer_commit_after")

    def group_metadata(self) -> GroupToken:
        """See the port."""
        if self._member is None:
            return GroupToken(self._group, -1, "")
        return GroupToken(self._group, self._member.generation, self._member.member_id, self._instance_id)

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port."""
        log = self._log.partition(partition)
        return log.first, log.last_stable

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See the port."""
        return {tp: self._log.partition(tp).epochs[-1][0] for tp in partitions}

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """See the port."""
        log = self._log.partition(partition)
        return offset <= 0 or log.first <= offset <= log.epoch_end(epoch)

    def known_ends(self) -> dict[TopicPartition, int]:
        """See the port."""
        return {tp: self._log.partition(tp).last_stable for tp in self._reading}

    def close(self) -> None:
        """See the port."""
        if not self._closed:
            self._closed = True
            self._reading.clear()
            self._leave_group()

    def _leave_group(self) -> None:
        if self._member is not None and not self._instance_id:
            self._log.group(self._group).leave(self._member)

    def _check_open(self) -> None:
        if self._closed:
            raise PenstockError("the consumer is closed; open a new one")


class MemoryAdmin:
    """``LogAdmin`` on a ``MemoryLog``."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def require_answer(self) -> None:
        """See the port. It always answers."""

    def cluster_id(self) -> str:
        """See the port."""
        return self._log.cluster_id

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See the port."""
        return dict(self._log.partition_counts(topics))

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See the port."""
        return {t: self._log.topics[t].topic_id for t in topics if t in self._log.topics}

    def ask_topic_ids(self, topics: Sequence[str]) -> Asked:
        """See the port. The answer is that of the moment of the question."""
        found = self.topic_ids(topics)
        return lambda: found

    def topic_config(self, topic: str) -> dict[str, str]:
        """See the port. The broker's defaults that Penstock looks at, and what the topic was made with."""
        found = self._log.topic(topic)
        defaults: dict[str, Any] = {
            "cleanup.policy": "delete",
            "retention.ms": "604800000",
            "delete.retention.ms": "86400000",
            "max.message.bytes": str(found.max_message_bytes),
            "message.timestamp.type": "CreateTime",
        }
        return {**defaults, **found.spec.config}

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """See the port."""
        found = self._log.topic(topic)
        found.spec = dataclasses.replace(found.spec, config={**found.spec.config, **config})

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """See the port."""
        for spec in topics:
            self._log.create(spec)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        """See the port. Done at once."""
        failed: dict[TopicPartition, str] = {}
        for tp, offset in offsets.items():
            try:
                self._log.partition(tp).delete_before(offset)
            except UnknownTopicError as exc:
                failed[tp] = str(exc)
        return lambda: failed

    def topics(self, prefix: str) -> dict[str, int]:
        """See the port."""
        return {name: len(topic.partitions) for name, topic in self._log.topics.items() if name.startswith(prefix)}

    def groups(self, prefix: str) -> list[str]:
        """See the port."""
        return [name for name in self._log.groups if name.startswith(prefix)]

    def group_members(self, group: str) -> int:
        """See the port."""
        return len(self._log.group(group).members)

    def group_clients(self, group: str) -> list[str]:
        """See the port."""
        return list(self.group_member_ids(group).values())

    def group_member_ids(self, group: str) -> dict[str, str]:
        """See the port."""
        return {name: member.client_id for name, member in self._log.group(group).members.items()}

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port."""
        if self._log.group(group).members:
            raise UserError(f"group {group} has members; stop its workers before its positions are set")
        self._log.group(group).offsets.update(offsets)

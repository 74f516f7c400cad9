"""A consumer on the in-memory log whose group follows the broker's own protocol: the group's changes come as differences."""

from __future__ import annotations

from typing import Any

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OnPartitions
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_incremental_groups import IncrementalGroup, IncrementalMember
from penstock.streams.testing.memory_log import MemoryLog


class IncrementalConsumer(MemoryConsumer):
    """A ``MemoryConsumer`` in an ``IncrementalGroup``. ``on_revoke`` is called with the partitions that go and ``on_assign``
    with those that come, after a revocation also where none does; the others are read on. A member learns what it is to
    give up or to take ``late_polls`` polls late at most, and its epoch at once, as from heartbeats in the background."""

    def __init__(self, log: MemoryLog, group: str, *, late_polls: int = 0, **options: Any) -> None:
        super().__init__(log, group, late_polls=late_polls, **options)
        self._owned: set[TopicPartition] = set()
        self._polls = 0
        self._refused: RetriableError | None = None

    def _incremental(self) -> IncrementalGroup:
        return self._log.incremental_group(self._group)

    def _join(self) -> None:
        """Join; a refusal comes out of each poll from then on."""
        self._polls, self._refused = 0, None
        try:
            self._member = self._incremental().join(
                self._topics, self._poll_interval_max_ms, self._log.now_ms, self._client_id, self._instance_id
            )
        except RetriableError as exc:
            self._member, self._refused = None, exc

    def _take_part(self) -> None:
        """Serve the group's events for this member, callbacks included."""
        if self._refused is not None:
            raise self._refused
        member = self._member
        if not isinstance(member, IncrementalMember) or self._callbacks is None:
            return
        on_assign, on_revoke, on_lost = self._callbacks
        for topic in self._topics:
            self._log.topic(topic)
        if not self._incremental().has(member):
            if self._ignorant:
                self._ignorant -= 1
                return
            self._ignorant = self._late_polls
            self._let_go(sorted(self._owned), on_lost)
            self._join()
            return
        member.last_poll_ms = self._log.now_ms
        self._polls += 1
        if self._polls % (self._late_polls + 1) == 0 or not self._owned:
            self._follow(member, on_assign, on_revoke)

    def _follow(self, member: IncrementalMember, on_assign: OnPartitions, on_revoke: OnPartitions) -> None:
        """Send a heartbeat and do what it asks for; the next one, at once, says that partitions were given up."""
        self._beat(member)
        if member.revoking:
            self._let_go([tp for tp in member.revoking if tp in self._owned], on_revoke)
            if not self._incremental().has(member):
                return  # giving up took too long: it joins again at a later poll
            self._accept([], on_assign)
            self._beat(member)
        fresh = [tp for tp in member.assignment if tp not in self._owned]
        if fresh:
            self._owned.update(fresh)
            self._accept(fresh, on_assign)

    def _beat(self, member: IncrementalMember) -> None:
        group = self._incremental()
        topics = sorted({t for m in group.members.values() for t in m.topics})
        group.heartbeat(member, self._owned, self._log.partition_counts(topics))

    def _let_go(self, partitions: list[TopicPartition], callback: OnPartitions) -> None:
        try:
            if partitions:
                callback(partitions)
        finally:
            self._owned.difference_update(partitions)
            self.unassign(partitions)

    def _leave_group(self) -> None:
        self._owned.clear()
        if self._member is not None:
            self._incremental().leave(self._member)

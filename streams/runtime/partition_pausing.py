"""Pauses partitions with enough buffered records, and resumes those with room again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.state.log import TopicPartition
from penstock.streams.events.facts import PartitionPaused, PartitionResumed
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import LogConsumer
from penstock.streams.task.task import Task


class PartitionPausing:
    """See the module. Above ``max_records`` or ``max_bytes`` of one partition, it pauses."""

    def __init__(self, max_records: int, max_bytes: int, monotonic_s: Callable[[], float], events: EventSink) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._monotonic_s = monotonic_s
        self._events = events
        self._paused: set[TopicPartition] = set()
        self._since_s: dict[TopicPartition, float] = {}

    def turn(self, consumer: LogConsumer, tasks: Iterable[Task], record_bytes: float) -> None:
        """Check the buffers of the running tasks; ``record_bytes``: the mean size of a record."""
        limit = min(self._max_records, int(self._max_bytes / max(record_bytes, 1.0)))
        buffered = {TopicPartition(topic, t.id.partition): t.feed.buffered(topic) for t in tasks for topic in t.topics}
        full = {tp for tp, records in buffered.items() if records > limit}
        if more := full - self._paused:
            consumer.pause(more)
        if room := (self._paused & buffered.keys()) - full:
            consumer.resume(room)
        now_s = self._monotonic_s() if more or room else 0.0
        for tp in sorted(more):
            self._since_s[tp] = now_s
            self._events.emit(PartitionPaused(tp, buffered[tp]))
        for tp in sorted(room):
            self._events.emit(PartitionResumed(tp, now_s - self._since_s.pop(tp, now_s)))
        self._paused = (self._paused - buffered.keys()) | full

    def forget(self, left: Callable[[TopicPartition], bool]) -> None:
        """These partitions no longer belong to this worker."""
        self._paused = {tp for tp in self._paused if not left(tp)}
        self._since_s = {tp: since_s for tp, since_s in self._since_s.items() if tp in self._paused}

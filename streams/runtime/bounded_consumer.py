"""A consumer that sees each partition end at a given offset, whatever comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import Fetched, LogConsumer, OffsetAndMetadata


class BoundedConsumer:
    """``inner`` up to ``stops``; partitions without a stop are not bounded. What has reached its stop is paused, and its end
    is reported."""

    def __init__(self, inner: LogConsumer, stops: Mapping[TopicPartition, int]) -> None:
        self._inner = inner
        self._stops = stops
        self._over: set[TopicPartition] = set()
        self._unreported: set[TopicPartition] = set()
        """Partitions that stand at their stop without having been read to it since they were placed there."""

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        on_assign: Callable[[Sequence[TopicPartition]], None],
        on_revoke: Callable[[Sequence[TopicPartition]], None],
        on_lost: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """See the port."""
        self._inner.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._inner.assign_at(offsets)
        for tp, offset in offsets.items():
            self._placed(tp, offset)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        going = list(partitions)
        self._over.difference_update(going)
        self._unreported.difference_update(going)
        self._inner.unassign(going)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port. Records from the stop on are left out."""
        # What is already known to be at its end must not wait for records of others.
        fetched = self._inner.poll(max_records, 0.0 if self._unreported else timeout_s)
        chunks: list[Chunk] = []
        ends = {tp: min(end, self._stops.get(tp, end)) for tp, end in fetched.ends.items()}
        for chunk in fetched.chunks:
            tp = TopicPartition(chunk.topic, chunk.partition)
            stop = self._stops.get(tp)
            if stop is not None and chunk.offsets[-1] >= stop:
                ends[tp] = stop
                self._end(tp)
                chunk = chunk.before(stop)
            if len(chunk):
                chunks.append(chunk)
        ends |= {tp: self._stops[tp] for tp in self._unreported}
        self._unreported.clear()
        return Fetched(chunks, ends)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        self._inner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port. What has reached its stop stays paused."""
        self._inner.resume([tp for tp in partitions if tp not in self._over])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See the port."""
        self._inner.seek(partition, offset)
        if partition in self._over and offset < self._stops[partition]:
            self._inner.resume([partition])
        self._placed(partition, offset)

    def _placed(self, tp: TopicPartition, offset: int) -> None:
        self._over.discard(tp)
        stop = self._stops.get(tp)
        if stop is not None and offset >= stop:
            self._unreported.add(tp)
            self._end(tp)

    def _end(self, tp: TopicPartition) -> None:
        if tp not in self._over:
            self._over.add(tp)
            self._inner.pause([tp])

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See the port."""
        return self._inner.committed(partitions)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port."""
        self._inner.commit(offsets)

    def group_metadata(self) -> Any:
        """See the port."""
        return self._inner.group_metadata()

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port: those of the log, not of the bounds."""
        return self._inner.watermarks(partition)

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See the port."""
        return self._inner.leader_epochs(partitions)

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """See the port."""
        return self._inner.holds(partition, offset, epoch)

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """See the port."""
        return {tp: min(end, self._stops.get(tp, end)) for tp, end in self._inner.known_ends().items()}

    def close(self) -> None:
        """See the port."""
        self._inner.close()

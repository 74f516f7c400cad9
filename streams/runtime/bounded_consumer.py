"""A consumer that sees each partition end at a given offset, whatever comes after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.forwarding import ForwardingConsumer
from penstock.streams.ports.log import Fetched, LogConsumer


class BoundedConsumer(ForwardingConsumer):
    """``inner`` up to ``stops``; partitions without a stop are not bounded. What has reached its stop is paused, and its end
    is reported. ``watermarks`` are those of the log, not of the bounds."""

    def __init__(self, inner: LogConsumer, stops: Mapping[TopicPartition, int]) -> None:
        super().__init__(inner)
        self._stops = stops
        self._over: set[TopicPartition] = set()
        self._unreported: set[TopicPartition] = set()
        """Partitions that stand at their stop without having been read to it since they were placed there."""

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

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """See the port."""
        return {tp: min(end, self._stops.get(tp, end)) for tp, end in self._inner.known_ends().items()}

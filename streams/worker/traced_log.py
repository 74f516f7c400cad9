"""A log whose records are reported to a tracing system: ``TracedLog`` around the log of a worker.

Only the ports are watched, so the run loop and the tasks know nothing of it, and without tracing nothing of it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.forwarding import ForwardingConsumer, ForwardingProducer
from penstock.streams.ports.log import Fetched, Log, LogAdmin, LogConsumer, LogProducer, OffsetAndMetadata
from penstock.streams.ports.record_traces import RecordTraces
from penstock.topologies.operator_api.columns import Column, Ints


class TracedLog:
    """``inner``; what its members read and its producers write and commit is reported to ``traces``."""

    def __init__(self, inner: Log, traces: RecordTraces) -> None:
        self._inner = inner
        self._traces = traces

    @property
    def epochs_grow(self) -> bool:
        """See the port."""
        return self._inner.epochs_grow

    @property
    def names_members(self) -> bool:
        """See the port."""
        return self._inner.names_members

    def admin(self, *, request_timeout_s: float | None = None) -> LogAdmin:
        """See the port."""
        return self._inner.admin(request_timeout_s=request_timeout_s)

    def member(self, group: str, client_id: str | None = None) -> LogConsumer:
        """See the port."""
        return TracedConsumer(self._inner.member(group, client_id), self._traces)

    def reader(self, group: str) -> LogConsumer:
        """See the port. Not traced: stores are restored with it."""
        return self._inner.reader(group)

    def position_reader(self, group: str, *, request_timeout_s: float) -> LogConsumer:
        """See the port."""
        return self._inner.position_reader(group, request_timeout_s=request_timeout_s)

    def producer(self, transactional_id: str | None = None, *, bulk: bool = False) -> LogProducer:
        """See the port."""
        return TracedProducer(self._inner.producer(transactional_id, bulk=bulk), self._traces)


class TracedConsumer(ForwardingConsumer):
    """``inner``; what is read and committed, and where reading goes on, is reported to ``traces``."""

    def __init__(self, inner: LogConsumer, traces: RecordTraces) -> None:
        super().__init__(inner)
        self._traces = traces
        self._reading: set[TopicPartition] = set()

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._inner.assign_at(offsets)
        self._reading.update(offsets)
        for tp, offset in offsets.items():
            self._traces.placed(tp, offset)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        going = list(partitions)
        self._inner.unassign(going)
        self._forget(going)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._reading.discard(tp)
            self._traces.placed(tp, 0)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port."""
        fetched = self._inner.poll(max_records, timeout_s)
        for chunk in fetched.chunks:
            self._traces.received(chunk)
        return fetched

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See the port."""
        self._inner.seek(partition, offset)
        self._traces.placed(partition, offset)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port."""
        self._inner.commit(offsets)
        self._traces.committed({tp: position.offset for tp, position in offsets.items()})

    def close(self) -> None:
        """See the port."""
        self._inner.close()
        self._forget(sorted(self._reading))


class TracedProducer(ForwardingProducer):
    """``inner``; headers are those that ``traces`` returns, and committed transactions are reported to it."""

    def __init__(self, inner: LogProducer, traces: RecordTraces) -> None:
        super().__init__(inner)
        self._traces = traces
        self._positions: dict[TopicPartition, int] = {}
        """Those of the open transaction."""

    def begin(self) -> None:
        """See the port."""
        self._positions.clear()
        self._inner.begin()

    def send(
        self,
        topic: str,
        keys: Sequence[bytes | None] | Column,
        values: Sequence[bytes | None] | Column,
        timestamps: Sequence[int] | Ints,
        headers: Sequence[Headers] | None = None,
        *,
        partition: int | Sequence[int] | None = None,
    ) -> None:
        """See the port."""
        if headers is not None:
            headers = self._traces.sent(topic, headers)
        self._inner.send(topic, keys, values, timestamps, headers, partition=partition)

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        """See the port."""
        self._inner.send_offsets(offsets, group, timeout_s)
        self._positions |= {tp: position.offset for tp, position in offsets.items()}

    def commit(self, timeout_s: float) -> None:
        """See the port."""
        self._inner.commit(timeout_s)
        self._traces.committed(self._positions)
        self._positions = {}

    def abort(self, timeout_s: float) -> None:
        """See the port."""
        self._positions.clear()
        self._inner.abort(timeout_s)

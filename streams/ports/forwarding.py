"""A consumer and a producer that hand every call on to another one: bases of those that change some of the calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.log import Fetched, LogConsumer, LogProducer, OffsetAndMetadata, OnPartitions
from penstock.topologies.operator_api.columns import Column, Ints


class ForwardingConsumer:
    """``LogConsumer`` that is ``inner``."""

    def __init__(self, inner: LogConsumer) -> None:
        self._inner = inner

    def subscribe(
        self, topics: Sequence[str], *, on_assign: OnPartitions, on_revoke: OnPartitions, on_lost: OnPartitions
    ) -> None:
        """See the port."""
        self._inner.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self._inner.assign_at(offsets)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        self._inner.unassign(partitions)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """See the port."""
        return self._inner.poll(max_records, timeout_s)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        self._inner.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See the port."""
        self._inner.resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See the port."""
        self._inner.seek(partition, offset)

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
        """See the port."""
        return self._inner.watermarks(partition)

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See the port."""
        return self._inner.leader_epochs(partitions)

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """See the port."""
        return self._inner.holds(partition, offset, epoch)

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """See the port."""
        return self._inner.known_ends()

    def close(self) -> None:
        """See the port."""
        self._inner.close()


class ForwardingProducer:
    """``LogProducer`` that is ``inner``."""

    def __init__(self, inner: LogProducer) -> None:
        self._inner = inner

    def init_transactions(self, timeout_s: float) -> None:
        """See the port."""
        self._inner.init_transactions(timeout_s)

    def begin(self) -> None:
        """See the port."""
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
        self._inner.send(topic, keys, values, timestamps, headers, partition=partition)

    def flush(self, timeout_s: float) -> dict[TopicPartition, int]:
        """See the port."""
        return self._inner.flush(timeout_s)

    def unacknowledged(self) -> int:
        """See the port."""
        return self._inner.unacknowledged()

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        """See the port."""
        self._inner.send_offsets(offsets, group, timeout_s)

    def commit(self, timeout_s: float) -> None:
        """See the port."""
        self._inner.commit(timeout_s)

    def abort(self, timeout_s: float) -> None:
        """See the port."""
        self._inner.abort(timeout_s)

    def close(self) -> None:
        """See the port."""
        self._inner.close()

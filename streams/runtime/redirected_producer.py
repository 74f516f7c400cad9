"""A producer that writes records of some topics to other ones, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.log import LogProducer, OffsetAndMetadata
from penstock.topologies.operator_api.columns import Column, Ints


class RedirectedProducer:
    """``inner``, with the topics of ``outputs`` replaced; ``None`` drops their records. A topic that replaces another has as
    many partitions, since partitions may be given by number."""

    def __init__(self, inner: LogProducer, outputs: Mapping[str, str | None]) -> None:
        self._inner = inner
        self._outputs = outputs

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
        target = self._outputs.get(topic, topic)
        if target is not None:
            self._inner.send(target, keys, values, timestamps, headers, partition=partition)

    def init_transactions(self, timeout_s: float) -> None:
        """See the port."""
        self._inner.init_transactions(timeout_s)

    def begin(self) -> None:
        """See the port."""
        self._inner.begin()

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

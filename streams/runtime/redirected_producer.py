"""A producer that writes records of some topics to other ones, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.state.log import Headers
from penstock.streams.ports.forwarding import ForwardingProducer
from penstock.streams.ports.log import LogProducer
from penstock.topologies.operator_api.columns import Column, Ints


class RedirectedProducer(ForwardingProducer):
    """``inner``, with the topics of ``outputs`` replaced; ``None`` drops their records. A topic that replaces another has as
    many partitions, since partitions may be given by number."""

    def __init__(self, inner: LogProducer, outputs: Mapping[str, str | None]) -> None:
        super().__init__(inner)
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

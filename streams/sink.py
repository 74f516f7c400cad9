"""The running form of a sink: serializes its records into columns that the task hands to the producer."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.log import Headers
from penstock.state.partitioner import partition_for
from penstock.state.serde import Serde
from penstock.streams.task_context import NodeContext
from penstock.topologies.batch import Batch
from penstock.topologies.operator import Operator
from penstock.topologies.operators.endpoints import Sink

BY_KEY = -1
"""Partition of a record that the producer chooses by murmur2 of the key."""


@dataclasses.dataclass(slots=True)
class Output:
    """Records for one topic, in order. ``partition`` as in ``LogProducer.send``. ``order`` is the batch's, by which
    ``Task.causes`` finds the input records; ``None``: no input record is behind them."""

    topic: str
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None = None
    partition: int | list[int] | None = None
    order: list[int] | None = None


class SinkOperator(Operator):
    """Collects into ``outputs``. ``partitions``: the topic's partition count, needed where partitions are explicit."""

    def __init__(
        self, ctx: NodeContext, spec: Sink, topic: str, outputs: list[Output], partitions: int | None, max_bytes: int
    ) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._topic = topic
        self._outputs = outputs
        self._partitions = partitions
        self._max_bytes = max_bytes

    def process(self, port: int, batch: Batch) -> None:
        """Serialize; rows that cannot be written meet the policy one by one."""
        try:
            keys = self._spec.key_serde.serialize_all(batch.keys)
            values = self._spec.value_serde.serialize_all(batch.values)
            self._check_size(values)
        except (SerdeError, ProcessingError) as exc:
            self._one_by_one(port, batch, exc)
            return
        if keys:
            partition = self._partition(batch, keys)
            self._outputs.append(
                Output(self._topic, keys, values, batch.timestamps, batch.headers, partition, batch.order)
            )

    def _one_by_one(self, port: int, batch: Batch, error: Exception) -> None:
        if len(batch) == 1:
            # what cannot be written is the processing's fault, not the input bytes'
            self.ctx.failed(batch, 0, ProcessingError(f"topic {self._topic}: {error}"))
            return
        for i in range(len(batch)):
            self.process(port, batch.slice(i, i + 1))

    def _check_size(self, values: list[bytes | None]) -> None:
        largest = max(map(len, filter(None, values)), default=0)
        if largest > self._max_bytes:
            raise ProcessingError(
                f"a value of {largest} bytes is over max_record_bytes={self._max_bytes}; make it smaller or raise the "
                "limit here, in the topic (max.message.bytes) and in the producer (message.max.bytes)"
            )

    def _partition(self, batch: Batch, keys: list[bytes | None]) -> int | list[int] | None:
        spec = self._spec
        if spec.inner_key is not None and self._partitions is not None:
            inner: Serde[Any] = spec.inner_key
            count = self._partitions
            return [BY_KEY if k is None else partition_for(inner.serialize(k.key), count) for k in batch.keys]
        if spec.internal and None in keys:
            assert self._partitions is not None
            own = self.ctx.task.partition % self._partitions
            return [own if k is None else BY_KEY for k in keys]
        return None

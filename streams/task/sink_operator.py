"""The running form of a sink: serializes its records into columns that the task hands to the producer."""

from __future__ import annotations

import struct
from bisect import bisect_left
from itertools import groupby
from typing import Any, Literal

import numpy as np

from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.serdes.change_serde import Change, RowChangeSerde
from penstock.state.serdes.partitioner import partition_for, partitions_for
from penstock.state.serdes.serde import Serde
from penstock.streams.task.operator_context import NodeContext
from penstock.streams.task.output import Output
from penstock.streams.task.packed_records import packed_output
from penstock.streams.task.watermark_emitter import WatermarkEmitter
from penstock.topologies.columnar.avro_writing import AvroWriter, avro_writer
from penstock.topologies.columnar.change_columns import sides_of, written_changes
from penstock.topologies.columnar.column_parts import (
    by_columns_or_rows,
    inner_bytes,
    longest,
    nulls_of,
    packed_values,
    serialized,
    written,
)
from penstock.topologies.columnar.encoded_columns import AddressedColumn, ParsedColumn
from penstock.topologies.columnar.json_writing import encoder_of, written_json
from penstock.topologies.columnar.kernels import partitions_of
from penstock.topologies.columnar.windowed_keys import is_windowed
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask, StructColumn
from penstock.topologies.operator_api.operator import Operator
from penstock.topologies.operators.columnar.row_texts import WrittenTexts, written_texts
from penstock.topologies.operators.records.source_sink import SinkSpec, Split

_TIME = struct.Struct(">q")
BY_KEY = -1
"""Partition of a record that the producer chooses by murmur2 of the key."""


class SinkOperator(Operator):
    """Collects records in ``outputs``. ``partitions``: the topic's partition count, needed if partitions are explicit.
    ``emitter``: for a repartition topic that carries watermarks."""

    def __init__(
        self,
        ctx: NodeContext,
        spec: SinkSpec,
        topic: str,
        outputs: list[Output],
        partitions: int | None,
        max_bytes: int,
        emitter: WatermarkEmitter | None = None,
    ) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._topic = topic
        self._outputs = outputs
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._emitter = emitter
        self._avro = avro_writer(spec.value_serde)
        values = spec.value_serde.rows if isinstance(spec.value_serde, RowChangeSerde) else spec.value_serde
        self._texts = written_texts(values) or self._avro

    def process(self, port: int, batch: Batch) -> None:
        """Serialize; the policy handles rows that cannot be written, one by one."""
        if self._emitter is None:
            self._write(port, batch)
            return
        # watermarks go between the records at which they were reached
        stride, order, start = self.ctx.time.stride, batch.order, 0
        for place, mark in self._emitter.marks_before(order[-1] // stride if order else 0):
            stop = bisect_left(order, (place + 1) * stride, start)
            by_columns_or_rows(self._write_columns, self._write, port, batch.slice(start, stop))
            self._outputs.append(mark)
            start = stop
        by_columns_or_rows(self._write_columns, self._write, port, batch.slice(start, len(batch)))

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        return self._write_columns(port, batch) if self._emitter is None else batch

    def advance(self, place: int) -> None:
        if self._emitter is not None:
            self._outputs.extend(mark for _, mark in self._emitter.marks_before(place))

    def end_batch(self) -> None:
        if self._emitter is not None:
            self._emitter.note()

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        if self._emitter is not None:
            self._outputs.extend(self._emitter.marks_at_reading())
            self._emitter.note()

    def _write(self, port: int, batch: Batch) -> None:
        if not len(batch):
            return
        if self._spec.packs:
            self._write_packed(port, batch)
            return
        try:
            keys = self._spec.key_serde.serialize_all(batch.keys)
            avro = None if self._avro is None else self._avro.of_values(batch.values)
            values = self._spec.value_serde.serialize_all(batch.values) if avro is None else avro.to_list()
            self._check_size(values)
            self._check_topics(batch)
            partition = self._partition(batch, keys, values)
        except (SerdeError, ProcessingError) as exc:
            self._one_by_one(port, batch, exc)
            return
        if self._spec.route == "broadcast":
            self._write_to_all(batch, keys, values)
        elif keys and self._spec.topic_of is not None:
            self._write_by_topic(batch, keys, values, partition)
        elif keys:
            self._outputs.append(
                Output(self._topic, keys, values, batch.timestamps, batch.headers, partition, batch.order)
            )

    def _write_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        output = self._in_columns(batch)
        if output is None:
            return batch
        self._outputs.append(output)
        return None

    def _write_packed(self, port: int, batch: Batch) -> None:
        assert self._partitions is not None
        try:
            keys = _as_bytes(batch.key_column, batch, "key", self._spec.key_serde)
            values = _passed_on(batch.value_column, self._spec.value_serde, self._texts)
            if values is None:
                values = _as_bytes(batch.value_column, batch, "value", self._spec.value_serde)
            output = packed_output(
                self._topic, keys, values, batch.times, batch.orders, self._partitions, self._max_bytes
            )
        except (SerdeError, ProcessingError) as exc:
            self._one_by_one(port, batch, exc)
        else:
            self._outputs.append(output)

    def _in_columns(self, batch: ColumnBatch) -> Output | None:
        """Return the batch's columns unchanged, or each distinct value written once; ``None``: write row by row."""
        spec = self._spec
        column = batch.value_column
        addressed = column if isinstance(column, AddressedColumn) and column.route == spec.route else None
        if spec.packs or spec.topic_of is not None or (spec.route != "key" and addressed is None):
            return None
        keys = _written(batch.key_column, batch, "key", spec.key_serde)
        values = None if keys is None else self._written_values(batch)
        if keys is None or values is None:
            return None
        if (longest(values) if isinstance(values, Column) else _longest(values)) > self._max_bytes:
            return None
        partition: list[int] | None = None
        if addressed is not None:
            partition = self._known(addressed)
            return None if partition is None else self._output(batch, keys, values, partition)
        if spec.internal and (nulls := _nulls(keys)) is not None:
            assert self._partitions is not None
            own = self.ctx.task.partition % self._partitions
            return self._output(batch, keys, values, np.where(nulls, own, BY_KEY).tolist())
        if spec.inner_key is not None and self._partitions is not None:
            partition = self._inner_partitions(batch.key_column)
            if partition is None:
                return None
        return self._output(batch, keys, values, partition)

    def _output(
        self,
        batch: ColumnBatch,
        keys: Column | list[bytes | None],
        values: Column | list[bytes | None],
        partition: list[int] | None,
    ) -> Output:
        return Output(self._topic, keys, values, batch.times, batch.headers, partition, batch.orders)

    def _known(self, column: AddressedColumn) -> list[int] | None:
        """Return the partition of each value; ``None``: the topic lacks one of them."""
        assert self._partitions is not None
        found = column.partitions
        return found.tolist() if len(found) and found.min() >= 0 and found.max() < self._partitions else None

    def _written_values(self, batch: ColumnBatch) -> Column | list[bytes | None] | None:
        column = batch.value_column
        if isinstance(self._spec.value_serde, RowChangeSerde) and (sides := sides_of(column)) is not None:
            news, olds = (_bytes_of(side, self._spec.value_serde.rows, self._texts) for side in sides)
            return None if news is None or olds is None else written_changes(news, olds)
        passed = _passed_on(column, self._spec.value_serde, self._texts)
        if passed is None and self._avro is not None and type(column) is StructColumn:
            passed = self._avro.of_structs(column)
        elif column is None and self._avro is not None:
            passed = self._avro.of_values(batch.values)
        return _written(batch.value_column, batch, "value", self._spec.value_serde) if passed is None else passed

    def _write_by_topic(
        self, batch: Batch, keys: list[bytes | None], values: list[bytes | None], partition: int | list[int] | None
    ) -> None:
        """Write runs of records that go to one topic."""
        assert self._spec.topic_of is not None
        start = 0
        for topic, run in groupby(map(self._spec.topic_of, batch.keys, batch.values)):
            stop = start + sum(1 for _ in run)
            part = batch.slice(start, stop)
            where = partition[start:stop] if isinstance(partition, list) else partition
            self._outputs.append(
                Output(topic, keys[start:stop], values[start:stop], part.timestamps, part.headers, where, part.order)
            )
            start = stop

    def _one_by_one(self, port: int, batch: Batch, error: Exception) -> None:
        if len(batch) == 1:
            # if a value cannot be written, processing failed, not deserialization
            problem = ProcessingError(f"topic {self._topic}: {error}")
            problem.__cause__ = error
            # a partial stands for many records, and a change dropped here would still be subtracted later
            whole = self._spec.packs or isinstance(batch.values[0], Change)
            self.ctx.failed(batch, 0, problem, may_skip=not whole)
            return
        for i in range(len(batch)):
            self._write(port, batch.slice(i, i + 1))

    def _check_topics(self, batch: Batch) -> None:
        topic_of, known = self._spec.topic_of, self._spec.topics
        if topic_of is None:
            return
        for key, value in zip(batch.keys, batch.values, strict=True):
            try:
                topic = topic_of(key, value)
            except Exception as exc:
                raise ProcessingError(f"choosing the topic raised {type(exc).__name__}: {exc}") from exc
            if topic not in known:
                raise ProcessingError(
                    f"the function chose topic {topic!r:.100}, which is not one of {', '.join(known)}; add it to topics="
                )

    def _check_size(self, values: list[bytes | None]) -> None:
        largest = _longest(values)
        if largest > self._max_bytes:
            raise ProcessingError(
                f"a value of {largest} bytes is over max_record_bytes={self._max_bytes}; make it smaller or raise the "
                "limit here, in the topic (max.message.bytes) and in the producer (message.max.bytes)"
            )

    def _write_to_all(self, batch: Batch, keys: list[bytes | None], values: list[bytes | None]) -> None:
        assert self._partitions is not None
        every = range(self._partitions)
        places = [i for i in range(len(keys)) for _ in every]
        if places:
            self._outputs.append(
                Output(
                    self._topic,
                    [keys[i] for i in places],
                    [values[i] for i in places],
                    [batch.timestamps[i] for i in places],
                    None if batch.headers is None else [batch.headers[i] for i in places],
                    [*every] * len(keys),
                    [batch.order[i] for i in places],
                )
            )

    def _routed(self, batch: Batch, keys: list[bytes | None], values: list[bytes | None]) -> list[int]:
        """Return partitions that do not follow from the key."""
        count, route = self._partitions, self._spec.route
        assert count is not None
        if callable(route):
            chosen = [route(k, v, count) for k, v in zip(batch.keys, batch.values, strict=True)]
            wrong = [c for c in chosen if type(c) is not int or not 0 <= c < count]
            if wrong:
                raise ProcessingError(
                    f"the partitioner returned {wrong[0]!r:.60}; it must return an int from 0 to {count - 1}"
                )
            return chosen
        pack = _TIME.pack
        records = [(v or b"") + pack(t) for v, t in zip(values, batch.timestamps, strict=True)]
        if not isinstance(route, Split):
            return partitions_for(records, count)
        ways = partitions_for(records, route.ways)
        return partitions_for([(k or b"") + pack(way) for k, way in zip(keys, ways, strict=True)], count)

    def _inner_partition(self, key: Any) -> int:
        """Return the partition of a windowed key."""
        assert self._spec.inner_key is not None and self._partitions is not None
        return BY_KEY if key is None else partition_for(self._spec.inner_key.serialize(key.key), self._partitions)

    def _inner_partitions(self, keys: Column | None) -> list[int] | None:
        """Return the partitions of windowed keys; ``None``: row by row."""
        assert self._spec.inner_key is not None and self._partitions is not None
        if is_windowed(keys):
            data = inner_bytes(keys, self._spec.inner_key)
            return None if data is None else partitions_of(data, self._partitions).tolist()
        if not isinstance(keys, CodedColumn):
            return None
        try:
            return keys.map(self._inner_partition).to_list()
        except Exception:  # not swallowed: the rows meet it again
            return None

    def _partition(self, batch: Batch, keys: list[bytes | None], values: list[bytes | None]) -> int | list[int] | None:
        spec = self._spec
        if spec.route not in ("key", "broadcast"):
            return self._routed(batch, keys, values)
        if spec.inner_key is not None and self._partitions is not None:
            return list(map(self._inner_partition, batch.keys))
        if spec.internal and None in keys:
            assert self._partitions is not None
            own = self.ctx.task.partition % self._partitions
            return [own if k is None else BY_KEY for k in keys]
        return None


def _nulls(keys: Column | list[bytes | None]) -> Mask | None:
    """Return where keys are null; ``None``: nowhere."""
    if isinstance(keys, Column):
        return nulls_of(keys)
    return np.array([k is None for k in keys], np.bool_) if None in keys else None


def _longest(values: list[bytes | None]) -> int:
    return max(map(len, filter(None, values)), default=0)


def _as_bytes(column: Column | None, batch: Batch, part: Literal["key", "value"], serde: Serde[Any]) -> BytesColumn:
    """Return the keys or values of a batch as bytes. Raises ``SerdeError``."""
    data = None if column is None else serialized(column, serde)
    if isinstance(data, BytesColumn):
        return data
    return packed_values(batch.keys if part == "key" else batch.values, serde)


def _passed_on(column: Column | None, serde: Serde[Any], texts: WrittenTexts | AvroWriter | None) -> BytesColumn | None:
    """Return undecoded records as their original bytes, if the serde would write the same bytes."""
    if texts is None or not isinstance(column, ParsedColumn) or column.serde != serde:
        return None
    return texts.of(column.raw)


def _written(
    column: Column | None, batch: Batch, part: Literal["key", "value"], serde: Serde[Any]
) -> Column | list[bytes | None] | None:
    """Return the keys or values of a batch as bytes, as a column if possible; ``None`` if one cannot be written."""
    data = None if column is None else _as_written(column, serde)
    return data if data is not None else written(batch.keys if part == "key" else batch.values, serde)


def _as_written(column: Column, serde: Serde[Any]) -> Column | list[bytes | None] | None:
    """Return a column as bytes; ``None``: its values must be written one by one."""
    data: Column | list[bytes | None] | None = serialized(column, serde)
    if data is None and isinstance(column, StructColumn) and (not serde.writes or dict in serde.writes):
        encode = encoder_of(serde)
        data = None if encode is None else written_json(column, encode)
    return data


def _bytes_of(column: Column, serde: Serde[Any], texts: WrittenTexts | AvroWriter | None) -> BytesColumn | None:
    """Return a column as bytes; ``None``: a value cannot be written."""
    data = _passed_on(column, serde, texts)
    found = _as_written(column, serde) if data is None else data
    if found is None:
        found = written(column.to_list(), serde)
    if found is None or isinstance(found, BytesColumn):
        return found
    return BytesColumn.of(found if isinstance(found, list) else found.to_list())

"""The columns of a topic: its records' keys and values, typed, with their time and place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from penstock.state.errors import SerdeError, SettingsError
from penstock.state.serdes.serde import Serde
from penstock.streams.batch.reading import binary
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.frames.decoding import SerdeColumns, times
from penstock.streams.spark.frames.types import TIMESTAMP

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_PLACE = [
    pa.field("timestamp", TIMESTAMP),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("headers", HEADERS),
]


class TopicColumns:
    """Chunks of a topic as record batches. ``only``: these columns (``None``: all); others are not decoded."""

    def __init__(self, key: Serde[Any], value: Serde[Any], only: Collection[str] | None = None) -> None:
        self._key, self._value = SerdeColumns(key, "key"), SerdeColumns(value, "value")
        every = [*self._key.fields, *self._value.fields, *_PLACE]
        self.schema = chosen(every, only)
        self._wanted = set(self.schema.names)

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """The chunk's records. Raises ``SerdeError`` naming the first that cannot be read."""
        found: dict[str, pa.Array] = {}
        for side, column, rows in (
            (self._key, chunk.key_column, chunk),
            (self._value, chunk.value_column, chunk),
        ):
            names = [f.name for f in side.fields]
            if not self._wanted.intersection(names):
                continue
            listed = rows.keys if side is self._key else rows.values
            try:
                arrays = side.decode(binary(listed if column is None else column))
            except SerdeError as exc:
                raise SerdeError(
                    f"{chunk.topic} partition {chunk.partition}, offsets {chunk.offsets[0]} to {chunk.offsets[-1]}, "
                    f"{names[0]}: {exc}; name the serde that the topic was written with"
                ) from exc
            found |= dict(zip(names, arrays, strict=True))
        if "timestamp" in self._wanted:
            found["timestamp"] = times(chunk.times)
        found["partition"] = pa.repeat(pa.scalar(chunk.partition, pa.int32()), len(chunk))
        found["offset"] = pa.array(chunk.offsets, pa.int64())
        if "headers" in self._wanted:
            found["headers"] = _headers(chunk)
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema)


def _headers(chunk: Chunk) -> pa.Array:
    if chunk.headers is None:
        return pa.nulls(len(chunk), HEADERS)
    return pa.array([[{"key": k, "value": v} for k, v in h] if h else None for h in chunk.headers], HEADERS)


def chosen(fields: Sequence[pa.Field], only: Collection[str] | None) -> pa.Schema:
    """The schema of the requested fields, in their order. Raises ``SettingsError`` for an unknown one."""
    names = [f.name for f in fields]
    if only is not None and (unknown := [n for n in only if n not in names]):
        raise SettingsError(f"no column {', '.join(unknown)}; the columns are: {', '.join(names)}")
    return pa.schema([f for f in fields if only is None or f.name in only])

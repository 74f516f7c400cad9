"""Convert rows of a DataFrame to records of a topic: serdes write keys and values after checking their types, and
each row goes to the partition that Kafka's producers would choose."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serdes.models import converted
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.serde import JSON, Serde
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.streams.batch.shipping import ShippedTopology, ShippedValue
from penstock.streams.spark.frames.decoding import WINDOW_END, WINDOW_START
from penstock.streams.spark.frames.request import chosen_serdes, serdes_of
from penstock.streams.spark.frames.topic_columns import HEADERS

ENCODED_SCHEMA = (
    "place int, timestamp_ms long, key binary, value binary, headers array<struct<key: string, value: binary>>"
)
_ENCODED = pa.schema(
    [
        ("place", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


@dataclasses.dataclass(frozen=True)
class TopicEncoding:
    """How a topic is written: its serdes as the ``topology`` knows them, or what ``key`` and ``value`` mean (``serde_of``),
    its number of partitions, and the time of rows without one."""

    topic: str
    partitions: int
    topology: ShippedTopology | None
    application_id: str
    key: ShippedValue | None
    value: ShippedValue | None
    now_ms: int

    def serdes(self) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes of keys and values. Raises ``SettingsError`` if they are not known."""
        known = None if self.topology is None else serdes_of(self.topology.load(), self.application_id, self.topic)
        return chosen_serdes(self.topic, known, self.key, self.value)


def encode_rows(form: TopicEncoding, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with ``key``, ``value``, and perhaps ``timestamp``, ``headers``, ``window_start`` and ``window_end``, as records.
    Raises ``SerdeError`` naming the first row that does not fit."""
    key_serde, value_serde = form.serdes()
    write_key, write_value = cell_writer(key_serde, "key"), cell_writer(value_serde, "value")
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        count = batch.num_rows
        keys = columns["key"]
        if isinstance(key_serde, WindowedSerde):
            ends = (map(stamp_ms, columns[name]) for name in (WINDOW_START, WINDOW_END))
            keys = [Windowed(k, start or 0, end or 0) for k, start, end in zip(keys, *ends, strict=True)]
        coded = [None if k is None else write_key(k) for k in keys]
        values = [None if v is None else write_value(v) for v in columns["value"]]
        stamps = [form.now_ms if t is None else stamp_ms(t) for t in columns.get("timestamp", [None] * count)]
        inner = key_serde.inner if isinstance(key_serde, WindowedSerde) else None
        chosen_by = coded if inner is None else [inner.serialize(w.key) for w in keys]
        places = [_place(k, v, form.partitions) for k, v in zip(chosen_by, values, strict=True)]
        headers = columns.get("headers", [None] * count)
        arrays = [pa.array(c, f.type) for c, f in zip((places, stamps, coded, values, headers), _ENCODED, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ENCODED)


def _place(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """The partition that Kafka's producers choose; without a key, one that follows from the value, so that a repeated
    job chooses the same."""
    return zlib.crc32(value or b"") % partitions if key is None else partition_for(key, partitions)


def stamp_ms(at: datetime | None) -> int | None:
    """Milliseconds of a timestamp."""
    return None if at is None else round(at.timestamp() * 1000)


def cell_writer(serde: Serde[Any], column: str) -> Callable[[Any], bytes]:
    """Write cells of a column. A typed value is built from the cell's fields first, which checks them."""
    like = serde.declared

    def write(cell: Any) -> bytes:
        try:
            if serde == JSON:
                return bytes(cell, "utf-8") if isinstance(cell, str) else orjson.dumps(cell)
            return serde.serialize(cell if like is None else converted(cell, like))
        except Exception as exc:
            raise SerdeError(
                f"column {column}: serde {serde.name} cannot write {cell!r:.200}: {exc}; select columns of the types that "
                "the topic has"
            ) from exc

    return write

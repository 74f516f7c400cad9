"""Keys and values of the log as typed columns, by their serdes.

Bytes, strings, numbers and untyped JSON (as text) are passed on as buffers. Typed JSON becomes a struct of its class's
fields, read by the compiled part where they are all plain; windowed keys become the inner key and two more columns. Values
of a user's serde that does not declare a type stay bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import BYTES, FLOAT, INT, INT32, JSON, STRING, OptionalSerde, Serde
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.streams.batch.reading import bytes_column
from penstock.streams.spark.frames.types import TIMESTAMP, fields_of, typed
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.columns import CodedColumn, Column, NumberColumn
from penstock.topologies.operators.columnar.source import json_decoder

Decode = Callable[[pa.Array], list[pa.Array]]
"""Converts binary values (or null) to one array per field."""
_NUMBERS = {INT.name: (">i8", pa.int64()), INT32.name: (">i4", pa.int32()), FLOAT.name: (">f8", pa.float64())}
_PLAIN_TYPES = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
WINDOW_START, WINDOW_END = "window_start", "window_end"


class SerdeColumns:
    """The columns of a serde's bytes. ``name`` is the first one's name; the others belong to a window."""

    def __init__(self, serde: Serde[Any], name: str) -> None:
        self.serde = serde
        self.fields: list[pa.Field]
        self._decode: Decode
        if isinstance(serde, WindowedSerde):
            self.fields, self._decode = _windowed(serde, name)
        else:
            field, decode = _single(serde, name)
            self.fields, self._decode = [field], lambda raw: [decode(raw)]

    def decode(self, raw: pa.Array) -> list[pa.Array]:
        """The columns. Raises ``SerdeError`` naming the first value that cannot be read."""
        try:
            return self._decode(raw)
        except Exception as exc:
            for place, value in enumerate(raw.to_pylist()):
                try:
                    self._decode(pa.array([value], pa.binary()))
                except Exception as one:
                    raise SerdeError(
                        f"serde {self.serde.name} cannot read {value!r:.100} (place {place} of the batch): {one}"
                    ) from exc
            raise SerdeError(f"serde {self.serde.name} cannot read a batch of {len(raw)}: {exc}") from exc


def _single(serde: Serde[Any], name: str) -> tuple[pa.Field, Callable[[pa.Array], pa.Array]]:
    if serde.name in _NUMBERS and serde in (INT, INT32, FLOAT):
        layout, kind = _NUMBERS[serde.name]
        return pa.field(name, kind), lambda raw: _numbers(raw, layout, kind)
    if isinstance(serde, OptionalSerde):
        field, inner = _single(serde.inner, name)
        return field, lambda raw: inner(
            pa.array([v[1:] if v is not None and v[0] else None for v in raw.to_pylist()], pa.binary())
        )
    if serde in (STRING, JSON):
        return pa.field(name, pa.string()), lambda raw: raw.cast(pa.string())
    like = serde.exact if serde.declared is None else serde.declared
    if serde == BYTES or like is None:
        return pa.field(name, pa.binary()), lambda raw: raw
    column = typed(like)
    by_field = _by_field(serde, like, column.type)
    return pa.field(name, column.type), by_field or (lambda raw: column.build(_objects(serde, raw)))


def _by_field(serde: Serde[Any], like: Any, kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    """Reads JSON objects into a column per field, without making the objects; ``None`` where that cannot be."""
    decoder, fields = json_decoder(serde), fields_of(like)
    if decoder is None or decoder.type is not like or not fields or any(f.type not in _PLAIN_TYPES for f in kind):
        return None
    if why_not_projected(like, list(fields)) is not None:
        return None
    projection = JsonProjection(like, list(fields), serde.deserialize)

    def read(raw: pa.Array) -> pa.Array:
        found, failed = projection.read(bytes_column(raw))
        if failed:
            raise failed[0][1]
        arrays = [_array(found[f.name], f.type) for f in kind]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=raw.is_null() if raw.null_count else None)

    return read


def _array(column: Column, kind: pa.DataType) -> pa.Array:
    if isinstance(column, NumberColumn):
        return pa.array(column.array, kind, mask=column.nulls)
    assert isinstance(column, CodedColumn)
    return pa.array(column.values, kind).take(pa.array(column.codes))


def _objects(serde: Serde[Any], raw: pa.Array) -> list[Any]:
    read = serde.deserialize
    return [None if data is None else read(data) for data in raw.to_pylist()]


def _numbers(raw: pa.Array, layout: str, kind: pa.DataType) -> pa.Array:
    """Numbers of fixed size, as the machine has them."""
    size = np.dtype(layout).itemsize
    wrong = pc.any(pc.not_equal(pc.binary_length(raw), size)).as_py()
    if wrong:
        raise ValueError(f"not every value has the {size} bytes of a number")
    column = bytes_column(raw.fill_null(b"\x00" * size) if raw.null_count else raw)
    data = memoryview(column.data)[int(column.offsets[0]) : int(column.offsets[-1])]
    numbers = np.frombuffer(data, layout).astype(np.dtype(layout).newbyteorder("="))
    return pa.array(numbers, kind, mask=np.asarray(raw.is_null()) if raw.null_count else None)


def _windowed(serde: WindowedSerde, name: str) -> tuple[list[pa.Field], Decode]:
    inner, decode = _single(serde.inner, name)
    write = serde.inner.serialize

    def columns(raw: pa.Array) -> list[pa.Array]:
        found = _objects(serde, raw)
        keys = pa.array([None if w is None else write(w.key) for w in found], pa.binary())
        starts, ends = ([None if w is None else getattr(w, at) for w in found] for at in ("start_ms", "end_ms"))
        return [decode(keys), times(starts), times(ends)]

    return [inner, pa.field(WINDOW_START, TIMESTAMP), pa.field(WINDOW_END, TIMESTAMP)], columns


def times(milliseconds: Sequence[int | None] | Any) -> pa.Array:
    """Milliseconds as Spark's timestamps."""
    return pc.multiply(pa.array(milliseconds, pa.int64()), 1000).cast(TIMESTAMP)

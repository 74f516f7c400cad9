"""Keys and values of the log as typed columns, by their serdes.

Bytes, strings, numbers and untyped JSON (as text) are passed on as buffers. Typed JSON becomes a struct of its
class's fields; windowed keys become the inner key and two more columns. Values of a user's serde that does not
declare a type stay bytes.
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
from penstock.streams.spark.frames.types import TIMESTAMP, typed

Decode = Callable[[pa.Array], list[pa.Array]]
"""Converts binary values (or null) to one array per field."""
_NUMBERS = {INT.name: (">i8", pa.int64()), INT32.name: (">i4", pa.int32()), FLOAT.name: (">f8", pa.float64())}
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
    return pa.field(name, column.type), lambda raw: column.build(_objects(serde, raw))


def _objects(serde: Serde[Any], raw: pa.Array) -> list[Any]:
    read = serde.deserialize
    return [None if data is None else read(data) for data in raw.to_pylist()]


def _numbers(raw: pa.Array, layout: str, kind: pa.DataType) -> pa.Array:
    """Numbers of fixed size, as the machine has them."""
    size = np.dtype(layout).itemsize
    wrong = pc.any(pc.not_equal(pc.binary_length(raw), size)).as_py()
    if wrong:
        raise ValueError(f"not every value has the {size} bytes of a number")
    filled = raw.fill_null(b"\x00" * size) if raw.null_count else raw
    numbers = np.frombuffer(b"".join(filled.to_pylist()), layout).astype(np.dtype(layout).newbyteorder("="))
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

"""Convert rows of a DataFrame to changelog records of a store: serdes write keys and values after checking their types, and
each row goes to the task that the application's own records of that key go to."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.state.errors import SerdeError, SettingsError
from penstock.state.serdes.partitioner import partition_for
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.handover.initial_state import ROWS_SCHEMA
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.spark.frames.decoding import WINDOW_END, WINDOW_START
from penstock.streams.spark.frames.encoding import cell_writer, stamp_ms
from penstock.streams.spark.frames.request import store_of

_LONG = struct.Struct(">q")
_SEQUENCE = bytes(4)
_NEEDED = {
    "key_value": ("key", "value"),
    "window": ("key", "value", WINDOW_START),
    "key_window": ("key", "value", WINDOW_START),
    "session": ("key", "value", WINDOW_START, WINDOW_END),
}


@dataclasses.dataclass(frozen=True)
class StateEncoding:
    """How the rows of a store are written. ``number``: of the store in its job. ``tasks``: of its sub-topology.
    ``now_ms``: the time of rows without one."""

    topology: ShippedTopology
    store: str
    number: int
    tasks: int
    now_ms: int


def check_columns(spec: StoreSpec, columns: Sequence[str]) -> None:
    """Raises ``SettingsError`` for a store that takes no state from rows, and for columns that are missing."""
    if spec.source_topic is not None:
        raise SettingsError(
            f"store {spec.name} is the table of {spec.source_topic}, which is its changelog; write the rows to that topic "
            "(write_topic)"
        )
    if not spec.changelog:
        raise SettingsError(f"store {spec.name} has no changelog, so its state would not outlive a worker's folder")
    if spec.kind not in _NEEDED:
        raise SettingsError(f"store {spec.name} is of kind {spec.kind}; rows can become: {', '.join(_NEEDED)}")
    if missing := [name for name in _NEEDED[spec.kind] if name not in columns]:
        raise SettingsError(
            f"the frame for store {spec.name} has no column {', '.join(missing)}; it has: {', '.join(columns)}"
        )


def encode_state(form: StateEncoding, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with ``key``, ``value``, perhaps ``timestamp``, and the window's ends where the store has them: ``ROWS_SCHEMA``.
    Raises ``SerdeError`` naming the first row that does not fit."""
    spec = store_of(form.topology.load(), form.store)
    write_key, write_value = cell_writer(spec.key_serde, "key"), cell_writer(spec.value_serde, "value")
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        count = batch.num_rows
        for name in _NEEDED[spec.kind]:
            if None in columns[name]:
                raise SerdeError(
                    f"column {name} of the frame for store {spec.name} is null in a row; state has no nulls"
                )
        keys = [write_key(k) for k in columns["key"]]
        stamps = [form.now_ms if t is None else stamp_ms(t) for t in columns.get("timestamp", [None] * count)]
        arrays = [
            [partition_for(k, form.tasks) for k in keys],
            [form.number] * count,
            stamps,
            _logged(spec, keys, columns),
            [write_value(v) for v in columns["value"]],
        ]
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(arrays, ROWS_SCHEMA, strict=True)], schema=ROWS_SCHEMA
        )


def _logged(spec: StoreSpec, keys: list[bytes], columns: dict[str, list[Any]]) -> list[bytes]:
    """The keys as the changelog has them."""
    if spec.kind == "key_value":
        return keys
    starts = _longs(columns[WINDOW_START])
    if spec.kind == "session":
        return [k + end + start for k, end, start in zip(keys, _longs(columns[WINDOW_END]), starts, strict=True)]
    return [k + start + _SEQUENCE for k, start in zip(keys, starts, strict=True)]


def _longs(times: list[datetime]) -> list[bytes]:
    return [_LONG.pack(stamp_ms(at) or 0) for at in times]

"""Rows of a frame become the entries that a store of each kind holds, and are read back as the same rows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.state.errors import SerdeError, SettingsError
from penstock.state.recovery.changelog import History
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.batch.last_changes import LastChanges
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.frames.request import store_of
from penstock.streams.spark.frames.state_encoding import StateEncoding, check_columns, encode_state
from penstock.streams.spark.frames.store_columns import StoreColumns
from penstock.streams.spark.frames.types import TIMESTAMP
from penstock.streams.spark.shipping import ship
from penstock.topologies.graph.topology import Topology

TASKS = 3


def counted() -> Topology:
    """Stores of all kinds that take rows, and two that do not."""
    builder = ps.StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.count(name="counts")
    grouped.windowed_by(ps.tumbling("10ms", grace="1d")).count(name="windows")
    grouped.windowed_by(ps.session("5ms", grace="1d")).count(name="sessions")
    builder.table("rows", name="rows")
    builder.stream("in").join(builder.stream("other"), lambda a, b: a, within="1s", grace="1s", name="met")
    return builder.build()


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


ROWS: list[dict[str, Any]] = [
    {"key": "b", "value": 1, "timestamp": at(17), "window_start": at(10), "window_end": at(20)},
    {"key": "a", "value": 2, "timestamp": at(1700), "window_start": at(1700), "window_end": at(1710)},
    {"key": "a", "value": 3, "timestamp": at(29), "window_start": at(20), "window_end": at(30)},
]


@pytest.mark.parametrize(
    ("store", "columns", "count"),
    [
        ("counts", ("key", "value", "timestamp"), 2),
        ("windows", ("key", "window_start", "window_end", "value", "timestamp"), 3),
        ("sessions", ("key", "window_start", "window_end", "value", "timestamp"), 3),
    ],
)
def test_what_is_written_is_read_back(tmp_path: Path, store: str, columns: tuple[str, ...], count: int) -> None:
    spec = store_of(counted(), store)
    given = [{name: row[name] for name in columns} for row in ROWS[:count]]
    types = {"key": pa.string(), "value": pa.int64()}
    batch = pa.RecordBatch.from_pylist(given, pa.schema([(name, types.get(name, TIMESTAMP)) for name in columns]))
    check_columns(spec, columns)
    (rows,) = encode_state(StateEncoding(ship(counted), store, 7, TASKS, 5), [batch])
    assert rows.column("place").to_pylist() == [partition_for(row["key"].encode(), TASKS) for row in given]
    assert set(rows.column("store").to_pylist()) == {7}
    changes = LastChanges(spec, History(spec), tmp_path)
    keys, values, times = (rows.column(name).to_pylist() for name in ("key", "value", "timestamp_ms"))
    changes.put(Chunk("log", 0, range(count), keys, values, times))
    entries = [(key, value) for key, value in changes.sorted() if value is not None]
    (found,) = StoreColumns(spec, columns).batches(0, entries)

    def order(row: dict[str, Any]) -> tuple[str, Any]:
        return row["key"], row["timestamp"]

    assert sorted(found.to_pylist(), key=order) == sorted(given, key=order)


def test_rows_without_a_time_get_that_of_the_job() -> None:
    batch = pa.RecordBatch.from_pylist([{"key": "a", "value": 1}])
    (rows,) = encode_state(StateEncoding(ship(counted), "counts", 0, TASKS, 5), [batch])
    assert rows.column("timestamp_ms").to_pylist() == [5]


def test_stores_and_columns_that_do_not_fit_are_refused() -> None:
    topology = counted()
    with pytest.raises(SettingsError, match="no column window_start; it has: key, value"):
        check_columns(store_of(topology, "windows"), ["key", "value"])
    with pytest.raises(SettingsError, match="is the table of rows"):
        check_columns(store_of(topology, "rows"), ["key", "value"])
    buffer = next(spec.name for spec in topology.stores if spec.kind == "list")
    with pytest.raises(SettingsError, match="is of kind list"):
        check_columns(store_of(topology, buffer), ["key", "value"])
    batch = pa.RecordBatch.from_pylist(
        [{"key": "a", "value": None}], pa.schema([("key", pa.string()), ("value", pa.int64())])
    )
    with pytest.raises(SerdeError, match="null in a row"):
        list(encode_state(StateEncoding(ship(counted), "counts", 0, TASKS, 5), [batch]))

"""Keys, values and entries as typed Arrow columns, and back."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.state import native
from penstock.state.errors import SerdeError, SettingsError
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.serde import INT32, JSON, Serde, optional, serde_of
from penstock.state.serdes.window_keys import spanning_serde, windowed_serde
from penstock.state.stores.store import StoreSpec
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.frames import store_columns
from penstock.streams.spark.frames.decoding import SerdeColumns
from penstock.streams.spark.frames.encoding import TopicEncoding, encode_rows
from penstock.streams.spark.frames.store_columns import StoreColumns
from penstock.streams.spark.frames.topic_columns import TopicColumns
from penstock.streams.spark.frames.types import typed
from penstock.streams.spark.shipping import ship_value


class Part(msgspec.Struct, frozen=True):
    at: datetime.datetime
    amounts: dict[str, float]


class Order(msgspec.Struct, frozen=True):
    id: int
    parts: list[Part]
    either: int | str
    note: str | None = None
    again: Order | None = None  # a type that contains itself


def decoded(serde: Serde[Any], values: list[Any]) -> list[list[Any]]:
    raw = pa.array([None if v is None else serde.serialize(v) for v in values], pa.binary())
    return [column.to_pylist() for column in SerdeColumns(serde, "value").decode(raw)]


class Plain(msgspec.Struct, frozen=True):
    name: str
    n: int
    x: float
    ok: bool
    note: str | None = None
    count: int | None = 3


plain = st.none() | st.builds(
    Plain,
    st.text(max_size=3),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none() | st.text(max_size=3),
    st.none() | st.integers(-5, 5),
)


@pytest.mark.parametrize("choice", ["auto", "off"])
@given(st.lists(plain, max_size=40), st.integers(0, 5))
def test_plain_fields_read_as_columns_are_those_of_the_objects(
    choice: native.Choice, rows: list[Plain | None], skipped: int
) -> None:
    serde = serde_of(Plain)
    raw = pa.array([None if row is None else serde.serialize(row) for row in rows], pa.binary())[skipped:]
    native.choose(choice)
    try:
        (column,) = SerdeColumns(serde, "value").decode(raw)
    finally:
        native.choose("auto")
    assert column.to_pylist() == [None if row is None else msgspec.structs.asdict(row) for row in rows[skipped:]]
    assert column.type == typed(Plain).type


def test_an_object_that_is_not_of_the_type_is_named() -> None:
    good = b'{"name":"a","n":1,"x":1,"ok":true}'
    with pytest.raises(SerdeError, match=r"cannot read b'\{\}' \(place 1 of the batch\)"):
        SerdeColumns(serde_of(Plain), "value").decode(pa.array([good, b"{}"], pa.binary()))
    huge = b'{"name":"a","n":9223372036854775808,"x":1,"ok":true}'
    with pytest.raises(SerdeError, match="9223372036854775808"):
        SerdeColumns(serde_of(Plain), "value").decode(pa.array([good, huge], pa.binary()))


numbers = st.lists(st.none() | st.integers(-(1 << 31), (1 << 31) - 1))


@given(numbers, st.lists(st.none() | st.text()), st.lists(st.none() | st.floats(allow_nan=False)))
def test_plain_serdes_give_what_they_read(ints: Any, texts: Any, floats: Any) -> None:
    for serde, values in ((serde_of(int), ints), (INT32, ints), (serde_of(str), texts), (serde_of(float), floats)):
        assert decoded(serde, values) == [values]


def test_untyped_json_is_its_text_and_optional_values_are_null_or_there() -> None:
    assert decoded(JSON, [{"a": [1, None]}, None]) == [['{"a":[1,null]}', None]]
    assert decoded(optional(serde_of(int)), [(5,), (None,), None]) == [[5, None, None]]


def test_typed_json_is_a_struct_of_its_fields() -> None:
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    order = Order(1, [Part(at, {"x": 1.5}), Part(at, {})], "b", None, Order(2, [], 3))
    ((found, nothing),) = decoded(serde_of(Order), [order, None])
    assert nothing is None
    assert found == {
        "id": 1,
        "parts": [{"at": at, "amounts": [("x", 1.5)]}, {"at": at, "amounts": []}],
        "either": '"b"',
        "note": None,
        "again": '{"id":2,"parts":[],"either":3,"note":null,"again":null}',
    }


def test_windowed_keys_have_columns_of_their_window() -> None:
    for serde in (windowed_serde(str, 60_000), spanning_serde(str)):
        names = [f.name for f in SerdeColumns(serde, "key").fields]
        keys, starts, ends = decoded(serde, [ps.Windowed("k", 120_000, 180_000), None])
        assert names == ["key", "window_start", "window_end"] and keys == ["k", None]
        assert [s and s.timestamp() for s in starts] == [120, None] and ends[0].timestamp() == 180


def test_bytes_that_a_serde_cannot_read_are_told_with_their_place() -> None:
    raw = pa.array([b"\x00" * 8, b"short"], pa.binary())
    with pytest.raises(SerdeError, match=r"serde int cannot read b'short' \(place 1 of the batch\)"):
        SerdeColumns(serde_of(int), "value").decode(raw)
    chunk = Chunk("t", 3, range(7, 9), [b"k", b"k"], [b"\x00" * 8, b"short"], [1, 2])
    with pytest.raises(SerdeError, match="t partition 3, offsets 7 to 8, value"):
        TopicColumns(serde_of(str), serde_of(int)).batch(chunk)


def test_what_is_not_asked_for_is_not_decoded() -> None:
    chunk = Chunk("t", 3, range(7, 9), [b"a", b"b"], [b"no number", b""], [1, 2], [(), (("h", b"v"),)])
    batch = TopicColumns(serde_of(str), serde_of(int), ["offset", "key"]).batch(chunk)
    assert batch.to_pylist() == [{"key": "a", "offset": 7}, {"key": "b", "offset": 8}]
    with pytest.raises(
        SettingsError, match="no column colour; the columns are: key, value, timestamp, partition, offset"
    ):
        TopicColumns(serde_of(str), serde_of(int), ["colour"])
    assert len(chunk.in_columns().before(8)) == 1 and chunk.before(7).keys == []


def driver_stores(builder: ps.StreamsBuilder, records: list[tuple[str, str, int]]) -> Iterator[tuple[StoreSpec, Any]]:
    """Each store of a topology that took these records: its entries by store key."""
    with ps.TopologyTestDriver(builder.build()) as driver:
        for key, value, ms in records:
            driver.pipe("in", key, value, timestamp_ms=ms)
        for task in driver.tasks.values():
            for name, state in task.stores.items():
                yield state.spec, list(task.backend.range(name, None, None))


RECORDS = [("a", "1", 1_000), ("b", "2", 2_000), ("a", "3", 70_000), ("a", "4", 71_000)]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (None, [("a", None, None, 3), ("b", None, None, 1)]),
        (ps.tumbling("1m", grace="1d"), [("a", 0, 60, 1), ("a", 60, 120, 2), ("b", 0, 60, 1)]),
        (ps.session("5s", grace="1d"), [("a", 1, 1, 1), ("a", 70, 71, 2), ("b", 2, 2, 1)]),
    ],
)
def test_the_entries_of_a_store_have_their_key_value_and_window(windows: Any, expected: Any) -> None:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    (grouped if windows is None else grouped.windowed_by(windows)).count(name="counts")
    ((spec, entries),) = driver_stores(builder, RECORDS)
    rows = [r for b in StoreColumns(spec).batches(4, entries) for r in b.to_pylist()]
    seconds = [(r.get("window_start"), r.get("window_end")) for r in rows]
    found = [
        (r["key"], *(None if s is None else round(s.timestamp()) for s in span), r["value"])
        for r, span in zip(rows, seconds, strict=True)
    ]
    assert sorted(found) == expected and {r["partition"] for r in rows} == {4}


def test_versions_know_until_when_they_held_wherever_groups_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = StoreSpec("v", "versioned", serde_of(str), optional(serde_of(str)), retention_ms=1000)
    entries = [
        (b"k" + ms.to_bytes(8, "big"), ms.to_bytes(8, "big") + (b"\x00" if ms == 3000 else b"\x01v%d" % ms))
        for ms in (1000, 2000, 3000, 5000)
    ]
    entries.append((b"z" + (7).to_bytes(8, "big"), (7).to_bytes(8, "big") + b"\x01z"))
    for rows_per_group in (1, 2, 3, 100):
        monkeypatch.setattr(store_columns, "_BATCH_ROWS", rows_per_group)
        rows = [r for b in StoreColumns(spec).batches(0, entries) for r in b.to_pylist()]
        held = [(r["value"], r["valid_from"].timestamp(), r["valid_to"] and r["valid_to"].timestamp()) for r in rows]
        assert held == [("v1000", 1, 2), ("v2000", 2, 3), ("v5000", 5, None), ("z", 0.007, None)]


def form(key: Any, value: Any) -> TopicEncoding:
    return TopicEncoding("t", 7, None, "", ship_value(key), ship_value(value), 99)


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.integers(-5, 5)), max_size=30))
def test_rows_become_the_bytes_and_partitions_of_the_producers(rows: list[tuple[Any, Any]]) -> None:
    batch = pa.record_batch(
        {"key": pa.array([k for k, _ in rows], pa.string()), "value": pa.array([v for _, v in rows], pa.int64())}
    )
    (made,) = encode_rows(form(str, int), [batch])
    for (key, value), row in zip(rows, made.to_pylist(), strict=True):
        assert row["key"] == (None if key is None else key.encode()) and row["timestamp_ms"] == 99
        assert row["value"] == (None if value is None else serde_of(int).serialize(value))
        assert key is None or row["place"] == partition_for(row["key"], 7)


def test_rows_that_do_not_fit_the_type_are_refused_with_what_they_are() -> None:
    batch = pa.record_batch({"key": ["k"], "value": [{"at": "no time", "amounts": None}]})
    with pytest.raises(SerdeError, match=r"column value: serde json:Part cannot write .*no time.*select columns"):
        list(encode_rows(form(str, Part), [batch]))
    with pytest.raises(SettingsError, match=r"neither reads nor writes t, .*give key= and value="):
        list(islice(encode_rows(form(None, None), [batch]), 1))
    assert typed(np.ndarray).type == pa.string()

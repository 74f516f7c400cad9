"""Compaction's own steps, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.changelog import to_changelog_columns
from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.restore import ChangelogFacts
from penstock.state.store import StoreKind
from penstock.streams.spark.compact_executor import CompactTarget, StoreForm, merge_changes, to_entries

FACTS = ChangelogFacts("log", "id", "cluster", 0, 100, True, 1000)


def target(kind: StoreKind) -> CompactTarget:
    form = StoreForm("store", kind, None, 10)
    return CompactTarget(3, "app", form, 0, FACTS, 0, 100, None, 1, None, -1)


def records(keys: list[bytes | None], values: list[bytes | None], first: int = 0) -> pa.RecordBatch:
    count = len(keys)
    return pa.record_batch(
        {
            "topic": pa.array(["log"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp_ms": pa.array(range(count), pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def test_each_key_travels_once_per_batch_with_its_last_value() -> None:
    batches = [records([b"a", b"b", b"a"], [b"1", b"2", None]), records([b"b"], [b"3"], first=3)]
    rows = [r for b in to_entries({TopicPartition("log", 0): [target("key_value")]}, batches) for r in b.to_pylist()]
    assert [(r["place"], r["store_key"], r["change"], r["value"] and r["value"][8:]) for r in rows] == [
        (3, b"a", 2, None),
        (3, b"b", 2, b"2"),
        (3, b"b", 3, b"3"),
    ]


def test_window_keys_are_turned_round_and_foreign_keys_are_refused() -> None:
    store_key = (5000).to_bytes(8, "big") + b"key"
    (logged,), _ = to_changelog_columns(StoreForm("store", "window", None, 10).spec(), [store_key], [None])
    given_ = {TopicPartition("log", 0): [target("window")]}
    (batch,) = to_entries(given_, [records([logged], [b"v"])])
    assert batch.column("store_key").to_pylist() == [store_key]
    with pytest.raises(IncompatibleError, match="no such store"):
        list(to_entries(given_, [records([b"short"], [b"v"])]))


def test_versions_that_came_too_late_are_left_out_as_the_table_left_them_out() -> None:
    form = StoreForm("rates", "versioned", "log", 2)
    given_ = {TopicPartition("log", 0): [CompactTarget(3, "app", form, 0, FACTS, 0, 100, None, 1, None, -1)]}
    first, second = records([b"a", b"b"], [b"1", b"2"]), records([b"a", b"b", b"c"], [b"3", b"4", b"5"], first=2)
    second = second.set_column(3, "timestamp_ms", pa.array([9, 6, 7], pa.int64()))
    found = [r["store_key"] for b in to_entries(given_, [first, second]) for r in b.to_pylist()]
    assert found == [k + t.to_bytes(8, "big") for k, t in ((b"a", 0), (b"b", 1), (b"a", 9), (b"c", 7))]


keys = st.binary(max_size=2)


@given(st.dictionaries(keys, st.binary(max_size=2)), st.dictionaries(keys, st.none() | st.binary(max_size=2)))
def test_changes_over_a_base_are_what_a_dict_update_gives(
    base: dict[bytes, bytes], changes: dict[bytes, bytes | None]
) -> None:
    expected = {k: v for k, v in {**base, **changes}.items() if v is not None}
    new: Iterator[tuple[bytes, bytes | None]] = iter(sorted(changes.items()))
    assert list(merge_changes(iter(sorted(base.items())), new)) == sorted(expected.items())

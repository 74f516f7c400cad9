"""Compaction's own steps, without Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import to_changelog_columns
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import StoreKind
from penstock.streams.batch.compact_executor import (
    CompactTarget,
    Seen,
    StoreForm,
    merge_changes,
    to_entries,
    write_snapshot,
)

FACTS = ChangelogFacts("log", "id", "cluster", 0, 100, True, 1000)


def target(kind: StoreKind) -> CompactTarget:
    form = StoreForm("store", kind, None, 10)
    return CompactTarget(3, "app", form, 0, FACTS, 0, 100, None, 1, None, -1)


def records(
    keys: list[bytes | None], values: list[bytes | None], first: int = 0, times: list[int] | None = None
) -> pa.RecordBatch:
    count = len(keys)
    return pa.record_batch(
        {
            "topic": pa.array(["log"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp_ms": pa.array(range(count) if times is None else times, pa.int64()),
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


LOG = TopicPartition("log", 0)
VERSIONED = dataclasses.replace(target("versioned"), form=StoreForm("store", "versioned", "log", 1000))


def versions(batches: list[pa.RecordBatch], of: CompactTarget = VERSIONED, **how: str) -> dict[bytes, bytes]:
    """The valid-froms of what is kept, by key."""
    out = to_entries({LOG: [of]}, batches, **how)
    return {
        k: v[9:] for b in out for k, v in zip(*(b.column(c).to_pylist() for c in ("store_key", "value")), strict=True)
    }


def version(key: bytes, valid_from: int) -> bytes:
    return key + valid_from.to_bytes(8, "big")


@pytest.mark.parametrize("cut", range(5))
def test_versions_that_the_table_did_not_take_are_left_out_wherever_batches_are_cut(cut: int) -> None:
    rows = [(b"k", b"1", 1_000), (b"z", b"x", 10_000), (b"k", b"late", 8_999), (b"k", b"2", 9_000)]
    batches = [
        records([k for k, _, _ in part], [v for _, v, _ in part], first, [t for _, _, t in part])
        for first, part in ((0, rows[:cut]), (cut, rows[cut:]))
        if part
    ]
    assert versions(batches) == {
        version(b"k", 1_000): b"1",
        version(b"z", 10_000): b"x",
        version(b"k", 9_000): b"2",
    }


def test_versions_over_a_snapshot_are_judged_by_the_latest_one_in_it(tmp_path: Path) -> None:
    repository = open_repository(tmp_path)
    entries = [(version(key, ts), ts.to_bytes(8, "big") + b"\x01v") for key, ts in ((b"a", 10_000), (b"b", 10))]
    base = write_snapshot(repository, dataclasses.replace(VERSIONED, end=2), iter(entries), 1 << 20)
    repository.publish(base)
    over = dataclasses.replace(VERSIONED, start=2, base=base)
    batch = records([b"k", b"k"], [b"late", b"1"], 2, [8_999, 9_000])
    assert versions([batch], over, repository=str(tmp_path)) == {version(b"k", 9_000): b"1"}


keys = st.binary(max_size=2)


@given(st.dictionaries(keys, st.binary(max_size=2)), st.dictionaries(keys, st.none() | st.binary(max_size=2)))
def test_changes_over_a_base_are_what_a_dict_update_gives(
    base: dict[bytes, bytes], changes: dict[bytes, bytes | None]
) -> None:
    expected = {k: v for k, v in {**base, **changes}.items() if v is not None}
    new: Iterator[tuple[bytes, bytes | None]] = iter(sorted(changes.items()))
    assert list(merge_changes(iter(sorted(base.items())), new)) == sorted(expected.items())


def test_a_manifest_says_how_old_the_entries_are_and_how_many_deletions_came(tmp_path: Path) -> None:
    repository = open_repository(tmp_path)
    entries = [(b"%d" % ms, ms.to_bytes(8, "big", signed=True) + b"v") for ms in (5, -7, 900, 3)]
    changes: list[tuple[bytes, bytes | None]] = [*entries, (b"gone", None), (b"too", None)]
    seen = Seen()
    merged = merge_changes(iter([]), seen.changes(iter(sorted(changes))))
    manifest = write_snapshot(repository, target("key_value"), merged, 1 << 20, seen)
    assert (manifest.oldest_ms, manifest.newest_ms, manifest.dropped, manifest.entries) == (-7, 900, 2, 4)
    repository.publish(manifest)
    assert repository.newest(manifest.of) == manifest
    empty = write_snapshot(repository, target("key_value"), iter([]), 1 << 20)
    assert (empty.oldest_ms, empty.dropped) == (None, 0)

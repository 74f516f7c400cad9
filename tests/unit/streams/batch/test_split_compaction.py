"""Changelogs that are compacted in pieces: which are cut, and that the parts together are what the last changes are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.recovery.position import decode_position
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.snapshots.repository import new_attempt, open_repository
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, CompactTarget, StoreForm, write_snapshot
from penstock.streams.batch.split_compaction import KeyRange, joined, pieces, write_parts

FACTS = ChangelogFacts("log", "id", "cluster", 0, 100, True, 1000)
FORM = StoreForm("store", "key_value", None, None)


def target(place: int, start: int, end: int) -> CompactTarget:
    return CompactTarget(place, "app", FORM, place, FACTS, start, end, None, 1, None, -1)


def cut(*targets: CompactTarget, slots: int) -> dict[int, list[tuple[int, int]]]:
    """The ranges of the pieces of each place."""
    found: dict[int, list[tuple[int, int]]] = {}
    for piece in pieces(targets, slots, piece_records=10, worth=4):
        assert piece.number == len(found.setdefault(piece.target.place, []))
        found[piece.target.place].append((piece.start, piece.end))
    return found


def test_only_a_changelog_of_several_shares_is_cut() -> None:
    lone, even = target(0, 7, 1_007), [target(place, 0, 1_000) for place in range(8)]
    assert cut(lone, slots=4) == {0: [(7, 257), (257, 507), (507, 757), (757, 1_007)]}
    assert cut(lone, slots=3) == {}, "three executors gain less than the exchange costs"
    assert cut(*even, slots=8) == cut(*even, slots=2) == {}
    assert list(cut(*even, slots=64)) == list(range(8))
    assert list(cut(target(0, 0, 10_000), *even[1:3], slots=8)) == [0], "the others are one share, or less"
    assert cut(target(0, 0, 30), slots=100) == {}, "pieces would be too small"


def test_pieces_need_a_store_without_a_base_whose_records_stand_alone() -> None:
    lone = target(0, 0, 1_000)
    with TemporaryDirectory() as folder:
        base = write_snapshot(open_repository(folder), lone, iter(()), 1 << 20)
    versioned = dataclasses.replace(lone, form=StoreForm("store", "versioned", "log", 1_000))
    assert cut(dataclasses.replace(lone, base=base), slots=8) == cut(versioned, slots=8) == {}


keys = st.binary(max_size=2)
changes_of_a_piece = st.dictionaries(keys, st.none() | st.binary(max_size=2), max_size=6)


@given(st.lists(changes_of_a_piece, min_size=1, max_size=4), st.lists(keys, max_size=3), st.sampled_from([1, 1 << 20]))
def test_parts_together_are_the_last_changes(
    by_piece: list[dict[bytes, bytes | None]], bounds: list[bytes], file_bytes: int
) -> None:
    rows: list[tuple[bytes, int, bytes | None]] = sorted(
        (key, number, None if value is None else number.to_bytes(8, "big") + value)
        for number, piece in enumerate(by_piece)
        for key, value in piece.items()
    )
    last = {key: value for key, _, value in rows}
    edges = sorted({b"", *bounds})
    of = target(3, 0, 50)
    with TemporaryDirectory() as folder:
        repository, attempt = open_repository(folder), new_attempt(of.created_ms)
        parts = []
        for low, high in zip(edges, [*edges[1:], None], strict=True):
            mine = [row for row in rows if row[0] >= low and (high is None or row[0] < high)]
            if mine:
                (written,) = write_parts(folder, file_bytes, {3: of}, {3: attempt}, batches(mine))
                parts.append(msgspec.json.decode(written.column("part")[0].as_py(), type=KeyRange))
        manifest = joined(repository, of, attempt, parts[::-1])
        repository.publish(manifest)
        assert repository.newest(of.of) == manifest
        backend = RocksDBBackend(Path(folder) / "db", ["store"])
        try:
            backend.ingest("store", repository.fetch(manifest, Path(folder) / "files"))
            assert dict(backend.range("store", None, None)) == {k: v for k, v in last.items() if v is not None}
            assert decode_position(backend.position("store") or b"").changelog_offset == 50
        finally:
            backend.close()
        stamps = [int.from_bytes(v[:8], "big") for v in last.values() if v is not None]
        assert (manifest.oldest_ms, manifest.newest_ms) == (min(stamps, default=None), max(stamps, default=None))
        assert manifest.dropped == sum(v is None for v in last.values())
        # A part that a repeated task wrote before goes with the snapshot.
        newer = write_snapshot(repository, dataclasses.replace(of, end=60, created_ms=2), iter(()), 1 << 20)
        repository.publish(newer)
        removed = repository.prune(of.of, keep=1, now_ms=3)
        assert {file.name for file in manifest.files} <= set(removed)


def batches(rows: list[tuple[bytes, int, bytes | None]]) -> list[pa.RecordBatch]:
    """The rows of the place 3, cut in two."""
    found = []
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        columns = [[3] * len(part), *([row[i] for row in part] for i in range(3))]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, ENTRY_SCHEMA, strict=True)]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA))
    return found


def test_keys_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    rows: list[tuple[bytes, int, bytes | None]] = [(b"b", 0, bytes(8)), (b"a", 0, bytes(8))]
    with pytest.raises(ValueError, match="ascend"):
        list(write_parts(str(tmp_path), 1 << 20, {3: target(3, 0, 9)}, {3: new_attempt(1)}, batches(rows)))

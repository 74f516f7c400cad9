"""The last change of each key is what a dictionary has, as columns or rows, in memory or over files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.errors import IncompatibleError
from penstock.state.recovery.changelog import History, from_changelog_columns, to_changelog_columns
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.batch.last_changes import LastChanges
from penstock.streams.ports.chunk import Chunk

Record = tuple[bytes, bytes | None, int]


def spec_of(kind: StoreKind) -> StoreSpec:
    return StoreSpec("store", kind, BYTES, BYTES, retention_ms=None if kind == "key_value" else 10)


def chunk_of(records: list[Record], first: int, columns: bool) -> Chunk:
    keys: list[bytes | None] = [k for k, _, _ in records]
    times = [t for _, _, t in records]
    chunk = Chunk("log", 0, range(first, first + len(records)), keys, [v for _, v, _ in records], times)
    return chunk.in_columns() if columns else chunk


def stored_key(kind: StoreKind, key: bytes, at_ms: int) -> bytes:
    """A store key of this kind."""
    time = at_ms.to_bytes(8, "big")
    return {"key_value": key, "window": time + key, "session": bytes(8) + key + time + time}[kind]


keys = st.sampled_from([b"", b"a", b"ab", b"b", b"\xff"])
kinds = st.sampled_from(["key_value", "window", "session"])
rows = st.lists(st.tuples(keys, st.integers(0, 3), st.none() | st.binary(max_size=3), st.integers(-2, 1 << 40)))


@given(kinds, st.lists(st.tuples(rows.filter(bool), st.booleans()), max_size=6), st.booleans(), st.booleans())
def test_it_is_what_a_dictionary_has(
    kind: StoreKind, pieces: list[tuple[list[tuple[bytes, int, bytes | None, int]], bool]], full: bool, plain: bool
) -> None:
    spec = spec_of(kind)
    expected: dict[bytes, bytes | None] = {}
    with TemporaryDirectory() as folder:
        if plain:
            native.choose("off")
        try:
            changes = LastChanges(spec, History(spec), Path(folder) / "files", 0 if full else 1 << 20)
        finally:
            native.choose("auto")
        at = 0
        for piece, columns in pieces:
            stored = [stored_key(kind, key, time) for key, time, _, _ in piece]
            logged, _ = to_changelog_columns(spec, stored, [None] * len(stored))
            records = [(k, value, ms) for k, (_, _, value, ms) in zip(logged, piece, strict=True)]
            changes.put(chunk_of(records, at, columns))
            at += len(records)
            expected.update(from_changelog_columns(spec, logged, [r[1] for r in records], [r[2] for r in records]))
        assert list(changes.sorted()) == sorted(expected.items())
        assert (Path(folder) / "files").exists() == (full and bool(expected))


@pytest.mark.parametrize("columns", [False, True])
def test_a_record_that_no_such_store_wrote_is_refused(tmp_path: Path, columns: bool) -> None:
    spec = spec_of("window")
    good, _ = to_changelog_columns(spec, [stored_key("window", b"k", 5)], [None])
    for wrong in (b"short", good[0][:-1] + b"x"):
        with pytest.raises(IncompatibleError, match="no such store"):
            LastChanges(spec, History(spec), tmp_path).put(chunk_of([(good[0], b"v", 1), (wrong, b"v", 2)], 0, columns))

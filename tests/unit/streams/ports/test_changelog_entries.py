"""A chunk gives the entries of a store, the same from columns as from lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.errors import IncompatibleError
from penstock.state.recovery.changelog import History, from_changelog_columns
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import PackedPuts, StoreKind, StoreSpec, columns_of
from penstock.streams.ports.changelog_entries import entries_of
from penstock.streams.ports.chunk import Chunk

START = (1).to_bytes(8, "big")
needs_native = pytest.mark.skipif(native.compiled() is None, reason="columns need the compiled part; run make native")


def spec_of(kind: StoreKind, source: str | None = None) -> StoreSpec[Any]:
    return StoreSpec("s", kind, BYTES, BYTES, source_topic=source, retention_ms=None if kind == "key_value" else 10)


def chunk_of(keys: list[bytes | None], values: list[bytes | None], times: list[int] | None = None) -> Chunk:
    return Chunk("log", 0, range(len(keys)), keys, values, times or list(range(len(keys)))).in_columns()


ROWS = st.lists(
    st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=12), st.integers(-(1 << 63), (1 << 63) - 1))
)


@needs_native
@given(st.sampled_from(["key_value", "window"]), ROWS, st.integers(0, 3), st.integers(0, 3))
def test_columns_give_what_lists_give(
    kind: StoreKind, rows: list[tuple[bytes, bytes | None, int]], before: int, behind: int
) -> None:
    suffix = START + bytes(4) if kind == "window" else b""
    start = min(before, len(rows))
    stop = max(len(rows) - behind, start)
    chunk = chunk_of([key + suffix for key, _, _ in rows], [v for _, v, _ in rows], [at for _, _, at in rows])
    spec, part = spec_of(kind), chunk.part(start, stop)
    packed = entries_of(spec, History(spec), part)
    assert isinstance(packed, PackedPuts)
    assert dict(zip(*columns_of(packed), strict=True)) == dict(
        from_changelog_columns(spec, part.keys, part.values, part.timestamps)
    )


@pytest.mark.parametrize("kind", ["session", "key_window", "list"])
def test_other_kinds_are_read_one_by_one(kind: StoreKind) -> None:
    key = b"k" + START + START
    found = entries_of(spec_of(kind), History(spec_of(kind)), chunk_of([key[:-4] + bytes(4)], [b"v"]))
    assert isinstance(found, list)
    assert len(found) == 1


def test_null_keys_of_a_source_topic_are_skipped_in_columns_too() -> None:
    found = entries_of(spec_of("key_value", "t"), History(spec_of("key_value")), chunk_of([None, b"a"], [b"x", b"y"]))
    assert found == [(b"a", (1).to_bytes(8, "big") + b"y")]


@pytest.mark.parametrize("key", [None, b"", b"short", b"k" + START + b"\0\0\0\1"])
def test_records_of_another_store_are_refused_in_columns_too(key: bytes | None) -> None:
    with pytest.raises(IncompatibleError, match="belongs to this application"):
        entries_of(spec_of("window"), History(spec_of("window")), chunk_of([key], [b"v"]))

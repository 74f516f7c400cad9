"""Rows held as the log's bytes, and what becomes of them at a commit."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.logged_rows import LoggedRows, LoggedStoreView, Rows
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import PackedPuts, StampedPuts, StoreSpec, StoreWrites

SPEC = StoreSpec("rows", "key_value", BYTES, BYTES, source_topic="table")


def rows(*values: bytes | None, before: bytes = b"") -> Rows:
    """A column of these values, whose data begins behind other bytes."""
    ends = np.cumsum([len(before), *(len(value or b"") for value in values)]).astype(np.int64)
    nulls = np.array([value is None for value in values], np.uint8) if None in values else None
    return Rows(before + b"".join(value or b"" for value in values), ends, nulls)


def times(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_columns_are_put_one_after_the_other() -> None:
    held = LoggedRows()
    held.add(rows(b"a", b"bb", before=b"xyz"), rows(b"", b"one", before=b"?"), times(1, -2))
    held.add(rows(b"a"), rows(b"two"), times(1 << 40))
    puts = held.puts()
    assert isinstance(puts, StampedPuts)
    assert (len(held), held.used_bytes > 0) == (3, True)
    assert puts.listed().keys == [b"a", b"bb", b"a"]
    stamps = [n.to_bytes(8, "big", signed=True) for n in (1, -2, 1 << 40)]
    assert puts.listed().values == [stamps[0], stamps[1] + b"one", stamps[2] + b"two"]
    assert held.listed() == ([b"a", b"bb", b"a"], [b"", b"one", b"two"], [1, -2, 1 << 40])
    held.clear()
    assert (len(held), held.used_bytes) == (0, 0)


def test_a_null_deletes_and_has_no_stamp() -> None:
    held = LoggedRows()
    held.add(rows(b"a"), rows(b"one"), times(5))
    held.add(rows(b"a", b"b", b"c"), rows(None, b"", None), times(6, 7, 8))
    puts = held.puts()
    assert isinstance(puts, PackedPuts)
    stamps = [n.to_bytes(8, "big") for n in (5, 7)]
    assert [*puts.listed().values] == [stamps[0] + b"one", None, stamps[1], None]
    assert held.listed()[1] == [b"one", None, b"", None]


def test_only_nulls() -> None:
    held = LoggedRows()
    held.add(rows(b"a", b"b"), rows(None, None), times(1, 2))
    assert [*held.puts().listed().values] == [None, None]


def test_what_came_may_change_afterwards() -> None:
    held = LoggedRows()
    data, ends = bytearray(b"ab"), times(0, 1, 2)
    held.add(Rows(data, ends, None), rows(b"", None), times(1, 2))
    data[:] = b"xx"
    ends[:] = 0
    assert held.listed()[0] == [b"a", b"b"]


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend([SPEC])


def commit(view: LoggedStoreView, backend: MemoryBackend) -> None:
    """Commit what the view has changed."""
    changes = view.packed_changes()
    keys, values = view.pending()[:2] if changes is None else changes.puts.listed()
    backend.commit([StoreWrites(SPEC.name, list(zip(keys, values, strict=True)), b"")])
    view.committed()


def test_the_last_record_of_a_key_counts(backend: MemoryBackend) -> None:
    view = LoggedStoreView(SPEC, backend)
    assert view.keep(rows(b"a", b"b", b"a"), rows(b"one", b"two", b"three"), times(1, 2, 3))
    commit(view, backend)
    assert view.get(b"a") == (b"three", 3)
    assert view.keep(rows(b"a"), rows(None), times(4))
    commit(view, backend)
    assert [*view.range()] == [(b"b", b"two", 2)]


def test_a_read_sees_them_and_ends_the_holding_until_the_commit(backend: MemoryBackend) -> None:
    view = LoggedStoreView(SPEC, backend)
    assert view.keep(rows(b"a", b"b"), rows(b"one", None), times(1, 2))
    assert (view.get(b"a"), view.get(b"b"), view.packed_changes()) == ((b"one", 1), None, None)
    assert not view.keep(rows(b"c"), rows(b"x"), times(3))
    commit(view, backend)
    assert [*view.range()] == [(b"a", b"one", 1)]


def test_what_is_discarded_was_never_there(backend: MemoryBackend) -> None:
    view = LoggedStoreView(SPEC, backend)
    assert view.keep(rows(b"a"), rows(b"one"), times(1))
    view.discard()
    assert (view.packed_changes(), view.get(b"a"), view.uncommitted_bytes()) == (None, None, 0)


def test_few_rows_do_not_drive_out_many_cached_ones(backend: MemoryBackend) -> None:
    view = LoggedStoreView(SPEC, backend)
    view.load(b"%d" % n for n in range(5))
    assert not view.keep(rows(b"a"), rows(b"one"), times(1))
    assert view.keep(rows(b"0", b"1"), rows(b"x", b"y"), times(1, 1))
    assert view.get(b"0") == (b"x", 1)

"""Counts per pane that the compiled part keeps: what the store gets, and when. For the answers: ``test_counted_panes``."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state import native
from penstock.state.serdes.serde import BYTES, INT, STRING
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView, window_floor
from penstock.topologies.operators.windows import packed_panes
from penstock.topologies.operators.windows.packed_panes import PackedPanes

SPEC = StoreSpec("panes", "window", BYTES, INT, window_size_ms=10, retention_ms=200)

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="this is of the compiled part")


class Opened:
    """Panes over an empty store."""

    def __init__(self) -> None:
        self.state = KeyValueStoreView(SPEC, MemoryBackend([SPEC]))
        self.panes = self.again()

    def again(self) -> PackedPanes:
        """New ones over the store as it is."""
        made = PackedPanes.of(self.state)
        assert made is not None
        self.panes = made
        return made

    def add(self, *rows: tuple[int, bytes, int, int]) -> bool:
        """Add counts: pane, key, count, timestamp."""
        keys = [start.to_bytes(8, "big") + name for start, name, _, _ in rows]
        return self.panes.add(keys, [row[2] for row in rows], [row[3] for row in rows])

    def window(self, low: int, high: int) -> dict[Any, tuple[int, int]]:
        """Count and timestamp by key."""
        keys, counts, times = self.panes.window(low, high)
        return dict(zip(keys.to_list(), zip(counts.tolist(), times.tolist(), strict=True), strict=True))

    def stored(self) -> dict[bytes, tuple[int, int]]:
        """What a reader of the store sees."""
        return {key: (count, ts) for key, count, ts in self.state.range()}


def entry(start: int, name: bytes) -> bytes:
    """A key of the store."""
    return start.to_bytes(8, "big") + name


def test_the_store_gets_nothing_before_somebody_reads_it() -> None:
    to = Opened()
    assert to.add((10, b"a", 2, 12), (20, b"a", 1, 21), (10, b"a", 1, 11))
    assert to.window(10, 30) == {b"a": (4, 21)}
    assert not to.state.dirty
    assert to.stored() == {entry(10, b"a"): (3, 12), entry(20, b"a"): (1, 21)}
    assert to.add((20, b"a", 1, 20))
    assert to.state.pending()[2] == [12, 21]
    assert to.stored()[entry(20, b"a")] == (2, 21)


def test_what_the_store_has_is_read_once_somebody_asks() -> None:
    to = Opened()
    to.add((10, b"a", 2, 12), (20, b"b", 5, 25))
    to.state.pending()
    to.state.expire_below(window_floor(20))
    to.again()
    assert (to.panes.in_use(), to.panes.first(0)) == (True, 20)
    assert to.window(0, 100) == {b"b": (5, 25)}
    to.state.committed()
    to.add((30, b"c", 1, 31))
    assert to.state.pending()[0] == [entry(30, b"c")], "it has the others"


def test_gone_panes_are_written_for_nobody() -> None:
    to = Opened()
    to.add((10, b"a", 2, 12), (20, b"b", 5, 25))
    to.panes.drop_below(20)
    assert to.state.pending()[0] == [entry(20, b"b")]
    assert (to.panes.first(0), to.panes.first(21)) == (20, None)


def test_very_many_changes_are_shown_to_the_store_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what it holds makes the task ask for a commit."""
    monkeypatch.setattr(packed_panes, "_PENDING_MAX", 3)
    to = Opened()
    to.add(*((10, b"%d" % i, 1, 12) for i in range(3)))
    assert not to.state.dirty
    to.add((10, b"3", 1, 12))
    assert len(to.state.dirty) == 4


@pytest.mark.parametrize("count", [-1, (1 << 63) - 2, 1 << 63])
def test_counts_that_do_not_fit_are_left_to_the_store(count: int) -> None:
    to = Opened()
    to.add((10, b"a", 2, 12))
    assert not to.add((10, b"a", count, 12))
    assert (to.panes.in_use(), to.stored()) == (False, {entry(10, b"a"): (2, 12)})
    assert not to.add((10, b"a", 1, 12))
    to.panes.drop_below(20)


def test_more_entries_than_memory_is_for_are_left_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_panes, "ENTRIES_MAX", 2)
    to = Opened()
    assert to.add((10, b"a", 2, 12), (20, b"a", 1, 21))
    to.state.pending()
    assert (to.again().in_use(), to.window(0, 30)) == (True, {b"a": (3, 21)})
    assert not to.add((30, b"a", 1, 31))
    to.state.put(entry(30, b"a"), 1, 31)
    assert not to.again().in_use()


def test_only_counts_are_packed() -> None:
    spec = StoreSpec("texts", "window", BYTES, STRING, window_size_ms=10)
    assert PackedPanes.of(KeyValueStoreView(spec, MemoryBackend([spec]))) is None
    with native.without():
        assert PackedPanes.of(KeyValueStoreView(SPEC, MemoryBackend([SPEC]))) is None

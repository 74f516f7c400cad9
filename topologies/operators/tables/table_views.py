"""How an operator reads the rows of a table: from the store that holds them, or computed from the stores behind them.

A filtered, mapped or joined table keeps no copy of its rows unless it is asked to. An operator that looks a row up (a
join, at the other side's update) reads it through a view, which applies the same functions to the stores that the table
is made of. An operator with a view declares the view's stores, so that it runs in lockstep with the operators that
write them.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import SEGMENTED, StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.tables.versioned_table import VersionedView

_START = struct.Struct(">q")
_READABLE = frozenset({"key_value", "window", "key_window", "session"})
TimedValue = tuple[Any, int]
"""Value and timestamp."""


class TableRows(Protocol):
    """A table's rows in one task. Keys and values are the user's."""

    def load(self, keys: Iterable[Any]) -> None:
        """Fetch what ``get`` of these keys will need, at once. Keys may be null, or not fit the serde."""

    def get(self, key: Any) -> TimedValue | None:
        """The row as it stands now."""


class TableView(Protocol):
    """A way to read a table, as a value."""

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores that it reads."""

    def open(self, state: Callable[[str], KeyValueStoreView]) -> TableRows:
        """The rows in one task, whose stores ``state`` gives."""


@dataclasses.dataclass(frozen=True)
class StoreView:
    """The rows that a store holds, of a key or of a ``Windowed`` key."""

    store: StoreSpec

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The store."""
        return (self.store,)

    def open(self, state: Callable[[str], KeyValueStoreView]) -> TableRows:
        """Reads it."""
        opened = state(self.store.name)
        if self.store.kind == "window":
            return _StoredWindows(opened)
        return _StoredSegments(opened) if self.store.kind in SEGMENTED else _Stored(opened)


def view_of_store(store: StoreSpec | None, value: Serde[Any]) -> TableView | None:
    """The view of a table whose rows are in a store and whose values ``value`` writes; ``None`` where the store does not
    hold the values themselves."""
    if store is not None and store.kind == "versioned":
        return VersionedView(store)
    if store is None or store.kind not in _READABLE or store.value_serde != value:
        return None
    return StoreView(store)


def view_of_results(store: StoreSpec, value: Serde[Any], result: Callable[[Any], Any]) -> TableView | None:
    """The view of a table of which a store holds what ``value`` writes, and whose values are ``result`` of that."""
    view = view_of_store(store, value)
    return None if view is None else ComputedView(view, lambda key, kept: result(kept))


class _Stored:
    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._key_serde = state.spec.key_serde

    def load(self, keys: Iterable[Any]) -> None:
        with suppress(SerdeError):  # the row that has such a key meets it again
            self._state.load(self._key_serde.serialize_all([k for k in keys if k is not None]))  # type: ignore[arg-type]  # no nulls

    def get(self, key: Any) -> TimedValue | None:
        return self._state.get(self._key_serde.serialize(key))


class _StoredWindows:
    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._write = state.spec.key_serde.serialize

    def load(self, keys: Iterable[Any]) -> None:
        pack, write = _START.pack, self._write
        with suppress(Exception):  # the row that has such a key meets it again
            self._state.load([pack(k.start_ms) + write(k.key) for k in keys if k is not None])

    def get(self, key: Any) -> TimedValue | None:
        return self._state.get(_START.pack(key.start_ms) + self._write(key.key))


class _StoredSegments:
    """Stores whose keys begin with a segment: windows by start, sessions by end and start."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = SegmentedState(state)
        self._sessions = state.spec.kind == "session"
        self._write = state.spec.key_serde.serialize

    def load(self, keys: Iterable[Any]) -> None:
        """The keys are found by ranges."""

    def get(self, key: Any) -> TimedValue | None:
        time_ms = key.end_ms if self._sessions else key.start_ms
        suffix = _START.pack(key.start_ms) if self._sessions else b""
        for entry in self._state.fetch(self._write(key.key), time_ms, time_ms):
            if entry.suffix == suffix:
                return entry.value, entry.timestamp_ms
        return None


@dataclasses.dataclass(frozen=True)
class ComputedView:
    """The rows of another table with ``fn(key, value)`` for value; ``None``: no row."""

    source: TableView
    fn: Callable[[Any, Any], Any]

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """Those of the other table."""
        return self.source.stores

    def open(self, state: Callable[[str], KeyValueStoreView]) -> TableRows:
        """Computes them."""
        return _Computed(self.source.open(state), self.fn)


class _Computed:
    def __init__(self, source: TableRows, fn: Callable[[Any, Any], Any]) -> None:
        self._source = source
        self._fn = fn
        self.load = source.load

    def as_of(self, key: Any, time_ms: int, horizon_ms: int) -> TimedValue | None:
        """The row as it was at a time, of a versioned table (``VersionedRows``)."""
        return self._result(key, self._source.as_of(key, time_ms, horizon_ms))  # type: ignore[attr-defined]  # VersionedRows

    def get(self, key: Any) -> TimedValue | None:
        return self._result(key, self._source.get(key))

    def _result(self, key: Any, found: TimedValue | None) -> TimedValue | None:
        if found is None:
            return None
        value = self._fn(key, found[0])
        return None if value is None else (value, found[1])


@dataclasses.dataclass(frozen=True)
class JoinView:
    """The rows of a join of two tables. ``keeps_left``: rows of the left side without one on the right are results too,
    ``joiner`` being given ``None``; ``keeps_right``: the same the other way round."""

    left: TableView
    right: TableView
    joiner: Callable[[Any, Any], Any]
    keeps_left: bool = False
    keeps_right: bool = False

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """Those of both sides."""
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def open(self, state: Callable[[str], KeyValueStoreView]) -> TableRows:
        """Computes them."""
        return _Joined(self, self.left.open(state), self.right.open(state))

    def result(self, left: Any, right: Any) -> Any:
        """The joined value of two values, of which either may be missing; ``None``: no row."""
        if left is None and (right is None or not self.keeps_right):
            return None
        if right is None and not self.keeps_left:
            return None
        return self.joiner(left, right)


class _Joined:
    def __init__(self, view: JoinView, left: TableRows, right: TableRows) -> None:
        self._result = view.result
        self._left = left
        self._right = right

    def load(self, keys: Iterable[Any]) -> None:
        keys = list(keys)
        self._left.load(keys)
        self._right.load(keys)

    def get(self, key: Any) -> TimedValue | None:
        left, right = self._left.get(key), self._right.get(key)
        value = self._result(left and left[0], right and right[0])
        if value is None:
            return None
        return value, max(found[1] for found in (left, right) if found is not None)

"""Versioned tables: every row with its history, readable as of a time.

A version is valid from its timestamp until that of the next (``[valid from, valid to)``); a null value is a version
too: the row is gone. An update that is older than the table's stream time minus the history is dropped and counted.
One that is older than the latest version of its key is stored but not passed on, because the current row does not
change. Reads as of a time before stream time minus the history find the newest version of a key, if it was already
valid then, and nothing else: a row that is not replaced never expires. (Kafka Streams, KIP-889 and KIP-914.)

Versions that no read can reach any more are removed: those that were replaced that long ago, and the tombstones of
rows that have been gone for that long. Every update removes those of its own key, and checks a few more entries of
the store in a round, so that keys without updates are covered too. So work per record is bounded, and the versions to
be removed are never more than a part of a store that is updated as often as it has entries. No read can tell whether
a version was already removed; which of them still exist does not affect results, and depends on restarts too.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.base.row_functions import decode_column, without_nulls
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.records.table_source import TableSourceSpec

_FROM = struct.Struct(">q")
_LAST_MS = (1 << 63) - 1
_SWEPT = 2
"""Entries that are checked for each update: more than the one that it adds, so that the round keeps up."""


class Versions:
    """The versions in one store, by key bytes."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._history_ms = state.spec.retention_ms or 0
        self._next: bytes | None = None
        """Where the round through the store continues; ``None``: at its beginning."""
        self._begun = False

    def as_of(self, key: bytes, time_ms: int) -> tuple[Any, int] | None:
        """The version that held at a time: value (``None``: the row was gone) and valid-from; ``None`` before any."""
        high = key + (_FROM.pack(time_ms + 1) if time_ms < _LAST_MS else b"\xff" * 9)
        low, length = key + _FROM.pack(0), len(key) + 8
        while (found := self._state.first(low, high, reverse=True)) is not None:
            if len(found[0]) == length:
                return found[1][0], _FROM.unpack_from(found[0], len(key))[0]
            high = found[0]  # belongs to a longer key with this prefix
        return None

    def latest(self, key: bytes) -> tuple[Any, int] | None:
        """The newest version."""
        return self.as_of(key, _LAST_MS)

    def put(self, key: bytes, value: Any, time_ms: int, now_ms: int) -> None:
        """Store a version, and forget what no read can reach any more, of this key and of a few others."""
        store_key = key + _FROM.pack(time_ms)
        new = self._state.get(store_key) is None
        (self._state.put_new if new else self._state.put)(store_key, (value,), time_ms)
        horizon_ms = now_ms - self._history_ms
        if horizon_ms < 0:
            return
        self._forget(key, horizon_ms, now_ms)
        if not self._begun:
            self._next, self._begun = store_key, True
        for _ in range(_SWEPT):
            found = self._state.first(self._next)
            if found is None:
                self._next = None
                return
            self._next = found[0] + b"\x00"
            if _FROM.unpack_from(found[0], len(found[0]) - 8)[0] <= horizon_ms:
                self._forget(found[0][:-8], horizon_ms, now_ms)

    def _forget(self, key: bytes, horizon_ms: int, now_ms: int) -> None:
        """Remove the versions of a key before the one that held at the horizon, and that too if the row was gone."""
        kept = self.as_of(key, horizon_ms)
        if kept is None:
            return
        value, valid_from_ms = kept
        length, end = len(key) + 8, key + _FROM.pack(valid_from_ms)
        old = [k for k, _, _ in self._state.range(key + _FROM.pack(0), end) if len(k) == length]
        if value is None:
            old.append(end)
        for store_key in old:
            self._state.put(store_key, None, now_ms)

    @property
    def history_ms(self) -> int:
        """How far back reads reach."""
        return self._history_ms


@dataclasses.dataclass(frozen=True, kw_only=True)
class VersionedTableSourceSpec(TableSourceSpec):
    """Reads a topic as a versioned table. Its stream time is the table's."""

    order_sensitive: bool = True

    @property
    def by_key(self) -> bool:
        return False  # stream time goes on with every key

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return InputMode(ALL_AS_ROWS, "it keeps versions")

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _VersionedTableOperator(ctx, self)


class _VersionedTableOperator(RowOperator):
    """Takes the log's bytes; ``row`` gets the key's bytes, and key and value decoded."""

    def __init__(self, ctx: OperatorContext, spec: VersionedTableSourceSpec) -> None:
        super().__init__(ctx, spec)
        self._versions = Versions(ctx.state(spec.store.name))
        self._keys, self._values = spec.key_serde, spec.value_serde

    def load(self, port: int, batch: Batch) -> None:
        """Versions are read by ranges."""

    def process(self, port: int, batch: Batch) -> None:
        batch = without_nulls(self.ctx, batch, "key")
        values, batch = decode_column(self.ctx, batch, self._values, batch.values, "value")
        batch = batch.replace(values=values)
        keys, batch = decode_column(self.ctx, batch, self._keys, batch.keys, "key")
        super().process(port, batch.replace(values=list(zip(keys, batch.values, strict=True))))

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        user_key, user_value = value
        now_ms = self.advance_stream_time(ts)
        if ts < now_ms - self._versions.history_ms:
            self.ctx.dropped("late")
            return
        latest = self._versions.latest(key)
        self._versions.put(key, user_value, ts, now_ms)
        if latest is None or ts >= latest[1]:
            self.emit_row(user_key, user_value, ts, old=None if latest is None else latest[0])


@dataclasses.dataclass(frozen=True)
class VersionedView:
    """How a versioned table's rows are read: as they are now, or as of a time (``VersionedRows``)."""

    store: StoreSpec

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The store."""
        return (self.store,)

    def open(self, state: Any) -> VersionedRows:
        """The rows in one task, whose stores ``state`` gives."""
        return VersionedRows(state(self.store.name))


class VersionedRows:
    """The rows of a versioned table in one task, by the user's keys."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._versions = Versions(state)
        self._write = state.spec.key_serde.serialize
        self.history_ms = self._versions.history_ms

    def load(self, keys: Iterable[Any]) -> None:
        """Versions are read by ranges."""

    def get(self, key: Any) -> tuple[Any, int] | None:
        """The row as it is now, with its valid-from."""
        found = self._versions.latest(self._write(key))
        return None if found is None or found[0] is None else found

    def as_of(self, key: Any, time_ms: int, horizon_ms: int) -> tuple[Any, int] | None:
        """The row as it was at a time. Before ``horizon_ms``, only the newest version is known."""
        store_key = self._write(key)
        found = self._versions.as_of(store_key, time_ms) if time_ms >= horizon_ms else self._versions.latest(store_key)
        return None if found is None or found[0] is None or found[1] > time_ms else found

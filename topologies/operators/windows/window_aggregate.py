"""Aggregations per key and window, for windows that are ordered in time (tumbling, hopping, calendar, unlimited).

The store is a ``window`` store: start | key. A window that began before 1970 (one at most, as such windows do not overlap)
is kept under start 0. When windows close: ``closing``. A record that no window takes any more is late: dropped, counted,
and sent to the port ``late`` if there is one. ``on_close`` emits each window's result once, those that close together by
start, then key bytes.

A record goes into all its windows or, when a function of the user's raises for one of them, into none.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, cast

import numpy as np

from penstock.state.log import Windowed
from penstock.state.stores.store_view import window_floor
from penstock.topologies.columnar.column_parts import worth_columns
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Mask
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operator_api.required_columns import InputMode, RequiredColumns
from penstock.topologies.operators.base.row_functions import serialize_keys
from penstock.topologies.operators.columnar.counting import counted_updates
from penstock.topologies.operators.columnar.grouping import window_entries
from penstock.topologies.operators.columnar.hopping import (
    Spread,
    most_records,
    opened,
    spread,
    spread_batch,
    spread_columns,
)
from penstock.topologies.operators.windows.window_closing import ClosingAggregateOperator, ClosingAggregateSpec
from penstock.topologies.windows import HoppingWindows, SpanWindows, TumblingWindows

_START = struct.Struct(">q")
LATE_PORT = 1
FOREVER_MS = 1 << 62
"""The retention of windows that are never dropped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowAggregateSpec(ClosingAggregateSpec):
    """``Aggregate`` per window."""

    windows: SpanWindows

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        reason = None if _in_columns(self.windows) else "its windows are neither tumbling nor hopping ones"
        return self.way_of_columns(reason, out[1] if len(out) > 1 else None)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        if isinstance(self.windows, HoppingWindows):
            return HoppingAggregateOperator(ctx, self)
        return WindowAggregateOperator(ctx, self)


def _in_columns(windows: SpanWindows) -> bool:
    """Whether the windows of whole columns of timestamps can be found at once."""
    return isinstance(windows, (TumblingWindows, HoppingWindows))


def _aligned(windows: SpanWindows) -> bool:
    """Whether windows start at multiples of their size."""
    return isinstance(windows, TumblingWindows) and windows.offset_ms == 0


class WindowAggregateOperator(ClosingAggregateOperator):
    """Windows that do not overlap: one for each record, or none."""

    def __init__(self, ctx: OperatorContext, spec: WindowAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self.close_by(spec.windows, spec.clock, spec.input_times())
        self._size_ms = spec.windows.length_ms
        self._aligned = _aligned(spec.windows)
        self.in_columns = self.in_columns and _in_columns(spec.windows)
        self._retention_ms = spec.store.retention_ms or FOREVER_MS
        self._late_port = len(spec.out_ports) > 1
        self.looks_back = spec.emission == "on_close"
        self.mute = self.looks_back
        at_zero = spec.windows.assign(0)
        self._first_start = min(at_zero[0][0], 0) if at_zero else 0
        """The start of what is stored under start 0."""
        self._around = (0, 0)
        """A window whose timestamps need not be looked up again."""

    def resumed(self) -> None:
        super().resumed()
        self._expire()

    def _expire(self) -> None:
        floor_ms = self.stream_time_ms - self._retention_ms + 1
        if floor_ms > 0:
            self._state.expire_below(window_floor(floor_ms))

    # -- windows of records --------------------------------------------------------------------------------------

    def _starts(self, batch: Batch) -> tuple[list[int], list[int] | None]:
        """(starts of the windows that take them, rows that have one; ``None``: all), the others being reported."""
        starts = self._all_starts(batch.timestamps)
        floor = self.floor
        if min(starts) >= floor:
            return starts, None
        late = [_OUTSIDE < s < floor for s in starts]
        self.report_late(batch, late)
        self.ctx.dropped("outside", starts.count(_OUTSIDE))
        places = [i for i, s in enumerate(starts) if s >= floor]
        return [starts[i] for i in places], places

    def _all_starts(self, timestamps: list[int]) -> list[int]:
        """The start of each timestamp's window; ``_OUTSIDE`` without one."""
        if self._aligned:
            size = self._size_ms
            assert size is not None
            return [ts - ts % size for ts in timestamps]
        starts: list[int] = []
        low, high = self._around
        for ts in timestamps:
            if not low <= ts < high:
                found = self._windows.assign(ts)
                if not found:
                    starts.append(_OUTSIDE)
                    continue
                low, high = found[0]
            starts.append(low)
        self._around = (low, high)
        return starts

    def report_late(self, batch: Batch, mask: list[bool] | Mask) -> None:
        """Count late records, and hand them on."""
        late = int(mask.sum()) if isinstance(mask, np.ndarray) else sum(mask)
        if late:
            self.ctx.dropped("late", late)
            if self._late_port:
                self.ctx.emit(batch.where(mask), LATE_PORT)

    def keys_to_load(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        starts = self._all_starts(self.stamped(batch).timestamps)
        return self._store_keys([max(s, 0) for s in starts], keys)

    def _store_keys(self, starts: list[int], keys: list[Any]) -> list[bytes]:
        pack = _START.pack
        prefixes = {s: pack(s) for s in set(starts)}
        return [prefixes[s] + k for s, k in zip(starts, keys, strict=True)]

    def out_keys(self, store_keys: list[bytes], keys: list[Any]) -> list[Any]:
        size, unpack = self._size_ms, _START.unpack_from
        starts = [start for (start,) in map(unpack, store_keys)]
        if size is not None and self._first_start == 0:
            return [Windowed(key, start, start + size) for key, start in zip(keys, starts, strict=True)]
        real = {start: start or self._first_start for start in set(starts)}
        ends = {start: self._windows.end_of(real[start]) for start in real}
        return [Windowed(key, real[start], ends[start]) for key, start in zip(keys, starts, strict=True)]

    # -- records and closing -------------------------------------------------------------------------------------

    def _left_of_columns(self, batch: ColumnBatch) -> Batch | None:
        """Take a batch's columns, if that can be done; what is left to be taken one by one."""
        windows = self._windows
        assert isinstance(windows, TumblingWindows)
        starts = batch.times - (batch.times - windows.offset_ms) % windows.size_ms
        late = starts < self.floor
        kept: Batch = batch
        if late.any():
            kept, starts = batch.where(~late), starts[~late]
        self.report_late(batch, late)
        if not len(kept):
            return None
        assert isinstance(kept, ColumnBatch)
        if int(starts.min()) < 0:
            return kept
        found = window_entries(kept, self._key_serde, starts, windows.size_ms)
        return None if found is not None and self.take_columns(kept, found, windowed=True) else kept

    def take(self, port: int, batch: Batch) -> None:
        if self.in_columns and worth_columns(batch):
            left = self._left_of_columns(batch)
            if left is None:
                return
            batch = left
        starts, places = self._starts(batch)
        if places is not None:
            batch = batch.pick(places)
        keys, kept = serialize_keys(self.ctx, batch, self._key_serde)
        if kept is not batch:
            starts = self._all_starts(kept.timestamps)
        if keys:
            if self._first_start < 0:
                starts = [max(s, 0) for s in starts]
            self.apply(port, kept, self._store_keys(starts, keys))

    def closed(self, before: int, order: int) -> None:
        if self.looks_back and self.ctx.has_consumers:
            self.emit_closed(max(before, 0), max(self.floor, 0), order)
        self._expire()

    def emit_closed(self, low: int, high: int, order: int) -> None:
        """Emit the windows with ``low <= start < high``, which the store gives by start, then key."""
        rows = list(self._state.range(_START.pack(low), _START.pack(high)))
        if not rows:
            return
        read = self._key_serde.deserialize
        store_keys = [key for key, _, _ in rows]
        keys = self.out_keys(store_keys, [read(key[8:]) for key in store_keys])
        out = Batch(keys, [v for _, v, _ in rows], [ts for _, _, ts in rows], [order] * len(rows))
        if self._sends_olds:
            out.olds = [None] * len(rows)
        self.ctx.emit(self.shown(out))

    def next_wall_ms(self) -> int | None:
        if not self.looks_back or self._clock != "wall":
            return None
        for key, _, _ in self._state.range(_START.pack(max(self.floor, 0))):
            start = _START.unpack_from(key)[0] or self._first_start
            return self._windows.end_of(start) + self._grace_ms
        return None


_OUTSIDE = -(1 << 62)
"""In place of a start: no window."""


class _RowFailedError(Exception):
    """A row failed, and others of its record may have gone before it."""


class HoppingAggregateOperator(WindowAggregateOperator):
    """Windows that overlap: several for each record."""

    def __init__(self, ctx: OperatorContext, spec: WindowAggregateSpec) -> None:
        super().__init__(ctx, spec)
        assert isinstance(spec.windows, HoppingWindows)
        self._slot_ms = math.gcd(spec.windows.size_ms, spec.windows.advance_ms)
        self._offset_ms = spec.windows.offset_ms
        self._trying = False

    def _slots(self, timestamps: list[int]) -> list[int]:
        """Timestamps of one slot have the same windows."""
        offset, width = self._offset_ms, self._slot_ms
        return [(ts - offset) // width for ts in timestamps]

    def _windows_of(self, slots: list[int]) -> dict[int, list[int]]:
        """The starts of each slot's windows."""
        offset, width, assign = self._offset_ms, self._slot_ms, self._windows.assign
        return {slot: [start for start, _ in assign(slot * width + offset)] for slot in set(slots)}

    def keys_to_load(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        slots = self._slots(self.stamped(batch).timestamps)
        prefixes = {slot: list(map(_START.pack, some)) for slot, some in self._windows_of(slots).items()}
        return [p + k for slot, k in zip(slots, keys, strict=True) for p in prefixes[slot]]

    def _left_of_columns(self, batch: ColumnBatch) -> Batch | None:
        windows, left = self._windows, cast(Batch, batch)
        assert isinstance(windows, HoppingWindows)
        found = opened(windows, batch.times, self.floor)
        if found is None:
            return batch
        open_ = found.counts > 0
        if not open_.all():
            self.report_late(batch, ~open_ & ~found.outside)
            self.ctx.dropped("outside", int(found.outside.sum()))
            places = np.flatnonzero(open_)
            left = batch.pick(places)
            found = found.at(places)
        most = most_records(windows)
        for start in range(0, len(left), most):
            piece = left.slice(start, start + most)
            assert isinstance(piece, ColumnBatch)
            groups = spread(piece, self._key_serde, windows, found.at(slice(start, start + most)))
            if groups is None or not self._take_spread(piece, groups):
                return left.slice(start, len(left))
        return None

    def _take_spread(self, batch: ColumnBatch, found: Spread) -> bool:
        """Take records by the entries of all their windows; ``False``: nothing was done."""
        latest = found.latest(batch.times)
        if self._columns is not None:
            columns = self._columns.columns(batch)
            if columns is None:
                return False
            places, entries = found.records()
            return self.fold_entries(entries, latest, spread_columns(columns, places), self._columns)
        counts = found.sums(batch, of_values=self._sums)
        if counts is None:
            return False
        state, store_keys = self._state, found.entries.store_keys
        state.load(store_keys)
        if self.emits_every:
            before = list(map(state.entries.__getitem__, store_keys))
            places, entries = found.records()
            wide = spread_batch(batch, places)
            self.ctx.emit(counted_updates(wide, entries, before, self.out_keys, windowed=True))
        self.add_columns(found.entries, counts, latest)
        return True

    def take(self, port: int, batch: Batch) -> None:
        if self.in_columns and worth_columns(batch):
            left = self._left_of_columns(batch)
            if left is None:
                return
            batch = left
        slots = self._slots(batch.timestamps)
        windows = self._windows_of(slots)
        floor = self.floor
        opened = {slot: [_START.pack(s) for s in some if s >= floor] for slot, some in windows.items()}
        if not all(opened.values()):
            self.report_late(batch, [bool(windows[slot]) and not opened[slot] for slot in slots])
            self.ctx.dropped("outside", sum(not windows[slot] for slot in slots))
            batch = batch.where([bool(opened[slot]) for slot in slots])
        keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        if not keys:
            return
        slots = self._slots(batch.timestamps)
        by_record = [[prefix + key for prefix in opened[slot]] for slot, key in zip(slots, keys, strict=True)]
        self._adder = self._adders[port]
        store_keys = list(chain.from_iterable(by_record))
        self._state.load(store_keys)
        if not (self._state.immutable and not self._sends_olds and self._fold_wide(batch, by_record, store_keys)):
            self._fold_all(batch, by_record)

    def _fold_wide(self, batch: Batch, by_record: list[list[bytes]], store_keys: list[bytes]) -> bool:
        """The same with a row for each window: fast, and undone when a function of the user's raises for one."""
        counts = map(len, by_record)
        wide = batch.pick(list(chain.from_iterable(map(repeat, range(len(by_record)), counts))))
        entries = self._state.entries
        before = {} if self._only_counts else dict(zip(store_keys, map(entries.__getitem__, store_keys), strict=True))
        self._trying = True
        try:
            self.apply_loaded(wide, store_keys)
        except _RowFailedError:
            entries.update(before)
            return False
        finally:
            self._trying = False
        return True

    def row_failed(self, batch: Batch, index: int, error: Exception) -> None:
        if self._trying:
            raise _RowFailedError from error
        super().row_failed(batch, index, error)

    def _fold_all(self, batch: Batch, by_record: list[list[bytes]]) -> None:
        """Fold each record into all its windows."""
        values = list(zip(batch.values, batch.timestamps, strict=True)) if self._timed else batch.values
        places: list[int] = []
        store_keys: list[bytes] = []
        news: list[Any] = []
        times: list[int] = []
        olds: list[Any] = []
        for i, some in enumerate(by_record):
            before = [self._state.entries[store_key] for store_key in some]
            try:
                changed = self._changed_by(batch.keys[i], values[i], batch.timestamps[i], some, before)
                made = [self._state.entry_of(new, ts) for new, ts in changed]
            except Exception as exc:  # before anything was written
                super().row_failed(batch, i, exc)
                continue
            for store_key, entry, (_, ts) in zip(some, made, changed, strict=True):
                self._state.put_entry(store_key, entry, ts)
            places += [i] * len(some)
            store_keys += some
            news += [new for new, _ in changed]
            times += [ts for _, ts in changed]
            if self._sends_olds:
                olds += [None if b is None else b[0] for b in map(self._state.unpack, before, some)]
        if not places:
            return
        out = batch.pick(places)
        self.done(out, store_keys, None, news, times, olds if self._sends_olds else None)

    def _changed_by(
        self, key: Any, value: Any, ts: int, store_keys: list[bytes], before: list[Any]
    ) -> list[tuple[Any, int]]:
        """The new aggregate and timestamp of each of a record's windows."""
        init, adder, unpack = self._init, self._adder, self._state.unpack
        changed: list[tuple[Any, int]] = []
        for store_key, entry in zip(store_keys, before, strict=True):
            found = unpack(entry, store_key)
            if found is None:
                changed.append((value if init is None else adder(key, value, init()), ts))
            else:
                changed.append((adder(key, value, found[0]), max(ts, found[1])))
        return changed

"""Aggregations per key and window, for windows that are ordered in time (tumbling, hopping, calendar, unlimited).

The store is a ``window`` store: start | key. A window that began before 1970 (one at most, as such windows do not overlap)
is kept under start 0. When windows close: ``closing``. A record that no window takes any more is late: dropped, counted,
and sent to the port ``late`` if there is one. ``on_close`` emits each window's result once, those that close together by
start, then key bytes.

A record goes into all its windows or, if a user function raises for one of them, into none.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, cast

import numpy as np

from penstock.state.log import Windowed
from penstock.state.stores.part_store import TalliedNumbers
from penstock.state.stores.store_view import window_floor
from penstock.topologies.columnar.column_parts import enough
from penstock.topologies.columnar.windowed_keys import stored_keys, windowed_column
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Mask, NumberColumn
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.strategy import Changes, OutKeys
from penstock.topologies.operators.base.row_functions import serialize_keys
from penstock.topologies.operators.columnar.grouping import window_entries
from penstock.topologies.operators.columnar.hopping import most_records, opened, spread
from penstock.topologies.operators.windows.window_closing import ClosingAggregateOperator, ClosingAggregateSpec
from penstock.topologies.windows import NO_WINDOW_MS, HoppingWindows, SpanWindows

_START = struct.Struct(">q")
LATE_PORT = 1
FOREVER_MS = 1 << 62
"""The retention of windows that are never dropped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowAggregateSpec(ClosingAggregateSpec):
    """``Aggregate`` per window."""

    windows: SpanWindows

    @property
    def tallies(self) -> bool:
        return not self.windows.overlapping and bool(self.windows.slot_ms)

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        reason = None if self.windows.slot_ms else "its windows are neither tumbling nor hopping ones"
        return self.columns_mode(reason, out[1] if len(out) > 1 else None)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if port == 0 and closes_columns(self):
            return EdgeLayout(keys=True, values=counted(self.fold))
        return super().output_layout(port, given, input_mode)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return (HoppingAggregateOperator if self.windows.overlapping else WindowAggregateOperator)(ctx, self)


def closes_columns(spec: ClosingAggregateSpec) -> bool:
    """Whether the results of windows that close are emitted with their keys as columns, if they are enough."""
    return spec.emission == "on_close" and not spec.sends_olds


def counted(fold: Fold) -> bool:
    """Whether the results are numbers of records."""
    return (fold.counts or fold.sums) and fold.result is None


class WindowAggregateOperator(ClosingAggregateOperator):
    """Windows that do not overlap: one for each record, or none."""

    def __init__(self, ctx: OperatorContext, spec: WindowAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self.close_by(spec, spec.windows)
        self._size_ms = spec.windows.length_ms
        self._aligned = spec.windows.epoch_aligned
        self._retention_ms = spec.store.retention_ms or FOREVER_MS
        self._late_port = len(spec.out_ports) > 1
        at_zero = spec.windows.assign(0)
        self._first_start = min(at_zero[0][0], 0) if at_zero else 0
        """The start of what is stored under start 0."""
        self._least_start = NO_WINDOW_MS + 1
        """Records whose window would start before this have none."""
        self._around = (0, 0)
        """A window whose timestamps need not be looked up again."""
        self._closes_columns = closes_columns(spec)
        self._counted = counted(spec.fold)
        self._first_open: bytes | None = None
        """The first open window in the store when it was last looked up, by processing time. That never goes back, so no
        earlier window comes while this one is open."""

    def resumed(self) -> None:
        super().resumed()
        self._expire()

    def _expire(self) -> None:
        floor_ms = self.stream_time_ms - self._retention_ms + 1
        if floor_ms > 0:
            self._state.expire_below(window_floor(floor_ms))
        if self._members is not None:
            self._members.expire(self.stream_time_ms)

    # -- windows of records --------------------------------------------------------------------------------------

    def column_starts(self, times: Ints) -> Ints | None:
        """``window_starts`` of a column; ``None``: row by row."""
        return self._windows.starts_of(times)

    def window_starts(self, timestamps: list[int]) -> list[int]:
        """The start of each timestamp's window; ``NO_WINDOW_MS`` without one."""
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
                    starts.append(NO_WINDOW_MS)
                    continue
                low, high = found[0]
            starts.append(low)
        self._around = (low, high)
        return starts

    def refused(self, batch: Batch, late: list[bool] | Mask, outside: list[bool] | Mask) -> None:
        """Count records that no window takes, and hand those on that are late."""
        counts = [int(x.sum()) if isinstance(x, np.ndarray) else sum(x) for x in (late, outside)]
        self.ctx.dropped("late", counts[0])
        self.ctx.dropped("outside", counts[1])
        if counts[0] and self._late_port:
            self.ctx.emit(batch.where(late), LATE_PORT)

    def keys_to_load(self, batch: Batch, keys: list[Any]) -> list[bytes]:
        batch = self.stamped(batch)
        starts = self.entry_starts(batch, self.window_starts(batch.timestamps))
        return self._store_keys([max(s, 0) for s in starts], keys)

    def entry_starts(self, batch: Batch, starts: list[int]) -> list[int]:
        """The start of each record's entry in the store, from that of its window."""
        return [max(s, 0) for s in starts] if self._first_start < 0 else starts

    def entry_columns(self, batch: ColumnBatch, starts: Ints) -> tuple[Ints, int]:
        """The entries of columns, and what their starts are multiples of, from the first one on."""
        return starts, self._windows.step_ms or 1

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

    def out_keys_of_columns(self) -> OutKeys:
        return self.out_keys

    # -- records and closing -------------------------------------------------------------------------------------

    def take_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        starts = None
        if (self._columns is not None or self._tallied is not None) and batch.key_column is not None:
            starts = self.column_starts(batch.times)
        if starts is None:
            return batch
        closed = starts < self.floor
        if closed.any():
            outside = starts < self._least_start
            self.refused(batch, closed & ~outside, outside)
            batch, starts = batch.where(~closed), starts[~closed]
        if not len(batch):
            return None
        of_entries, step_ms = self.entry_columns(batch, starts)
        if int(of_entries.min()) < 0:
            return batch
        if self.tally(batch, of_entries):
            return None
        if self._columns is None:
            return batch
        found = window_entries(batch, self._key_serde, of_entries, step_ms)
        return None if found is not None and self.fold_columns(batch, found) else batch

    def take(self, port: int, batch: Batch) -> None:
        starts = self.window_starts(batch.timestamps)
        floor = self.floor
        if min(starts) < floor:
            least = self._least_start
            self.refused(batch, [least <= s < floor for s in starts], [s < least for s in starts])
            batch, starts = batch.where([s >= floor for s in starts]), [s for s in starts if s >= floor]
        keys, kept = serialize_keys(self.ctx, batch, self._key_serde)
        if kept is not batch:
            starts = self.window_starts(kept.timestamps)
        if keys:
            self.apply(port, kept, self._store_keys(self.entry_starts(kept, starts), keys))

    def closed(self, before: int, order: int) -> None:
        if self._on_close and self.ctx.has_consumers:
            self.emit_closed(max(before, 0), max(self.floor, 0), order)
        self._expire()

    def emit_closed(self, low: int, high: int, order: int) -> None:
        """Emit the windows with ``low <= start < high``, which the store gives by start, then key."""
        rows = list(self._state.range(_START.pack(low), _START.pack(high)))
        if not rows:
            return
        store_keys, values, times = map(list, zip(*rows, strict=True))
        if self._closes_columns and enough(len(rows)):
            self.ctx.emit(self.shown(self._closed_columns(store_keys, values, times, order)))
            return
        read = self._key_serde.deserialize
        keys = self.out_keys(store_keys, [read(key[8:]) for key in store_keys])
        out = Batch(keys, values, times, [order] * len(rows))
        if self._sends_olds:
            out.olds = [None] * len(rows)
        self.ctx.emit(self.shown(out))

    def _closed_columns(self, store_keys: list[bytes], values: list[Any], times: list[int], order: int) -> ColumnBatch:
        """The results under these keys of the store."""
        starts = np.frombuffer(b"".join([key[:8] for key in store_keys]), ">i8").astype(np.int64)
        keys = self._windowed(starts, BytesColumn.of([key[8:] for key in store_keys]))
        return ColumnBatch(keys, self.as_column(values), np.array(times, np.int64), np.full(len(keys), order))

    def _windowed(self, starts: Ints, names: BytesColumn) -> Column:
        """Windowed keys from what is stored."""
        distinct, places = np.unique(starts, return_inverse=True)
        real = [start or self._first_start for start in distinct.tolist()]
        ends = list(map(self._windows.end_of, real))
        return windowed_column(
            stored_keys(names, self._key_serde), np.array(real, np.int64)[places], np.array(ends, np.int64)[places]
        )

    def tallied_keys(self, found: TalliedNumbers) -> Column:
        assert found.starts is not None
        return self._windowed(found.starts, BytesColumn(*found.names))

    def as_column(self, aggregates: list[Any]) -> list[Any] | Column:
        """Aggregates that are numbers of records as a column."""
        if not self._counted:
            return aggregates
        try:
            return NumberColumn(np.array(aggregates, np.int64))
        except OverflowError:
            return aggregates

    def next_wall_ms(self) -> int | None:
        if not self._on_close or self._clock != "wall":
            return None
        floor = _START.pack(max(self.floor, 0))
        if self._first_open is None or self._first_open < floor:
            found = self._state.first(floor)
            self._first_open = None if found is None else found[0][:8]
        if self._first_open is None:
            return None
        start = _START.unpack(self._first_open)[0] or self._first_start
        return self._windows.end_of(start) + self._grace_ms


class _RowFailedError(Exception):
    """A row failed, and others of its record may have gone before it."""


def _undone(batch: Batch, index: int, error: Exception) -> None:
    raise _RowFailedError from error


class HoppingAggregateOperator(WindowAggregateOperator):
    """Windows that overlap: several for each record."""

    def __init__(self, ctx: OperatorContext, spec: WindowAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._hopping = cast(HoppingWindows, spec.windows)
        self._offset_ms, self._slot_ms = self._hopping.offset_ms, self._hopping.slot_ms

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

    def take_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if self._columns is None or batch.key_column is None:
            return batch
        windows, left = self._hopping, batch
        found = opened(windows, batch.times, self.floor)
        if found is None:
            return batch
        open_ = found.counts > 0
        if not open_.all():
            self.refused(batch, ~open_ & ~found.outside, found.outside)
            places = np.flatnonzero(open_)
            left = batch.pick(places)
            found = found.at(places)
        most = most_records(windows)
        for start in range(0, len(left), most):
            piece = left.slice(start, start + most)
            groups = spread(piece, self._key_serde, windows, found.at(slice(start, start + most)))
            if groups is None or not self.fold_columns(piece, groups):
                return left.slice(start, len(left))
        return None

    def take(self, port: int, batch: Batch) -> None:
        slots = self._slots(batch.timestamps)
        windows = self._windows_of(slots)
        floor = self.floor
        opened = {slot: [_START.pack(s) for s in some if s >= floor] for slot, some in windows.items()}
        if not all(opened.values()):
            late = [bool(windows[slot]) and not opened[slot] for slot in slots]
            self.refused(batch, late, [not windows[slot] for slot in slots])
            batch = batch.where([bool(opened[slot]) for slot in slots])
        keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        if not keys:
            return
        slots = self._slots(batch.timestamps)
        by_record = [[prefix + key for prefix in opened[slot]] for slot, key in zip(slots, keys, strict=True)]
        store_keys = list(chain.from_iterable(by_record))
        self._state.load(store_keys)
        self._fold_wide(port, batch, by_record, store_keys)

    def _fold_wide(self, port: int, batch: Batch, by_record: list[list[bytes]], store_keys: list[bytes]) -> None:
        """Fold a row for each window of each record; if a user function raises for one, undo that, and fold record
        by record."""
        counts = map(len, by_record)
        wide = batch.pick(list(chain.from_iterable(map(repeat, range(len(by_record)), counts))))
        changes = self._all_or_none(port, wide, store_keys)
        if isinstance(changes, _RowFailedError):
            changes = self._record_by_record(port, batch, wide, by_record)
        self.done(wide, store_keys, changes)

    def _all_or_none(self, port: int, batch: Batch, store_keys: list[bytes]) -> Changes | _RowFailedError | None:
        """Fold rows, or none of them if one fails."""
        entries, before = self._state.entries, {}
        if self._rows.runs_functions:
            before = dict(zip(store_keys, map(entries.__getitem__, store_keys), strict=True))
        try:
            return self._rows.fold(port, batch, store_keys, _undone)
        except _RowFailedError as failed:
            entries.update(before)
            return failed

    def _record_by_record(self, port: int, batch: Batch, wide: Batch, by_record: list[list[bytes]]) -> Changes:
        """Fold the rows of each record, or none of them if one fails."""
        places: list[int] = []
        values: list[Any] = []
        timestamps: list[int] = []
        olds: list[Any] = []
        at = 0
        for i, some in enumerate(by_record):
            start, at = at, at + len(some)
            made = self._all_or_none(port, wide.slice(start, at), some)
            if isinstance(made, _RowFailedError):
                assert isinstance(made.__cause__, Exception)
                self.row_failed(batch, i, made.__cause__)
            elif made is not None:
                places += range(start, at)
                values += made.values
                timestamps += made.timestamps
                olds += made.olds or ()
        return Changes(places, values, timestamps, olds if self._sends_olds else None)

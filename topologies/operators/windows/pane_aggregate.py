"""Overlapping hopping windows, computed from panes when they close.

A pane is as long as the greatest common divisor of size and advance, so every window is a run of whole panes. A
record goes into one pane instead of all its windows. When a window closes, its aggregate is

* the merge of its panes, or
* with an inverse, that of the window before it, without the panes that left and with those that entered (DStreams'
  reduceByWindow): a store keeps, per key, the aggregate of the last closed window, corrected when a late record
  changes one of its panes. Counts need no such store: numbers can be added up again after a restart. The compiled part
  does it (``packed_panes``), or a dictionary has them.

The results are those of ``window_aggregate``, if ``merge`` and ``inverse`` keep their promises, and go into a store
of the same form; open windows are not in it. For ``on_close`` only: other emissions show every change of each window,
which panes would make more expensive.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from penstock.state.log import Windowed
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import window_floor
from penstock.topologies.columnar.column_parts import enough
from penstock.topologies.columnar.windowed_keys import stored_keys, windowed_column
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.aggregates.fold import Aggregation, Fold
from penstock.topologies.operators.aggregates.folds.strategy import Touched
from penstock.topologies.operators.windows.packed_panes import PackedPanes, WindowCounts
from penstock.topologies.operators.windows.window_aggregate import (
    WindowAggregateOperator,
    WindowAggregateSpec,
    counted,
)
from penstock.topologies.windows import HoppingWindows, SpanWindows

_START = struct.Struct(">q")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaneAggregateSpec(WindowAggregateSpec):
    """``WindowAggregateSpec`` by panes. Stores: results, panes and, with an inverse, the last window per key, unless they
    are counts."""

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        if len(self.stores) > 2:
            return _InversePaneAggregateOperator(ctx, self)
        return _CountedPanesOperator(ctx, self) if _can_take_back(self.fold) else PaneAggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """As for all windows, and how they are computed."""
        return {**super().details(), "by": "panes and inverse" if len(self.stores) > 2 else "panes"}


def pays(request: Aggregation) -> bool:
    """Whether panes are possible and better for the aggregation."""
    overlapping = isinstance(request.windows, SpanWindows) and request.windows.overlapping
    return overlapping and request.emission == "on_close" and request.fold.merge is not None


def _can_take_back(fold: Fold) -> bool:
    """Whether the aggregates are numbers of records, which can be taken back."""
    return fold.inverse is not None and counted(fold)


def by_panes(spec: WindowAggregateSpec) -> PaneAggregateSpec:
    """The form of this operator that works by panes."""
    windows = cast(HoppingWindows, spec.windows)
    store = spec.store
    panes = dataclasses.replace(
        store,
        name=f"{store.name}-panes",
        window_size_ms=windows.slot_ms,
        retention_ms=windows.horizon_ms + windows.advance_ms if windows.horizon_ms else None,
    )
    stores = [store, panes]
    if spec.fold.inverse is not None and not _can_take_back(spec.fold):
        stores.append(StoreSpec(f"{store.name}-running", "key_value", store.key_serde, with_count(store.value_serde)))
    fields = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    return PaneAggregateSpec(**{**fields, "stores": tuple(stores)})


class PaneAggregateOperator(WindowAggregateOperator):
    """``_state`` holds the panes, ``_results`` what closed."""

    def __init__(self, ctx: OperatorContext, spec: PaneAggregateSpec) -> None:
        super().__init__(ctx, spec)
        windows = cast(HoppingWindows, spec.windows)
        self._results = ctx.state(spec.stores[0].name)
        self.fold_in(spec, ctx.state(spec.stores[1].name))
        self._size = windows.size_ms
        self._advance_ms = windows.advance_ms
        self._width_ms = windows.slot_ms
        self._offset_ms = windows.offset_ms
        self._first = self._least_start = windows.offset_ms % windows.advance_ms
        """The start of the first window."""
        assert spec.fold.merge is not None
        self._merge = spec.fold.merge

    def _expire(self) -> None:
        floor_ms = self.stream_time_ms - self._retention_ms + 1
        if floor_ms > 0:
            self._results.expire_below(window_floor(floor_ms))
        self._state.expire_below(window_floor(self._oldest_pane()))

    def _oldest_pane(self) -> int:
        """The start of the oldest pane that is still needed."""
        return self.floor

    # -- records -------------------------------------------------------------------------------------------------

    def window_starts(self, timestamps: list[int]) -> list[int]:
        """Those of the last window of each."""
        offset, advance = self._offset_ms, self._advance_ms
        return [ts - (ts - offset) % advance for ts in timestamps]

    def column_starts(self, times: Ints) -> Ints:
        return times - (times - self._offset_ms) % self._advance_ms

    def entry_starts(self, batch: Batch, starts: list[int]) -> list[int]:
        offset, width = self._offset_ms, self._width_ms
        return [ts - (ts - offset) % width for ts in batch.timestamps]

    def entry_columns(self, batch: ColumnBatch, starts: Ints) -> tuple[Ints, int]:
        return batch.times - (batch.times - self._offset_ms) % self._width_ms, self._width_ms

    # -- closing -------------------------------------------------------------------------------------------------

    def closed(self, before: int, order: int) -> None:
        self.close_windows(before, order)
        self._expire()

    def close_windows(self, before: int, order: int) -> None:
        """Emit the non-empty windows with ``before <= start < floor``."""
        start = before
        while start < self.floor:
            merged: dict[bytes, tuple[Any, int]] = {}
            for key, acc, ts in self._range(start, start + self._size):
                found = merged.get(key[8:])
                merged[key[8:]] = (acc, ts) if found is None else (self._merge(found[0], acc), max(found[1], ts))
            if merged:
                self.emit_window(start, [(key, *merged[key]) for key in sorted(merged)], order)
                start += self._advance_ms
            else:
                start = self.next_with_data(start)

    def _range(self, low: int, high: int) -> list[tuple[bytes, Any, int]]:
        """The panes that start in a range, by start."""
        return list(self._state.range(_START.pack(low), _START.pack(high))) if low < high else []

    def next_with_data(self, start: int) -> int:
        """The first window from ``start`` on that holds a pane; the floor, if none below it does."""
        pane = self.first_pane(start)
        return self.floor if pane is None else max(start, self._windows.open_from(pane))

    def first_pane(self, start: int) -> int | None:
        """The start of the first pane that begins at ``start`` or later."""
        found = self._state.first(_START.pack(start))
        return None if found is None else int(_START.unpack_from(found[0])[0])

    def emit_window(self, start: int, rows: list[tuple[bytes, Any, int]], order: int) -> None:
        """Keep and emit the results of one window: (key bytes, aggregate, timestamp) by key."""
        for key, acc, ts in rows:
            self._results.put(_START.pack(start) + key, acc, ts)
        if self.ctx.has_consumers:
            keys, accs, times = map(list, zip(*rows, strict=True))
            self._emit_rows(start, keys, accs, times, order)

    def _emit_rows(self, start: int, keys: list[bytes], accs: list[Any], times: list[int], order: int) -> None:
        if self._closes_columns and enough(len(keys)):
            self._emit_columns(start, BytesColumn.of(keys), self.as_column(accs), np.array(times, np.int64), order)
            return
        read, end = self._key_serde.deserialize, start + self._size
        out = Batch([Windowed(read(key), start, end) for key in keys], accs, times, [order] * len(keys))
        if self._sends_olds:
            out.olds = [None] * len(keys)
        self.ctx.emit(self.shown(out))

    def _emit_columns(
        self, start: int, names: BytesColumn, values: list[Any] | Column, times: Ints, order: int
    ) -> None:
        rows = len(names)
        keys = windowed_column(
            stored_keys(names, self._key_serde), np.full(rows, start), np.full(rows, start + self._size)
        )
        self.ctx.emit(self.shown(ColumnBatch(keys, values, times, np.full(rows, order))))

    def next_wall_ms(self) -> int | None:
        if self._clock != "wall":
            return None
        pane = self.first_pane(self.floor)
        if pane is None:
            return None
        return self._windows.end_of(max(self.floor, self._windows.open_from(pane)))


class _InversePaneAggregateOperator(PaneAggregateOperator):
    """``_running``: per key (number of panes, aggregate) of the window that closed last, which starts an advance below the
    floor."""

    def __init__(self, ctx: OperatorContext, spec: PaneAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._running = ctx.state(spec.stores[2].name) if len(spec.stores) > 2 else _RunningCounts()
        assert spec.fold.inverse is not None
        self._inverse = spec.fold.inverse

    def _oldest_pane(self) -> int:
        return max(self.floor - self._advance_ms, 0)

    def apply(self, port: int, batch: Batch, store_keys: list[bytes]) -> None:
        shared = self._before(store_keys, min(batch.timestamps))
        super().apply(port, batch, store_keys)
        self._correct_all(shared, batch.order[0])

    def fold_columns(self, batch: ColumnBatch, touched: Touched) -> bool:
        shared = self._before(touched.entries.store_keys, int(batch.times.min()))
        done = super().fold_columns(batch, touched)
        if done:
            self._correct_all(shared, int(batch.orders[0]))
        return done

    def _before(self, store_keys: list[bytes], earliest: int) -> dict[bytes, tuple[Any, int] | None]:
        """The contents of those panes of the last window that the records go into."""
        last = self.floor - self._advance_ms
        if last < self._first or earliest >= last + self._size:
            return {}
        end = _START.pack(last + self._size)
        shared = list(dict.fromkeys(k for k in store_keys if k < end))
        self._state.load(shared)
        return {k: self._state.unpack(self._state.entries[k], k) for k in shared}

    def _correct_all(self, shared: dict[bytes, tuple[Any, int] | None], order: int) -> None:
        """Correct the last window where its panes were these."""
        if not shared:
            return
        with self.firmly(order):
            for store_key, was in shared.items():
                now = self._state.get(store_key)
                if now is not None or was is not None:
                    self._correct(store_key[8:], was, now)

    def _correct(self, key: bytes, was: tuple[Any, int] | None, now: tuple[Any, int] | None) -> None:
        """One pane of the last window was ``was`` and is ``now``."""
        found = self._running.get(key)
        panes, acc, ts = (0, None, 0) if found is None else (*found[0], found[1])
        if was is not None:
            panes, acc = panes - 1, self._inverse(acc, was[0]) if panes > 1 else None
        if now is not None:
            panes, acc, ts = panes + 1, now[0] if panes == 0 else self._merge(acc, now[0]), max(ts, now[1])
        self._running.put(key, (panes, acc) if panes else None, ts)

    def close_windows(self, before: int, order: int) -> None:
        start, last = before, before - self._advance_ms
        covered = last + self._size if last >= self._first else start
        while start < self.floor:
            for key, acc, ts in self._range(last, min(start, covered)) if last >= self._first else []:
                self._correct(key[8:], (acc, ts), None)
            for key, acc, ts in self._range(max(start, covered), start + self._size):
                self._correct(key[8:], None, (acc, ts))
            rows = [(key, acc, ts) for key, (_, acc), ts in self._running.range()]
            if rows:
                self.emit_window(start, rows, order)
            last, covered = start, start + self._size
            start = start + self._advance_ms if rows else self.next_with_data(start + self._advance_ms)


class _RunningCounts:
    """The counts of the last window in memory, as the store of ``_InversePaneAggregateOperator`` has them."""

    def __init__(self) -> None:
        self._rows: dict[bytes, tuple[tuple[int, int], int]] = {}

    def get(self, key: bytes) -> tuple[tuple[int, int], int] | None:
        return self._rows.get(key)

    def put(self, key: bytes, value: tuple[int, int] | None, ts: int) -> None:
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = (value, ts)

    def range(self) -> Iterator[tuple[bytes, tuple[int, int], int]]:
        return ((key, *self._rows[key]) for key in sorted(self._rows))


class _CountedPanesOperator(_InversePaneAggregateOperator):
    """The panes are counts. ``PackedPanes`` has them while it is in use; afterwards the last window's are in memory."""

    def __init__(self, ctx: OperatorContext, spec: PaneAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._sums = spec.fold.sums
        self._packed = PackedPanes.of(self._state)
        self._added_up = False
        """Whether the last window's counts are in ``_running``."""

    def _add_up(self, floor: int) -> None:
        """Have the counts of the last window that closed, if ``floor`` is that of the windows that are open."""
        last = floor - self._advance_ms
        if not self._added_up and last >= self._first:
            for key, count, ts in self._range(last, last + self._size):
                self._correct(key[8:], None, (count, ts))
        self._added_up = True

    def _expire(self) -> None:
        super()._expire()
        if self._packed is not None:
            self._packed.drop_below(self._oldest_pane())

    def prefetch(self, port: int, batch: Batch) -> None:
        if self._packed is None or not self._packed.in_use():
            super().prefetch(port, batch)

    def fold_columns(self, batch: ColumnBatch, touched: Touched) -> bool:
        if self._packed is not None:
            counts = touched.sums(batch, of_values=self._sums)
            if counts is not None and self._packed.add(touched.entries.store_keys, counts, touched.latest(batch.times)):
                return True
        self._add_up(self.floor)
        return super().fold_columns(batch, touched)

    def apply(self, port: int, batch: Batch, store_keys: list[bytes]) -> None:
        counts = batch.values if self._sums else np.ones(len(batch), np.int64)
        if self._packed is None or not self._packed.add(store_keys, counts, batch.timestamps):
            self._add_up(self.floor)
            super().apply(port, batch, store_keys)

    def close_windows(self, before: int, order: int) -> None:
        packed = self._packed
        if packed is None or not packed.in_use():
            self._add_up(before)
            super().close_windows(before, order)
            return
        start = before
        while start < self.floor:
            found = packed.window(start, start + self._size)
            if len(found.counts):
                self._emit_counts(start, found, order)
                start += self._advance_ms
            else:
                start = self.next_with_data(start)

    def _emit_counts(self, start: int, found: WindowCounts, order: int) -> None:
        """Keep and emit the results of one window."""
        keys = cast(list[bytes], found.keys.to_list())
        prefix, counts, times = _START.pack(start), found.counts.tolist(), found.times.tolist()
        store_keys = list(map(prefix.__add__, keys))
        self._results.put_entries(store_keys, list(zip(counts, times, strict=True)), times)
        if not self.ctx.has_consumers:
            return
        if self._closes_columns and enough(len(keys)):
            self._emit_columns(start, found.keys, NumberColumn(found.counts), found.times, order)
        else:
            self._emit_rows(start, keys, counts, times, order)

    def first_pane(self, start: int) -> int | None:
        if self._packed is None or not self._packed.in_use():
            return super().first_pane(start)
        return self._packed.first(start)


def with_count(inner: Serde[Any]) -> Serde[tuple[int, Any]]:
    """The serde of ``(n, value)``: n (8, big-endian), then the value."""
    write, read = inner.serialize, inner.deserialize

    def serialize(pair: tuple[int, Any]) -> bytes:
        return _START.pack(pair[0]) + write(pair[1])

    def deserialize(data: bytes) -> tuple[int, Any]:
        return _START.unpack_from(data)[0], read(data[8:])

    return Serde(f"counted({inner.name})", serialize, deserialize, immutable=inner.immutable)

"""Overlapping hopping windows, computed from panes when they close.

A pane is as long as the greatest common divisor of size and advance, so every window is a run of whole panes. A
record goes into one pane instead of all its windows. When a window closes, its aggregate is

* the merge of its panes, or
* with an inverse, that of the window before it, without the panes that left and with those that entered (DStreams'
  reduceByWindow): a store keeps, per key, the aggregate of the last closed window, corrected when a late record
  changes one of its panes.

The results are those of ``window_aggregate``, if ``merge`` and ``inverse`` keep their promises, and go into a store
of the same form; open windows are not in it. For ``on_close`` only: other emissions show every change of each window,
which panes would make more expensive.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, cast

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import window_floor
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.aggregates.fold import Aggregation
from penstock.topologies.operators.aggregates.folds.strategy import Touched
from penstock.topologies.operators.windows.window_aggregate import WindowAggregateOperator, WindowAggregateSpec
from penstock.topologies.windows import HoppingWindows, SpanWindows

_START = struct.Struct(">q")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaneAggregateSpec(WindowAggregateSpec):
    """``WindowAggregateSpec`` by panes. Stores: results, panes and, with an inverse, the last window per key."""

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _InversePaneAggregateOperator(ctx, self) if len(self.stores) > 2 else PaneAggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """As for all windows, and how they are computed."""
        return {**super().details(), "by": "panes and inverse" if len(self.stores) > 2 else "panes"}


def pays(request: Aggregation) -> bool:
    """Whether panes are possible and better for the aggregation."""
    overlapping = isinstance(request.windows, SpanWindows) and request.windows.overlapping
    return overlapping and request.emission == "on_close" and request.fold.merge is not None


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
    if spec.fold.inverse is not None:
        stores.append(StoreSpec(f"{store.name}-running", "key_value", store.key_serde, counted(store.value_serde)))
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
        for key, _, _ in self._state.range(_START.pack(start)):
            return max(start, self._windows.open_from(_START.unpack_from(key)[0]))
        return self.floor

    def emit_window(self, start: int, rows: list[tuple[bytes, Any, int]], order: int) -> None:
        """Keep and emit the results of one window: (key bytes, aggregate, timestamp) by key."""
        prefix = _START.pack(start)
        store_keys = [prefix + key for key, _, _ in rows]
        for store_key, (_, acc, ts) in zip(store_keys, rows, strict=True):
            self._results.put(store_key, acc, ts)
        if not self.ctx.has_consumers:
            return
        read = self._key_serde.deserialize
        keys = self.out_keys(store_keys, [read(key) for key, _, _ in rows])
        out = Batch(keys, [acc for _, acc, _ in rows], [ts for _, _, ts in rows], [order] * len(rows))
        if self._sends_olds:
            out.olds = [None] * len(rows)
        self.ctx.emit(self.shown(out))

    def next_wall_ms(self) -> int | None:
        if self._clock != "wall":
            return None
        for key, _, _ in self._state.range(_START.pack(self.floor)):
            start = max(self.floor, self._windows.open_from(_START.unpack_from(key)[0]))
            return self._windows.end_of(start)
        return None


class _InversePaneAggregateOperator(PaneAggregateOperator):
    """``_running``: per key (number of panes, aggregate) of the window that closed last, which starts an advance below the
    floor."""

    def __init__(self, ctx: OperatorContext, spec: PaneAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._running = ctx.state(spec.stores[2].name)
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


def counted(inner: Serde[Any]) -> Serde[tuple[int, Any]]:
    """The serde of ``(n, value)``: n (8, big-endian), then the value."""
    write, read = inner.serialize, inner.deserialize

    def serialize(pair: tuple[int, Any]) -> bytes:
        return _START.pack(pair[0]) + write(pair[1])

    def deserialize(data: bytes) -> tuple[int, Any]:
        return _START.unpack_from(data)[0], read(data[8:])

    return Serde(f"counted({inner.name})", serialize, deserialize, immutable=inner.immutable)

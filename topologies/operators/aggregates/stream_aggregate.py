"""Aggregates of a whole stream: every task keeps a partial of its own, and one task merges them.

A partial replaces the former one of its task, so nothing is counted twice if it is sent again. The total is exact
once the last partials have arrived; until then it lacks the missing ones. Totals are upserts.

Stores order windows by the bytes of their starts: those that began before 1970 come last, although they close first.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.log import Windowed
from penstock.state.serdes.serde import BYTES, STRING
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView, window_floor, window_key
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.micro_batches.batch_aggregates import TASK
from penstock.topologies.operators.micro_batches.micro_batches import START
from penstock.topologies.windows import Windows

ALL = "all"
"""The key of totals."""
_ALL = STRING.serialize(ALL)
_RUNNING = 0
"""The window start of partials without windows."""
_BEFORE_EPOCH = b"\x80"
"""Keys from here on belong to windows that began before 1970."""
_AFTER_TASKS = b"\xff" * (TASK.size + 1)


def _over(state: KeyValueStoreView, floor_ms: int, *, early: bool) -> list[bytes]:
    """The keys of windows that start below a floor, which is not below 0. ``early``: also of those before 1970."""
    ranges = [(None, START.pack(floor_ms)), (_BEFORE_EPOCH, None)]
    return [k for low, high in ranges[: 1 + early] for k, _, _ in state.range(low, high)]


def partial_store(name: str, aggregator: Aggregator) -> StoreSpec:
    """A task's accumulators by window start (8)."""
    return StoreSpec(name, "key_value", BYTES, aggregator.serde)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamPartialSpec(OperatorSpec):
    """One task's accumulators, sent under one key as (task's partition, window start, accumulator): at every record, or
    at commits. Records without a value, and those of closed windows, are dropped and counted."""

    aggregator: Aggregator
    windows: Windows | None = None
    order_sensitive: bool = True
    emits: Emits = "insert"

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _PartialOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store, aggregate and windows."""
        shown: dict[str, Any] = {"store": self.stores[0].name, "aggregate": self.aggregator.name}
        return shown if self.windows is None else shown | {"windows": self.windows.describe()}


class _PartialOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: StreamPartialSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._aggregator, self._windows = spec.aggregator, spec.windows
        self._write = spec.aggregator.serde.serialize
        self._every_update = spec.emission == "every_update"
        self._on_watermark = spec.uses_watermark
        self._changed: dict[int, tuple[bytes, int]] = {}
        self._first_ms: int | None = None
        """No window that starts earlier is kept; ``None``: unknown."""

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if value is None:
            self.ctx.dropped("null_value")
            return
        starts = [_RUNNING]
        if self._windows is not None:
            time_ms = self.watermark_ms + 1 if self._on_watermark else self.advance_stream_time(ts)
            every = self._windows.assign(ts)
            starts = [s for s, end in every if end + self._windows.grace_ms > time_ms]
            if len(starts) < len(every):
                self.ctx.dropped("late", len(every) - len(starts))
        found = [self._state.get(START.pack(s)) for s in starts]
        accs = [self._aggregator.init() if f is None else f[0] for f in found]
        new = [self._aggregator.add(acc, value, ts) for acc in accs]
        for start, old, acc in zip(starts, found, new, strict=True):
            at_ms = ts if old is None else max(ts, old[1])
            self._state.put(START.pack(start), acc, at_ms)
            if self._every_update:
                self.emit_row(ALL, (self.ctx.task.partition, start, self._write(acc)), at_ms, headers=())
            else:
                self._changed[start] = self._write(acc), at_ms
            if self._first_ms is not None:
                self._first_ms = min(self._first_ms, start)
        if self._windows is not None and not self._on_watermark:
            self._expire(self.stream_time_ms)

    def on_watermark(self, watermark_ms: int) -> None:
        if self._windows is not None:
            self._expire(watermark_ms + 1)

    def _expire(self, time_ms: int) -> None:
        """Drop the windows that accept no more records; their last partial was sent, or is about to be."""
        windows = self._windows
        assert windows is not None
        assert windows.length_ms is not None
        last_ms = time_ms - windows.grace_ms - windows.length_ms
        if last_ms < 0 or (self._first_ms is not None and self._first_ms > last_ms):
            return
        for name in _over(self._state, last_ms + 1, early=True):
            self._state.put(name, None, time_ms)
        self._first_ms = next((START.unpack(k)[0] for k, _, _ in self._state.range()), last_ms + 1)

    def flush(self) -> None:
        changed, self._changed = self._changed, {}
        partition, count = self.ctx.task.partition, len(changed)
        values = [(partition, start, acc) for start, (acc, _) in changed.items()]
        self.ctx.emit(Batch([ALL] * count, values, [ts for _, ts in changed.values()], [0] * count))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamTotalSpec(OperatorSpec):
    """The merged partials, as a table with one row, or one a window. ``stores``: partials by window start (8) and task
    (4), and results. Windows are kept for ``retention_ms`` of stream time; later partials are dropped and counted."""

    aggregator: Aggregator
    windows: Windows | None = None
    order_sensitive: bool = True
    emits: Emits = "upsert"

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _TotalOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and aggregate."""
        return {"store": self.stores[1].name, "aggregate": self.aggregator.name}


class _TotalOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: StreamTotalSpec) -> None:
        super().__init__(ctx, spec)
        self._partials = ctx.state(spec.stores[0].name)
        self._results = ctx.state(spec.stores[1].name)
        self._aggregator = spec.aggregator
        self._length_ms = None if spec.windows is None else spec.windows.length_ms
        self._retention_ms = spec.stores[1].retention_ms
        self._expired_ms = 0
        self._early = True
        """Whether there may be windows that began before 1970, whose places are behind all others."""

    def resumed(self) -> None:
        super().resumed()
        self._expire()

    def _floor_ms(self) -> int:
        return 0 if self._retention_ms is None else self.stream_time_ms - self._retention_ms + 1

    def _expire(self) -> None:
        floor_ms = self._floor_ms()
        if floor_ms > self._expired_ms:
            self._expired_ms = floor_ms
            self._results.expire_below(window_floor(floor_ms))
            for name in _over(self._partials, floor_ms, early=self._early):
                self._partials.put(name, None, self.stream_time_ms)
            if self._early:
                for name in [k for k, _, _ in self._results.range(_BEFORE_EPOCH)]:
                    self._results.put(name, None, self.stream_time_ms)
                self._early = False

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        partition, start, data = value
        self.advance_stream_time(ts)
        if self._length_ms is not None and start < self._floor_ms():
            self.ctx.dropped("late")
            return
        self._early = self._early or start < 0
        self._partials.put(START.pack(start) + TASK.pack(partition), data, ts)
        read, merge = self._aggregator.serde.deserialize, self._aggregator.merge
        assert merge is not None
        acc: Any = None
        prefix = START.pack(start)
        for _, other, other_ms in self._partials.range(prefix, prefix + _AFTER_TASKS):
            acc = read(other) if acc is None else merge(acc, read(other))
            ts = max(ts, other_ms)
        result = self._aggregator.result(acc)
        out_key: Any = ALL
        if self._length_ms is None:
            name = _ALL
        else:
            name, out_key = window_key(start, _ALL), Windowed(ALL, start, start + self._length_ms)
        old = self._results.get(name)
        self._results.put(name, result, ts)
        self.emit_row(out_key, result, ts, old=None if old is None else old[0], headers=())
        self._expire()

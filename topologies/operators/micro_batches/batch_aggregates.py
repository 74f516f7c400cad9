"""Aggregates of micro-batches: per key, and over the whole stream in partials per task that one task merges.

Every interval is folded by itself (a pane). A window merges its panes or, with an aggregate that can be subtracted,
adds the entering pane and subtracts the leaving one. Both give the same answer, except for floats.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.micro_batches.micro_batches import START, BatchOperator, BatchSpec

PARTIAL: Serde[tuple[int, int, bytes]] = Serde(
    "partial",
    msgspec.msgpack.Encoder().encode,
    msgspec.msgpack.Decoder(tuple[int, int, bytes]).decode,
    immutable=True,
    exact=tuple,
)
"""A task's partial of a pane: its number, the pane's start, the accumulator."""
TASK = struct.Struct(">i")


def aggregate_stores(name: str, key: Serde[Any], aggregator: Aggregator, *, totals: bool) -> tuple[StoreSpec, ...]:
    """Panes (start (8) | key → accumulator) and, for subtraction, the accumulators of the last window by key."""
    panes = StoreSpec(name, "key_value", key, aggregator.serde)
    return (panes, StoreSpec(f"{name}-totals", "key_value", key, aggregator.serde)) if totals else (panes,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchAggregateSpec(BatchSpec):
    """The aggregate's result per key that a batch holds, keys in the order of their bytes. Records without a key are
    dropped and counted. With two stores windows are kept by subtraction."""

    aggregator: Aggregator
    key_serde: Serde[Any]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _SubtractOperator(ctx, self) if len(self.stores) > 1 else _BatchMergeOperator(ctx, self)


class _BatchMergeOperator(BatchOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._aggregator, self._keys = spec.aggregator, spec.key_serde

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
            return
        start = self.pane_of(ts)
        if start is None:
            return
        try:
            name = START.pack(start) + self._keys.serialize(key)
        except Exception as exc:
            raise SerdeError(f"serde {self._keys.name} cannot write the key {key!r:.60}: {exc}") from exc
        self.fold(start, name, value, ts)

    def fold(self, start: int, name: bytes, value: Any, ts: int) -> None:
        """Add a value to a pane."""
        found = self.panes.get(name)
        acc = self._aggregator.init() if found is None else found[0]
        self.panes.put(name, self._aggregator.add(acc, value, ts), start)
        self.opened(start)

    def close(self, end_ms: int) -> None:
        self.results(end_ms, self.merged(end_ms - self.intervals.size_ms, end_ms))

    def merged(self, low_ms: int, high_ms: int) -> dict[bytes, Any]:
        """The accumulators of panes with ``low_ms <= start < high_ms``, by key, in order of time."""
        merge = self._aggregator.merge
        found: dict[bytes, Any] = {}
        for name, acc in self.held(low_ms, high_ms):
            key = name[8:]
            if key in found:
                assert merge is not None
                acc = merge(found[key], acc)
            found[key] = acc
        return found

    def results(self, end_ms: int, accs: dict[bytes, Any]) -> None:
        """Emit a batch, without the keys whose result is null."""
        for name in sorted(accs):
            result = self._aggregator.result(accs[name])
            if result is not None:
                self.emit_row(self._keys.deserialize(name), result, end_ms - 1)


class _SubtractOperator(_BatchMergeOperator):
    """The window is kept as totals, key by key, as long as it holds a pane of the key."""

    def __init__(self, ctx: OperatorContext, spec: BatchAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._totals = ctx.state(spec.stores[1].name)
        # a pane is read once more, to be subtracted
        self.keeps_ms = self._lingers_ms = spec.intervals.slide_ms

    def close(self, end_ms: int) -> None:
        size, slide = self.intervals.size_ms, self.intervals.slide_ms
        subtract, merge = self._aggregator.subtract, self._aggregator.merge
        assert subtract is not None
        assert merge is not None
        for name, acc in self.merged(end_ms - slide - size, min(end_ms - size, end_ms - slide)).items():
            found = self._totals.get(name)
            assert found is not None, "what leaves a window was in it"
            self._totals.put(name, subtract(found[0], acc), end_ms - 1)
        for name, acc in self.merged(max(end_ms - size, end_ms - slide), end_ms).items():
            found = self._totals.get(name)
            self._totals.put(name, acc if found is None else merge(found[0], acc), end_ms - 1)
        held = {name[8:] for name, _ in self.held(end_ms - size, end_ms)}
        totals = {name: acc for name, acc, _ in self._totals.range()}
        for name in totals:
            if name not in held:
                self._totals.put(name, None, end_ms - 1)
        self.results(end_ms, {name: totals[name] for name in held})


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPartialSpec(BatchSpec):
    """The accumulator of each interval of one task, for ``BatchTotalSpec``. The timestamp is such that it alone brings a
    task's stream time past the interval's end and grace."""

    aggregator: Aggregator

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _BatchPartialOperator(ctx, self)


class _BatchPartialOperator(BatchOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchPartialSpec) -> None:
        super().__init__(ctx, spec)
        self._aggregator = spec.aggregator

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        start = self.pane_of(ts)
        if start is None:
            return
        name = START.pack(start)
        found = self.panes.get(name)
        acc = self._aggregator.init() if found is None else found[0]
        self.panes.put(name, self._aggregator.add(acc, value, ts), start)
        self.opened(start)

    def close(self, end_ms: int) -> None:
        write = self._aggregator.serde.serialize
        for name, acc in self.held(end_ms - self.intervals.size_ms, end_ms):
            start = START.unpack(name)[0]
            self.emit_row("", (self.ctx.task.partition, start, write(acc)), end_ms + self.intervals.grace_ms)


def total_stores(name: str, aggregator: Aggregator, *, totals: bool) -> tuple[StoreSpec, ...]:
    """Panes by task (start (8) | task's partition (4) → accumulator) and, for subtraction, the last window."""
    panes = StoreSpec(name, "key_value", BYTES, BYTES)
    return (panes, StoreSpec(f"{name}-window", "key_value", BYTES, aggregator.serde)) if totals else (panes,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchTotalSpec(BatchSpec):
    """Merges the partials of all tasks: the result under the start of its batch. A later partial of one task and pane
    replaces the former. One that comes for a batch that was run (tasks without a watermark strategy do not wait for each
    other) is merged into it, and its result emitted again, for as long as panes are kept: ``retain_ms``. With two stores
    windows are made of the ones before."""

    aggregator: Aggregator
    retain_ms: int
    emits: Emits = "upsert"

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _WindowTotalOperator(ctx, self) if len(self.stores) > 1 else _BatchTotalOperator(ctx, self)


class _BatchTotalOperator(BatchOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchTotalSpec) -> None:
        super().__init__(ctx, spec)
        self._aggregator = spec.aggregator
        self.keeps_ms = spec.retain_ms

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        partition, start, acc = value
        cut, done_ms = self.intervals, self.stream_time_ms
        end = start - start % cut.slide_ms + cut.slide_ms
        kept_ms = done_ms + cut.slide_ms - cut.size_ms - self.keeps_ms
        if end <= done_ms and end - cut.size_ms < kept_ms:  # other panes of that batch may be gone
            self.ctx.dropped("late")
            return
        self.panes.put(START.pack(start) + TASK.pack(partition), acc, start)
        self.opened(start)
        while end <= done_ms and end - cut.size_ms <= start:
            self.close(end)
            end += cut.slide_ms
        if cut.wall:
            self.run_until(start + cut.pane_ms)

    def on_wall(self, now_ms: int) -> None:
        """On processing time a partial says that its interval is over."""

    def next_wall_ms(self) -> int | None:
        return None

    def close(self, end_ms: int) -> None:
        self.total(end_ms, self.merged(end_ms - self.intervals.size_ms, end_ms))

    def merged(self, low_ms: int, high_ms: int, whole: Any = None) -> Any:
        """The accumulators of all tasks for panes with ``low_ms <= start < high_ms``, behind ``whole``; ``None`` of none."""
        read, merge = self._aggregator.serde.deserialize, self._aggregator.merge
        for _, data in self.held(low_ms, high_ms):
            acc = read(data)
            if whole is not None:
                assert merge is not None
                acc = merge(whole, acc)
            whole = acc
        return whole

    def total(self, end_ms: int, acc: Any) -> None:
        """Emit a batch, unless it is empty or its result null."""
        result = None if acc is None else self._aggregator.result(acc)
        if result is not None:
            self.emit_row(end_ms - self.intervals.size_ms, result, end_ms - 1, headers=())


class _WindowTotalOperator(_BatchTotalOperator):
    """The last window is kept, with its last millisecond as timestamp."""

    def __init__(self, ctx: OperatorContext, spec: BatchTotalSpec) -> None:
        super().__init__(ctx, spec)
        self._window = ctx.state(spec.stores[1].name)

    def close(self, end_ms: int) -> None:
        size, slide = self.intervals.size_ms, self.intervals.slide_ms
        last = self._window.get(b"")
        if next(self.held(end_ms - size, end_ms), None) is None:
            self._window.put(b"", None, end_ms - 1)
            return
        if last is not None and last[1] == end_ms - slide - 1:
            subtract = self._aggregator.subtract
            assert subtract is not None
            acc = self.merged(end_ms - slide, end_ms, last[0])
            gone = self.merged(end_ms - slide - size, end_ms - size)
            acc = acc if gone is None else subtract(acc, gone)
        else:
            acc = self.merged(end_ms - size, end_ms)
        if last is None or last[1] <= end_ms - 1:  # an earlier window that is computed again is not the last one
            self._window.put(b"", acc, end_ms - 1)
        self.total(end_ms, acc)

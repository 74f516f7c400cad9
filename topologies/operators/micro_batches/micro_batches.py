"""Micro-batches: process the records of an interval as DStreams do, in event time or in processing time.

Time is cut into intervals (panes) aligned to the epoch. A batch ends at every multiple of ``slide_ms`` and holds the
records of the panes in the ``size_ms`` before its end; without a window both are the interval. Output of a batch has
the timestamp ``end - 1``; batches without a record emit nothing.

In event time a batch is run when the watermark passes ``end - 1 + grace_ms``; records of panes that have passed are
late: dropped and counted. In processing time it is run when the clock has reached its end plus the grace, and nothing
is late: a record for a pane that is over goes to the open one. Records are stamped by the journaled clock or, if they
are results of batches themselves, belong to the batch that emitted them (``by_timestamp``).

Everything is kept in stores; the end up to which batches were run is the operator's ``stream_time_ms``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Emission, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.record_pairs import pair_serde
from penstock.topologies.operators.base.row_operator import RowOperator

START = struct.Struct(">q")
_SEQUENCE = struct.Struct(">Q")
KeyValuePair = tuple[Any, Any]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How time is cut: see the module. ``wall``: processing time."""

    pane_ms: int
    size_ms: int
    slide_ms: int
    grace_ms: int = 0
    wall: bool = False
    by_timestamp: bool = False

    @property
    def shown(self) -> str:
        """As ``describe`` shows them."""
        window = "" if self.size_ms == self.slide_ms else f", last {self.size_ms} ms"
        return f"every {self.slide_ms} ms{window}, {'processing' if self.wall else 'event'} time"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSpec(OperatorSpec):
    """An operator on micro-batches. Its first store holds the panes."""

    intervals: Intervals
    order_sensitive: bool = True
    emission: Emission | None = "on_close"
    emits: Emits = "insert"

    def __post_init__(self) -> None:
        wall = self.intervals.wall
        object.__setattr__(self, "uses_watermark", not wall)
        object.__setattr__(self, "uses_wall_time", wall)
        object.__setattr__(self, "reads_wall_time", wall)

    def details(self) -> dict[str, Any]:
        """Store and intervals."""
        return {"store": self.stores[0].name, "batches": self.intervals.shown}


class BatchOperator(RowOperator):
    """Runs ``close(end)`` for each batch, in order. Subclasses keep each record in the first store under a key that
    begins with the start of its pane; what no batch needs any more is deleted here."""

    keeps_ms = 0
    """How long a pane is kept after the last batch that holds it."""

    def __init__(self, ctx: OperatorContext, spec: BatchSpec) -> None:
        super().__init__(ctx, spec)
        self.intervals = spec.intervals
        self.panes = ctx.state(spec.stores[0].name)
        self._first_ms: int | None = None
        """Where the earliest batch to be run ends; ``None``: unknown."""

    def close(self, end_ms: int) -> None:
        """Run the batch that ends here; it may hold nothing."""
        raise AssertionError(f"{type(self).__name__} does not say what a batch does")

    def restless(self) -> bool:
        """Whether batches without any record are run too."""
        return False

    def pane_of(self, ts: int) -> int | None:
        """The start of the pane that the current record belongs to; ``None`` if it is late, which is counted."""
        cut = self.intervals
        if cut.wall:
            open_ms = max(self.wall_ms - cut.grace_ms, 0)
            return max(_floor(ts if cut.by_timestamp else self.wall_ms, cut.pane_ms), _floor(open_ms, cut.pane_ms))
        start = _floor(ts, cut.pane_ms)
        if start + cut.pane_ms - 1 + cut.grace_ms <= self.watermark_ms:
            self.ctx.dropped("late")
            return None
        return start

    def opened(self, start_ms: int) -> None:
        """A record was kept in this pane."""
        if self._first_ms is not None:
            self._first_ms = min(self._first_ms, self._end_after(start_ms))

    def on_watermark(self, watermark_ms: int) -> None:
        self.run_until(watermark_ms + 1 - self.intervals.grace_ms)

    def on_wall(self, now_ms: int) -> None:
        self.run_until(now_ms - self.intervals.grace_ms)

    def next_wall_ms(self) -> int | None:
        if not self.intervals.wall:
            return None
        end = self._next_end()
        return None if end is None else end + self.intervals.grace_ms

    def run_until(self, limit_ms: int) -> None:
        """Run the batches that end at ``limit_ms`` or before."""
        limit_ms = _floor(limit_ms, self.intervals.slide_ms)
        if limit_ms <= self.stream_time_ms:
            return
        while (end := self._next_end()) is not None and end <= limit_ms:
            self.close(end)
            self.stream_time_ms = end
            self._first_ms = None
            low = end + self.intervals.slide_ms - self.intervals.size_ms - self.keeps_ms
            for key in [k for k, _, _ in self.panes.range(None, START.pack(max(low, 0)))]:
                self.panes.put(key, None, end - 1)
        self.stream_time_ms = limit_ms

    def _end_after(self, start_ms: int) -> int:
        """The end of the first batch not yet run that may hold a pane."""
        slide = self.intervals.slide_ms
        return max(_floor(start_ms, slide), _floor(max(self.stream_time_ms, 0), slide)) + slide

    def _next_end(self) -> int | None:
        if self.restless() and self.stream_time_ms >= 0:
            return self._end_after(0)
        if self._first_ms is None:
            # panes that are only retained do not create a batch
            low = max(self.stream_time_ms + self.intervals.slide_ms - self.intervals.size_ms - self._lingers_ms, 0)
            first = next((k for k, _, _ in self.panes.range(START.pack(low))), None)
            if first is None:
                return None
            self._first_ms = self._end_after(START.unpack_from(first)[0])
        return self._first_ms

    _lingers_ms = 0
    """How long after its last batch a pane is still needed."""

    def held(self, low_ms: int, high_ms: int) -> Iterator[tuple[bytes, Any]]:
        """Keys and values of the panes with ``low_ms <= start < high_ms``."""
        if high_ms > 0:
            for key, value, _ in self.panes.range(START.pack(max(low_ms, 0)), START.pack(high_ms)):
                yield key, value


def _floor(ms: int, step_ms: int) -> int:
    return ms - ms % step_ms


# -- whole batches -----------------------------------------------------------------------------------------------


def buffer_store(name: str, key: Serde[Any]) -> StoreSpec:
    """Records as they came: pane (8) | number (8) → port (1) | key and value."""
    return StoreSpec(name, "key_value", key, BYTES)


class _BufferingOperator(BatchOperator):
    """Keeps records as they arrive. ``serdes``: of the pairs, by port."""

    def __init__(self, ctx: OperatorContext, spec: BatchSpec, serdes: tuple[Serde[KeyValuePair], ...]) -> None:
        super().__init__(ctx, spec)
        self._serdes = serdes
        self._numbers: dict[int, int] = {}

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        start = self.pane_of(ts)
        if start is None:
            return
        try:
            data = bytes((port,)) + self._serdes[port].serialize((key, value))
        except Exception as exc:
            raise SerdeError(f"{key!r:.60} → {value!r:.60} cannot be kept: {exc}; give the stream its serdes") from exc
        number = self._numbers.get(start)
        if number is None:
            last = next(self.panes.range(START.pack(start), START.pack(start + 1), reverse=True), None)
            number = 0 if last is None else _SEQUENCE.unpack_from(last[0], 8)[0] + 1
        self._numbers[start] = number + 1
        self.panes.put(START.pack(start) + _SEQUENCE.pack(number), data, start)
        self.opened(start)

    def pairs(self, end_ms: int) -> tuple[list[KeyValuePair], ...]:
        """The pairs of the batch that ends here, per port."""
        found: tuple[list[KeyValuePair], ...] = tuple([] for _ in self._serdes)
        for _, data in self.held(end_ms - self.intervals.size_ms, end_ms):
            found[data[0]].append(self._serdes[data[0]].deserialize(data[1:]))
        self._numbers = {s: n for s, n in self._numbers.items() if s >= end_ms}
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchTransformSpec(BatchSpec):
    """``fn(end_ms, pairs)`` of the pairs of key and value of each batch, in order of arrival; the pairs that it returns
    are emitted (``None``: none)."""

    fn: Callable[[int, list[KeyValuePair]], Iterable[KeyValuePair] | None]
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _BatchTransformOperator(ctx, self)


class _BatchTransformOperator(_BufferingOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchTransformSpec) -> None:
        super().__init__(ctx, spec, (pair_serde(spec.key_serde, spec.value_serde),))
        self._fn = spec.fn

    def close(self, end_ms: int) -> None:
        (pairs,) = self.pairs(end_ms)
        if pairs:
            for key, value in self._fn(end_ms, pairs) or ():
                self.emit_row(key, value, end_ms - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchJoinSpec(BatchSpec):
    """``joiner(left, right)`` of all pairs of records of a batch with equal keys: keys in the order in which they came,
    left before right, per key left by left. ``outer`` names the sides whose records are also joined with ``None``."""

    in_ports: tuple[str, ...] = ("left", "right")
    joiner: Callable[[Any, Any], Any]
    outer: frozenset[str]
    key_serde: Serde[Any]
    value_serdes: tuple[Serde[Any], Serde[Any]]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _BatchJoinOperator(ctx, self)


class _BatchJoinOperator(_BufferingOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchJoinSpec) -> None:
        super().__init__(ctx, spec, tuple(pair_serde(spec.key_serde, v) for v in spec.value_serdes))
        self._joiner, self._outer, self._write = spec.joiner, spec.outer, spec.key_serde.serialize

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
        else:
            super().row(port, key, value, ts)

    def close(self, end_ms: int) -> None:
        groups: dict[bytes, tuple[Any, tuple[list[Any], list[Any]]]] = {}
        for port, pairs in enumerate(self.pairs(end_ms)):
            for key, value in pairs:
                groups.setdefault(self._write(key), (key, ([], [])))[1][port].append(value)
        for key, (lefts, rights) in groups.values():
            if not rights and "left" in self._outer:
                rights = [None]
            if not lefts and "right" in self._outer:
                lefts = [None]
            for left in lefts:
                for right in rights:
                    self.emit_row(key, self._joiner(left, right), end_ms - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchStateSpec(BatchSpec):
    """``fn(values, state)`` of each key that has a state or values in the batch, ``state`` being ``None`` without one and
    ``values`` empty without any; keys in the order of their bytes. What it returns is the state, which is emitted;
    ``None`` drops the key. Batches follow each other without a gap as long as there is any state.

    ``timeout_ms``: a key without values for this time, at the end of a batch, is dropped without a call. ``seeded``:
    values come as a ``BatchSeedsSpec`` sends them. ``stores``: values, states, and if seeded the keys that have had
    their first."""

    fn: Callable[[list[Any], Any], Any]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    seeded: bool = False
    timeout_ms: int | None = None

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _BatchStateOperator(ctx, self)


class _BatchStateOperator(_BufferingOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchStateSpec) -> None:
        super().__init__(ctx, spec, (pair_serde(spec.key_serde, spec.value_serde),))
        self._fn, self._keys, self._timeout_ms = spec.fn, spec.key_serde, spec.timeout_ms
        self._states = ctx.state(spec.stores[1].name)
        self._begun = ctx.state(spec.stores[2].name) if spec.seeded else None
        self._live: bool | None = None

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        is_state = False
        if self._begun is not None:
            is_state, value = value
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
        elif is_state:
            self._begin(key, value, ts)
        else:
            super().row(port, key, value, ts)

    def _begin(self, key: Any, state: Any, ts: int) -> None:
        """Every task that sends records sends the initial states before them; the first copy counts."""
        assert self._begun is not None
        name = self._keys.serialize(key)
        if self._begun.get(name) is None:
            self._begun.put(name, b"\x01", ts)
            at = self.wall_ms if self.intervals.wall else ts
            self._states.put(name, state, max(self._end_after(_floor(at, self.intervals.pane_ms)), 0))
            self._live = None

    def restless(self) -> bool:
        if self._live is None:
            self._live = next(self._states.range(), None) is not None
        return self._live

    def close(self, end_ms: int) -> None:
        (pairs,) = self.pairs(end_ms)
        values: dict[bytes, list[Any]] = {}
        for key, value in pairs:
            values.setdefault(self._keys.serialize(key), []).append(value)
        states = {key: (state, ts) for key, state, ts in self._states.range()}
        for name in sorted({*states, *values}):
            new = values.get(name, [])
            old, seen_ms = states.get(name, (None, end_ms))
            if new:
                seen_ms = end_ms
            elif self._timeout_ms is not None and end_ms - seen_ms >= self._timeout_ms:
                self._states.put(name, None, end_ms)
                continue
            state = self._fn(new, old)
            self._states.put(name, state, seen_ms)
            if state is not None:
                self.emit_row(self._keys.deserialize(name), state, end_ms - 1)
        self._live = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSeedsSpec(OperatorSpec):
    """Sends first states ahead of a task's records: values are pairs of whether it is a state, and the state or value.
    ``seeds``: pairs of key and state, created at each call. The store holds one entry once they are sent."""

    seeds: Callable[[], Iterable[KeyValuePair]]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _BatchSeedsOperator(ctx, self)


class _BatchSeedsOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: BatchSeedsSpec) -> None:
        super().__init__(ctx, spec)
        self._sent = ctx.state(spec.stores[0].name)
        self._seeds = spec.seeds

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if self._sent.get(b"") is None:
            for name, state in self._seeds():
                self.emit_row(name, (True, state), ts, headers=())
            self._sent.put(b"", b"\x01", ts)
        self.emit_row(key, (False, value), ts)

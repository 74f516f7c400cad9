"""Aggregations over policy windows (``penstock.topologies.windows.evicting``): results are facts, one per emission,
under the record's key.

A tumbling window keeps only its aggregate; a sliding one keeps its records, and folds them when it is emitted. Time
is the operator's stream time, or processing time: what is due up to a record's time happens before the record is
processed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.encoding import packed
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator, Fold
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue, timer_store
from penstock.topologies.windows.evicting import CountPolicy, Delta, EvictingWindows, Policy, Punctuation, TimePolicy

Number = float | int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvictingAggregateSpec(OperatorSpec):
    """``fold`` of the records in a key's window. Stores: windows and, for time policies, timers."""

    fold: Fold
    windows: EvictingWindows
    key_serde: Serde[Any]
    record_serde: Serde[Any]
    acc_serde: Serde[Any]
    emits: Emits = "insert"

    def __post_init__(self) -> None:
        if self.sends_olds:
            raise TopologyError(
                f"operator {self.stores[0].name!r}: results of policy windows are facts, not the changes of a table; "
                "take to_stream(), and to_table() of it if the last result per key is meant"
            )

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return (
            _TumblingEvictingOperator(ctx, self)
            if self.windows.trigger is None
            else _SlidingEvictingOperator(ctx, self)
        )

    def details(self) -> dict[str, Any]:
        """Store and policies."""
        return {"store": self.stores[0].name, "window": self.windows.describe()}


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over such windows."""
    windows = request.windows
    assert isinstance(windows, EvictingWindows)
    what = f"operator {request.name!r}: windows of policies"
    if request.record is None:
        raise TopologyError(f"{what} cannot be cogrouped; merge the streams, then group them")
    if request.late:
        raise TopologyError(f"{what} take records as they come, so none is late; leave late=True out")
    serde = _TUMBLING if windows.trigger is None else _SLIDING
    stores: tuple[StoreSpec, ...] = (StoreSpec(request.name, "key_value", request.key, serde),)
    timed = any(isinstance(p, TimePolicy) for p in (windows.evict, windows.trigger))
    if timed:
        stores = (*stores, timer_store(f"{request.name}-timers"))
    by_clock = windows.time == "processing"
    spec = EvictingAggregateSpec(
        stores=stores,
        order_sensitive=timed and not by_clock,
        fold=request.fold,
        windows=windows,
        key_serde=request.key,
        record_serde=request.record,
        acc_serde=request.value,
        uses_wall_time=by_clock,
        reads_wall_time=by_clock,
    )
    return BuiltOperator(spec, request.key)


class _Window(NamedTuple):
    """A tumbling window. ``anchor``: the number of its first record."""

    opened_ms: int
    records: int
    anchor: Number
    latest_ms: int
    acc: bytes | None


class _Item(NamedTuple):
    """A record in a sliding window. ``number``: what a delta policy measures."""

    ts: int
    number: Number
    value: bytes


class _Buffer(NamedTuple):
    """A sliding window. ``records`` since it was emitted, ``anchor``: the number of the last record that triggered,
    ``fresh``: changed since it was last emitted, ``timer_ms``: its timer, -1 without one."""

    opened_ms: int
    records: int
    anchor: Number
    fresh: bool
    timer_ms: int
    items: tuple[_Item, ...]


# read back as plain tuples, so what is written is converted too, for equality
_TUMBLING = packed("window-of-policies", tuple[int, int, Number, int, bytes | None])
_SLIDING = packed("buffer-of-policies", tuple[int, int, Number, bool, int, tuple[tuple[int, Number, bytes], ...]])


class _EvictingOperator(RowOperator):
    """The common part of both kinds: time, and folding."""

    spec: EvictingAggregateSpec

    def __init__(self, ctx: OperatorContext, spec: EvictingAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._fold = spec.fold
        self._evict = spec.windows.evict
        self._state: KeyValueStoreView = ctx.state(spec.stores[0].name)
        self._timers = TimerQueue(ctx.state(spec.stores[1].name)) if len(spec.stores) > 1 else None
        self._by_clock = spec.uses_wall_time
        self._write, self._read = spec.record_serde.serialize, spec.record_serde.deserialize

    def load(self, port: int, batch: Batch) -> None:
        keys: list[bytes] = []
        for key in set(map(_hashed, batch.keys)) - {None}:
            try:
                keys.append(self.spec.key_serde.serialize(key))
            except Exception:  # the row meets it again
                continue
        self._state.load(keys)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        if self._by_clock:
            ts = now_ms = self.wall_ms
        else:
            now_ms = self.advance_stream_time(ts)
            self._fire(now_ms)
        fired = len(self._out)
        try:
            self.take(key, self.spec.key_serde.serialize(key), value, ts, now_ms)
        except Exception:
            # the record's own output is dropped, not what time emitted before it
            del self._out[fired:]
            self._send()
            raise

    def take(self, key: Any, data: bytes, value: Any, ts: int, now_ms: int) -> None:
        """A record of a key, whose bytes are ``data``."""
        raise AssertionError(type(self).__name__)

    def due(self, data: bytes, time_ms: int) -> None:
        """A timer of a key."""
        raise AssertionError(type(self).__name__)

    def _fire(self, now_ms: int) -> None:
        if self._timers is None:
            return
        headers, self.headers = self.headers, ()
        try:
            while some := self._timers.due(now_ms):
                for time_ms, data in some:
                    self.due(data, time_ms)
        except Exception as exc:  # for no record that could be skipped
            self.ctx.failed(Batch([None], [None], [max(now_ms, 0)], [self._order]), 0, exc, may_skip=False)
        self.headers = headers

    def on_wall(self, now_ms: int) -> None:
        self._fire(now_ms)

    def next_wall_ms(self) -> int | None:
        return self._timers.next_ms if self._timers is not None and self._by_clock else None

    def _set(self, data: bytes, time_ms: int) -> None:
        assert self._timers is not None
        self._timers.set(time_ms, data)

    def _key(self, data: bytes) -> Any:
        return self.spec.key_serde.deserialize(data)


class _TumblingEvictingOperator(_EvictingOperator):
    def take(self, key: Any, data: bytes, value: Any, ts: int, now_ms: int) -> None:
        policy = self._evict
        number = policy.measure(value) if isinstance(policy, Delta) else None
        ends = isinstance(policy, Punctuation) and bool(policy.fn(value))
        window = self._window(data)
        full: list[_Window] = []
        if window is not None and (self._is_past(window, number) or (ends and not _inclusive(policy))):
            full.append(window)
            window = None
        window = self._with(window, key, value, ts, now_ms, number)
        if (isinstance(policy, CountPolicy) and window.records >= policy.n) or (ends and _inclusive(policy)):
            full.append(window)
            left: _Window | None = None
        else:
            left = window
        for one in full:
            self._emit(key, one)
        self._state.put(data, None if left is None else tuple(left), ts)
        if left is not None and isinstance(policy, TimePolicy) and left.records == 1:
            self._set(data, left.opened_ms + policy.ms)

    def _window(self, data: bytes) -> _Window | None:
        found = self._state.get(data)
        return None if found is None else _Window(*found[0])

    def _is_past(self, window: _Window, number: Number) -> bool:
        """Whether a record of this number is too far from the window's first one."""
        if not isinstance(self._evict, Delta) or number is None or window.anchor is None:
            return False
        return abs(number - window.anchor) > self._evict.distance

    def _with(self, window: _Window | None, key: Any, value: Any, ts: int, now_ms: int, number: Number) -> _Window:
        read, write = self.spec.acc_serde.deserialize, self.spec.acc_serde.serialize
        old = None if window is None or window.acc is None else read(window.acc)
        new = self._fold.add(0, key, value, ts, old)
        acc = None if new is None else write(new)
        if window is None:
            return _Window(now_ms, 1, number, ts, acc)
        return window._replace(records=window.records + 1, latest_ms=max(window.latest_ms, ts), acc=acc)

    def _emit(self, key: Any, window: _Window) -> None:
        acc = None if window.acc is None else self.spec.acc_serde.deserialize(window.acc)
        self.emit_row(key, self._fold.shown(acc), window.latest_ms)

    def due(self, data: bytes, time_ms: int) -> None:
        window = self._window(data)
        if window is not None and isinstance(self._evict, TimePolicy) and window.opened_ms + self._evict.ms == time_ms:
            self._emit(self._key(data), window)
            self._state.put(data, None, window.latest_ms)


class _SlidingEvictingOperator(_EvictingOperator):
    def __init__(self, ctx: OperatorContext, spec: EvictingAggregateSpec) -> None:
        super().__init__(ctx, spec)
        assert spec.windows.trigger is not None
        self._trigger: Policy = spec.windows.trigger

    def take(self, key: Any, data: bytes, value: Any, ts: int, now_ms: int) -> None:
        evict, trigger = self._evict, self._trigger
        number = evict.measure(value) if isinstance(evict, Delta) else None
        moved = trigger.measure(value) if isinstance(trigger, Delta) else None
        ends = isinstance(evict, Punctuation) and bool(evict.fn(value))
        fires = isinstance(trigger, Punctuation) and bool(trigger.fn(value))
        found = self._state.get(data)
        empty = _Buffer(now_ms, 0, moved, False, -1, ())
        buffer = empty if found is None else self._buffer(found[0])
        if isinstance(evict, TimePolicy):
            if ts <= now_ms - evict.ms:
                self.ctx.dropped("late")
                return
            left = self._kept(buffer.items, None, now_ms)
            buffer = buffer._replace(items=left) if left else empty
        if fires and not _inclusive(trigger) and buffer.items:
            self._emit(key, buffer)
            buffer = buffer._replace(records=0)
        items = () if ends else self._kept(buffer.items, number, now_ms)
        items = (*items, _Item(ts, number, self._write(value)))
        if isinstance(evict, CountPolicy):
            items = items[-evict.n :]
        buffer = buffer._replace(records=buffer.records + 1, fresh=True, items=items)
        if self._triggers(buffer, moved) or (fires and _inclusive(trigger)):
            self._emit(key, buffer)
            buffer = buffer._replace(records=0, anchor=moved, fresh=False)
        self._keep(data, buffer, now_ms)

    def _buffer(self, stored: Any) -> _Buffer:
        opened, records, anchor, fresh, timer, items = stored
        return _Buffer(opened, records, anchor, fresh, timer, tuple(_Item(*item) for item in items))

    def _kept(self, items: tuple[_Item, ...], number: Number, now_ms: int) -> tuple[_Item, ...]:
        """The records that a new one with this number, or the time, evicts."""
        evict = self._evict
        if isinstance(evict, Delta) and number is not None:
            return tuple(i for i in items if i.number is not None and abs(number - i.number) <= evict.distance)
        if isinstance(evict, TimePolicy):
            return tuple(i for i in items if i.ts > now_ms - evict.ms)
        return items

    def _triggers(self, buffer: _Buffer, moved: Number) -> bool:
        trigger = self._trigger
        if isinstance(trigger, CountPolicy):
            return buffer.records >= trigger.n
        if isinstance(trigger, Delta) and moved is not None and buffer.anchor is not None:
            return abs(moved - buffer.anchor) > trigger.distance
        return False

    def _emit(self, key: Any, buffer: _Buffer) -> None:
        acc: Any = None
        for item in buffer.items:
            acc = self._fold.add(0, key, self._read(item.value), item.ts, acc)
        self.emit_row(key, self._fold.shown(acc), max(item.ts for item in buffer.items))

    def _keep(self, data: bytes, buffer: _Buffer, now_ms: int) -> None:
        """Store the window, with a timer if time can change it."""
        if buffer.timer_ms < 0 and (next_ms := self._next(buffer, now_ms)) is not None:
            self._set(data, next_ms)
            buffer = buffer._replace(timer_ms=next_ms)
        stored = (*buffer[:-1], tuple(map(tuple, buffer.items)))
        self._state.put(data, stored, max(item.ts for item in buffer.items))

    def _next(self, buffer: _Buffer, now_ms: int) -> int | None:
        """When to check the window again if no record arrives."""
        if isinstance(self._trigger, TimePolicy) and (buffer.fresh or isinstance(self._evict, TimePolicy)):
            every = self._trigger.ms
            return buffer.opened_ms + ((now_ms - buffer.opened_ms) // every + 1) * every
        if isinstance(self._evict, TimePolicy):
            return max(item.ts for item in buffer.items) + self._evict.ms
        return None

    def due(self, data: bytes, time_ms: int) -> None:
        found = self._state.get(data)
        if found is None:
            return
        buffer = self._buffer(found[0])
        if buffer.timer_ms != time_ms:
            return
        items = self._kept(buffer.items, None, time_ms)
        if not items:
            self._state.put(data, None, time_ms)
            return
        fresh = buffer.fresh or len(items) < len(buffer.items)
        buffer = buffer._replace(items=items, fresh=fresh, timer_ms=-1)
        if isinstance(self._trigger, TimePolicy) and fresh:
            self._emit(self._key(data), buffer)
            buffer = buffer._replace(records=0, fresh=False)
        self._keep(data, buffer, time_ms)


def _inclusive(policy: Policy) -> bool:
    return isinstance(policy, Punctuation) and policy.inclusive


def _hashed(key: Any) -> Any:
    """Keys that cannot be hashed are loaded one by one."""
    try:
        hash(key)
    except TypeError:
        return None
    return key

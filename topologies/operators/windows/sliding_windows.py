"""Aggregations per key and sliding window, as Kafka Streams' sliding windows.

Windows are ``difference`` long, both ends inside, and exist where the data has them: for a record at t the *left* window
[t - difference, t], and the *right* window [t + 1, t + 1 + difference] as soon as it holds something. Records earlier
than the difference have no left window of their own and share the window [0, difference]. A record goes into every window
that there is around it; the windows that it calls into being take what they hold from their neighbours, so that nothing
but aggregates is kept. Changed windows are emitted by start (Kafka Streams has another order).

A window closes when T is past its end + grace. A record is late when t + difference + grace < T, or when all windows that
it would change have closed; in those that have not it counts. Windows keep a further two differences, because later
windows are made of them.

The store is a ``key_window`` store.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import Any

from penstock.state.serdes.serde import Serde
from penstock.state.serdes.window_keys import starting_serde, windowed_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.base.entry_index import EntryIndex, EntryPlace
from penstock.topologies.operators.windows.data_driven_windows import DataDrivenAggregateOperator, WindowUpdate
from penstock.topologies.operators.windows.window_closing import ClosingAggregateSpec, closing_spec, retained_ms
from penstock.topologies.windows import SlidingWindows


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingAggregateSpec(ClosingAggregateSpec):
    """``Aggregate`` per sliding window."""

    windows: SlidingWindows

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _SlidingAggregateOperator(ctx, self)


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over sliding windows."""
    windows = request.windows
    assert isinstance(windows, SlidingWindows)
    # the right window of the last record of a window that ends before a record may still be open
    least_ms = windows.horizon_ms + 1
    retention_ms, lag_ms = retained_ms(request, least_ms)
    store = StoreSpec(
        request.name,
        "key_window",
        request.key,
        request.value,
        window_size_ms=windows.difference_ms,
        retention_ms=max(retention_ms, least_ms),
    )
    spec = closing_spec(SlidingAggregateSpec, request, store, one_by_one=True, lag_ms=lag_ms)
    return BuiltOperator(spec, _key_serde(request.key, windows))


def _key_serde(key: Serde[Any], windows: SlidingWindows) -> Serde[Any]:
    if windows.difference_ms:
        return windowed_serde(key, windows.difference_ms)
    return starting_serde(key, windows.describe(), lambda start: start)


class _SlidingAggregateOperator(DataDrivenAggregateOperator):
    def __init__(self, ctx: OperatorContext, spec: SlidingAggregateSpec) -> None:
        windows = spec.windows
        closes_after_ms = windows.difference_ms + windows.grace_ms + 1
        super().__init__(ctx, spec, spec.store.retention_ms or 0, closes_after_ms)
        self._difference_ms = windows.difference_ms
        self._grace_ms = windows.grace_ms

    def bounds(self, place: EntryPlace, timestamp_ms: int) -> tuple[int, int]:
        return place[0], place[0] + self._difference_ms

    def changes(
        self, port: int, key: Any, data: bytes, value: Any, ts: int, now_ms: int
    ) -> tuple[list[WindowUpdate], bool]:
        out: list[WindowUpdate] = []
        taken = False
        size_ms = self._difference_ms
        if ts + size_ms + self._grace_ms < now_ms:
            return out, taken
        around = _Around(self.index, data, ts, size_ms)
        for start in around.starts():
            if start + size_ms + self._grace_ms < now_ms:
                continue
            place, found = (start, b""), around.found.get(start)
            existed, old = found is not None, None
            if start > ts:  # the record's right window: others are in it
                new, last_ms = around.right()
            else:
                old = self.old_of(data, place) if existed else None
                aggregate, last_ms = around.made_of(start) if found is None else found
                new, last_ms = self.fold.add(port, key, value, ts, aggregate), max(ts, last_ms)
                taken = True
            out.append(WindowUpdate(place, start, start + size_ms, new, last_ms, existed, old))
        return out, taken


class _Around:
    """A key's windows around a record's time. ``found``: those that hold it, by start: aggregate and last record."""

    def __init__(self, index: EntryIndex, data: bytes, ts: int, difference_ms: int) -> None:
        places = index.places(data)
        self._index = index
        self._data = data
        self._ts = ts
        self._early = ts < difference_ms
        self._left = max(ts - difference_ms, 0)
        """The start of the record's left window, or of that of all early records."""
        first, behind = bisect_left(places, (self._left, b"")), bisect_left(places, (ts + 1, b""))
        self.found = {place[0]: index.get(data, place) for place in places[first:behind]}
        self._has_right = behind < len(places) and places[behind][0] == ts + 1
        self._former: tuple[Any, int] | None = None
        """The last window that ends before the record, if near enough to matter."""
        if first and not self._early and places[first - 1][0] >= ts - 2 * difference_ms:
            self._former = index.get(data, places[first - 1])

    def starts(self) -> list[int]:
        """The starts of all windows that the record changes or makes, ascending."""
        starts = {self._left, *self.found}
        previous_ms = self._previous_ms()
        if previous_ms is not None and previous_ms >= self._left - 1:
            starts.add(previous_ms + 1)
        last = self._last_start()
        if not self._has_right and last is not None and self.found[last][1] > self._ts:
            starts.add(self._ts + 1)
        return sorted(starts)

    def _previous_ms(self) -> int | None:
        """The time of the record before this one, where the window right of it may have to be made."""
        left = self.found.get(self._left)
        if left is None:
            return None if self._former is None else self._former[1]
        return left[1] if left[1] < self._ts else None

    def _last_start(self) -> int | None:
        """The start of the last window around the record, which holds no earlier records. The record's left window
        counts only if the record is early."""
        last = next(reversed(self.found), None)
        return None if last == self._left and not self._early else last

    def right(self) -> tuple[Any, int]:
        """The contents of the record's right window: those of the last window around it."""
        last = self._last_start()
        assert last is not None
        return self._index.get(self._data, (last, b""))

    def made_of(self, start: int) -> tuple[Any, int]:
        """The contents, without the record, of a window that it makes: aggregate (``None``: nothing) and last record."""
        former = self._former
        if start == self._left and former is not None and former[1] >= start:
            return former
        return None, self._ts

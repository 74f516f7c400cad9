"""When windows close: the base of aggregations over windows that are ordered in time (``SpanWindows``).

The operator's time T is its stream time (the highest timestamp it has seen, the present record included; of a cogroup, the
highest of the record's own input), or the task's watermark + 1, or processing time. A window takes records while its
end + grace > T. T is kept in ``stream_time_ms``, which is committed with the offsets, so that a restart closes nothing
twice.

Only the *floor* matters to a record: the lowest start of a window that is still open. So a batch is cut where the floor
moves, and each piece is handled as a whole. What closes is emitted with the order of the record that moved time, or, by
watermark, right after the place that moved it.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.column_parts import by_columns_or_rows
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.required_columns import InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.aggregate import AggregateOperator, AggregateSpec
from penstock.topologies.operators.aggregates.fold import Aggregation
from penstock.topologies.operators.base.store_timers import timer_store
from penstock.topologies.operators.columnar.input_modes import counting_mode
from penstock.topologies.operators.input_times import InputTimes
from penstock.topologies.windows import SpanWindows, Windows

LAST_TIME_MS = 1 << 62
"""Where time stops: the watermark may come to the end of time, and what is computed of it must fit 63 bits."""
ClosingTime = Literal["stream_time", "watermark", "wall"]


def clock_of(request: Aggregation) -> ClosingTime:
    """The clock that closes the windows of a request."""
    assert request.windows is not None
    if request.windows.time == "processing":
        return "wall"
    return "watermark" if request.by_watermark else "stream_time"


LAG_MS = 86_400_000
"""By how much an input of a cogroup may lie behind the others, unless the user names a retention."""


def retained_ms(request: Aggregation, least_ms: int) -> tuple[int, int | None]:
    """For how long windows are kept (by default ``least_ms``), and by how much an input may lie behind the others
    (``None``: they have one stream time)."""
    named_ms = request.retention_ms
    one_time = len(request.fold.adders) == 1 or request.emission == "on_close" or clock_of(request) != "stream_time"
    if one_time:
        return named_ms or least_ms, None
    return (least_ms + LAG_MS, LAG_MS) if named_ms is None else (named_ms, max(named_ms - least_ms, 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosingAggregateSpec(AggregateSpec):
    """``AggregateSpec`` per window. ``clock``: what closes them. ``lag_ms``: each input has a stream time of its own
    (``penstock.topologies.operators.input_times``); ``None``: all have one."""

    windows: Windows
    clock: ClosingTime = "stream_time"
    lag_ms: int | None = None

    olds_in_columns: ClassVar[bool] = False
    flushes_columns: ClassVar[bool] = False
    lists_of_keys: ClassVar[bool] = False

    @property
    def tallies(self) -> bool:
        return False

    def input_times(self) -> InputTimes | None:
        """The input times of a new operator."""
        return None if self.lag_ms is None else InputTimes(self.in_ports, self.lag_ms)

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return counting_mode(None, why_rows="its windows are neither tumbling nor hopping ones")

    def details(self) -> dict[str, Any]:
        """Store, windows and emission."""
        by = {} if self.clock == "stream_time" else {"closed_by": self.clock}
        return {**super().details(), "window": self.windows.describe(), **by}


S = TypeVar("S", bound=ClosingAggregateSpec)


def closing_spec(
    kind: type[S], request: Aggregation, store: StoreSpec, *, one_by_one: bool, lag_ms: int | None = None
) -> S:
    """The spec of an aggregation over windows. ``one_by_one``: nothing else says which windows close next, so if they are
    emitted then, a second store has the times of their ends."""
    assert request.windows is not None
    clock = clock_of(request)
    timers = one_by_one and request.emission == "on_close"
    return kind(
        in_ports=request.in_ports,
        out_ports=request.out_ports,
        stores=(store, timer_store(f"{request.name}-closing")) if timers else (store,),
        emission=request.emission,
        # which records are late depends on the records of other keys, which move time
        order_sensitive=True,
        fold=request.fold,
        windows=request.windows,
        clock=clock,
        lag_ms=lag_ms,
        uses_watermark=clock == "watermark",
        uses_wall_time=clock == "wall",
        reads_wall_time=clock == "wall",
    )


class ClosingAggregateOperator(AggregateOperator):
    """Subclasses call ``close_by`` and have ``take`` and ``closed``."""

    def close_by(self, spec: ClosingAggregateSpec, windows: SpanWindows) -> None:
        """Part of making one."""
        self._windows = windows
        self._clock = spec.clock
        self._input_times = input_times = spec.input_times()
        self._on_close = spec.emission == "on_close"
        """``closed`` must see the state as it was when the floor moved, so that batches may not be taken over it."""
        self.input_times_ms = None if input_times is None else input_times.saved
        self._grace_ms = windows.grace_ms
        self.floor = 0
        """The lowest start of a window that is open; below 0 where one began before 1970."""
        self._limit_ms = 0
        """The time at which the floor moves next."""
        self._place = 0
        """The first place of the batch whose watermark was not seen yet."""

    # -- for subclasses ------------------------------------------------------------------------------------------

    def take(self, port: int, batch: Batch) -> None:
        """Records that meet the present floor; in processing time their timestamps are that."""
        raise AssertionError(type(self).__name__)

    def take_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        """Take records by columns, as ``process_columns`` does."""
        return batch

    def closed(self, before: int, order: int) -> None:
        """The floor has moved up from ``before``; ``order`` is for what is emitted."""
        raise AssertionError(type(self).__name__)

    # -- time ----------------------------------------------------------------------------------------------------

    def resumed(self) -> None:
        self._set_floor()

    def _set_floor(self) -> None:
        self.floor = self._windows.open_from(max(self.stream_time_ms - self._grace_ms, 0))
        self._limit_ms = self._windows.end_of(self.floor) + self._grace_ms

    def _move(self, t: int, order: int) -> None:
        """Time is ``t``, or was further already."""
        t = min(t, LAST_TIME_MS)
        if t <= self.stream_time_ms:
            return
        self.stream_time_ms = t
        if t >= self._limit_ms:
            before = self.floor
            self._set_floor()
            with self.firmly(order):
                self.closed(before, order)

    @contextmanager
    def firmly(self, order: int) -> Iterator[None]:
        """An error inside the block belongs to no record that could be skipped: it stops the task."""
        try:
            yield
        except Exception as exc:
            failed = Batch([None], [None], [max(self.stream_time_ms, 0)], [order])
            self.ctx.failed(failed, 0, exc, may_skip=False)

    # -- for the engine ------------------------------------------------------------------------------------------

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        return batch  # it is cut where the floor moves, and its pieces go by columns

    def process(self, port: int, batch: Batch) -> None:
        if self._clock == "wall":
            self._move(self.ctx.time.wall_ms, _order_at(batch, 0))
            batch = self.stamped(batch)
        batch = self.usable(batch)
        if not len(batch):
            return
        if self._input_times is not None:
            self._by_time_of_input(port, batch, self._input_times)
        elif self._clock == "stream_time":
            self._by_stream_time(port, batch)
        elif self._clock == "watermark":
            self._by_watermark(port, batch)
        else:
            self._hand_on(port, batch)

    def _hand_on(self, port: int, batch: Batch) -> None:
        by_columns_or_rows(self.take_columns, self.take, port, batch)

    def stamped(self, batch: Batch) -> Batch:
        """The records with the timestamps that their windows are found by."""
        if self._clock != "wall":
            return batch
        wall_ms, count = self.ctx.time.wall_ms, len(batch)
        if isinstance(batch, ColumnBatch):
            keys = batch.keys if batch.key_column is None else batch.key_column
            values = batch.values if batch.value_column is None else batch.value_column
            return ColumnBatch(keys, values, np.full(count, wall_ms), batch.orders, batch.headers, batch.olds)
        return Batch(batch.keys, batch.values, [wall_ms] * count, batch.order, batch.headers, batch.olds)

    def _by_stream_time(self, port: int, batch: Batch) -> None:
        times: list[int] | Ints = batch.times if isinstance(batch, ColumnBatch) else batch.timestamps
        earliest, latest = (min(times), max(times)) if isinstance(times, list) else (int(times.min()), int(times.max()))
        if latest >= self._limit_ms and (self._on_close or not self._all_open(earliest, latest)):
            start = 0
            for i, ts in self._moves(times):
                if i > start:
                    self._hand_on(port, batch.slice(start, i))
                self._move(ts, _order_at(batch, i))
                start = i
            batch = batch.slice(start, len(times))
        self._move(latest, _order_at(batch, 0))
        self._hand_on(port, batch)

    def _by_time_of_input(self, port: int, batch: Batch, times: InputTimes) -> None:
        """By the stream time of the records' own input. ``stream_time_ms`` is the highest of all between the calls."""
        highest = self.stream_time_ms
        self.stream_time_ms = times.of(port)
        self._set_floor()
        self._by_stream_time(port, batch)
        times.show(port, self.stream_time_ms)
        self.stream_time_ms = max(highest, self.stream_time_ms)

    def _moves(self, times: list[int] | Ints) -> Iterator[tuple[int, int]]:
        """Places and times of the records that move the floor; the reader of the next one has moved it."""
        if isinstance(times, list):
            for i, ts in enumerate(times):
                if ts >= self._limit_ms:
                    yield i, ts
            return
        at = 0
        while at < len(times):
            beyond = times[at:] >= self._limit_ms
            i = at + int(beyond.argmax())
            if not beyond[i - at]:
                return
            yield i, int(times[i])
            at = i + 1

    def _all_open(self, earliest: int, latest: int) -> bool:
        """Whether every window of a record so early is still open at a time so late."""
        windows = self._windows.assign(earliest)
        return bool(windows) and windows[0][0] >= self._windows.open_from(max(latest - self._grace_ms, 0))

    def _by_watermark(self, port: int, batch: Batch) -> None:
        time = self.ctx.time
        stride, marks, order = time.stride, time.watermark_by_place_ms, batch.order
        start = 0
        while start < len(order):
            self._show_until(order[start] // stride)
            moves = bisect_left(marks, self._limit_ms - 1, self._place)
            stop = bisect_left(order, (moves + 1) * stride, start)
            self._hand_on(port, batch.slice(start, stop))
            start = stop

    def _show_until(self, place: int) -> None:
        """See the watermarks that the records before ``place`` left."""
        time = self.ctx.time
        marks = time.watermark_by_place_ms
        while self._place < place:
            moves = min(bisect_left(marks, self._limit_ms - 1, self._place, place), place - 1)
            self._move(marks[moves] + 1, moves * time.stride + 1 + self.ctx.index)
            self._place = moves + 1

    def advance(self, place: int) -> None:
        if self._clock == "watermark":
            self._show_until(place)

    def end_batch(self) -> None:
        self._place = 0

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        time = self.ctx.time
        self._move(now_ms if self._clock == "wall" else time.watermark_before_ms + 1, 1 + self.ctx.index)


def _order_at(batch: Batch, index: int) -> int:
    return int(batch.orders[index]) if isinstance(batch, ColumnBatch) else batch.order[index]

"""The base of operators that must see one record at a time: state, time and emission, row by row, in whole batches.

A subclass overrides ``row``; ``load`` to fetch the state of a batch by one multi-get; ``on_watermark`` (its spec says
``uses_watermark``) and ``on_wall`` with ``next_wall_ms`` (``uses_wall_time``) for timers. It emits with ``emit_row``;
emitted records keep the place of the record or firing that caused them.

When ``row`` raises, what it emitted is dropped and the policy decides; what it wrote to stores stays, so call user
functions before writing. A failing timer stops the task, because there is no record to skip.
"""

from __future__ import annotations

from typing import Any

from penstock.state.log import Headers
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import RETRACTION
from penstock.topologies.operator_api.operator import NO_TIME, Operator, OperatorContext, OperatorSpec

_NONE: Headers = ()


class RowOperator(Operator):
    """See the module. ``old``, ``headers`` and ``retract`` belong to the current record. ``may_skip``: a policy may
    skip a record for which ``row`` raises; otherwise it stops the task."""

    may_skip = True

    def __init__(self, ctx: OperatorContext, spec: OperatorSpec) -> None:
        super().__init__(ctx)
        self.spec = spec
        self.old: Any = None
        self.headers: Headers = _NONE
        self.retract = False
        self.watermark_ms = NO_TIME
        """The watermark as this operator has seen it: that of the records before the current one."""
        self.due_ms = NO_TIME
        """``on_watermark`` need not be called for watermarks below it."""
        self._sends_olds = spec.sends_olds
        self._uses_watermark = spec.uses_watermark
        self._order = 0
        self._place = 0
        self._out: list[tuple[int, Any, Any, int, int, Headers, Any]] = []
        self._refused: Exception | None = None
        """Raised if the policy stops the task for a record that waited."""

    # -- for subclasses ------------------------------------------------------------------------------------------

    def load(self, port: int, batch: Batch) -> None:
        """Fetch the state of records that will come. It may be called for records that never come; it must not
        raise."""

    def before(self, key: Any, value: Any, ts: int) -> None:
        """Called before each record. What it emits stays if ``row`` raises; it must not raise itself."""

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        """One record."""
        raise AssertionError(f"{type(self).__name__} was given a record but has no row method")

    def on_watermark(self, watermark_ms: int) -> None:
        """The watermark has moved to ``watermark_ms``; ``self.watermark_ms`` is the former one."""

    def on_wall(self, now_ms: int) -> None:
        """The clock was read."""

    @property
    def wall_ms(self) -> int:
        """Processing time: the journaled reading of the clock under which the current record runs."""
        return self.ctx.time.wall_ms

    def advance_stream_time(self, ts: int) -> int:
        """Advance the operator's own stream time by a timestamp; returns the new stream time."""
        if ts > self.stream_time_ms:
            self.stream_time_ms = ts
        return self.stream_time_ms

    def emit_row(
        self,
        key: Any,
        value: Any,
        ts: int,
        *,
        old: Any = None,
        headers: Headers | None = None,
        port: int = 0,
        retract: bool = False,
    ) -> None:
        """Emit a record; ``headers`` default to those of the current record."""
        hs = self.headers if headers is None else headers
        if retract:
            hs = (*hs, RETRACTION)
        self._out.append((port, key, value, ts, self._order, hs, old))

    def failed_waiting(self, key: Any, value: Any, ts: int, error: Exception) -> None:
        """Report that an earlier record, which waited, failed; returns if the policy skips it. Other output at this
        place stays."""
        try:
            self.ctx.failed(Batch([key], [value], [ts], [self._order]), 0, error)
        except Exception as exc:
            self._refused = exc
            raise

    # -- for the engine ------------------------------------------------------------------------------------------

    def prefetch(self, port: int, batch: Batch) -> None:
        self.load(port, batch)

    def process(self, port: int, batch: Batch) -> None:
        if not len(batch):
            return
        self.load(port, batch)
        stride = self.ctx.time.stride
        olds, headers = batch.olds, batch.headers
        for i, (key, value, ts, order) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, batch.order, strict=True)
        ):
            if self._uses_watermark and order // stride > self._place:
                self._fire_until(order // stride)
            self._order = order
            self.old = None if olds is None else olds[i]
            self.headers = _NONE if headers is None else headers[i]
            self.retract = bool(self.headers) and RETRACTION in self.headers
            self.before(key, value, ts)
            sent = len(self._out)
            try:
                self.row(port, key, value, ts)
            except Exception as exc:
                if exc is self._refused:
                    raise
                del self._out[sent:]
                self.ctx.failed(batch, i, exc, may_skip=self.may_skip)
        self.headers, self.old, self.retract = _NONE, None, False
        self._send()

    def _fire_until(self, place: int) -> None:
        """Apply the watermarks after the records before ``place``."""
        time = self.ctx.time
        marks = time.watermark_by_place_ms
        if self._place < place and marks[place - 1] < self.due_ms:
            self.watermark_ms = max(self.watermark_ms, marks[place - 1])
            self._place = place
        while self._place < place:
            mark = marks[self._place]
            if self.watermark_ms < mark < self.due_ms:
                self.watermark_ms = mark
            elif mark > self.watermark_ms:
                self._order = self._place * time.stride + 1 + self.ctx.index
                self._fire(mark)
            self._place += 1

    def _fire(self, mark: int) -> None:
        self.headers, self.old, self.retract = _NONE, None, False
        try:
            self.on_watermark(mark)
        except Exception as exc:
            if exc is self._refused:
                raise
            failed = Batch([None], [None], [max(mark, 0)], [self._order])
            self.ctx.failed(failed, 0, exc, may_skip=False)
        self.watermark_ms = mark

    def advance(self, place: int) -> None:
        if self._uses_watermark:
            self._fire_until(place)
            self._send()

    def end_batch(self) -> None:
        self._place = 0

    def resumed(self) -> None:
        self.watermark_ms = self.ctx.time.watermark_before_ms

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        self._order = 1 + self.ctx.index
        self.headers, self.old, self.retract = _NONE, None, False
        mark = self.ctx.time.watermark_before_ms
        if self._uses_watermark and mark > self.watermark_ms:
            self._fire(mark)
        if self.spec.uses_wall_time:
            try:
                self.on_wall(now_ms)
            except Exception as exc:
                self.ctx.failed(Batch([None], [None], [max(now_ms, 0)], [self._order]), 0, exc, may_skip=False)
        self._send()

    def _send(self) -> None:
        """Emit in the order of the calls: runs that go to one port."""
        out, self._out = self._out, []
        start = 0
        for i in range(1, len(out) + 1):
            if i == len(out) or out[i][0] != out[start][0]:
                port, keys, values, times, order, headers, olds = zip(*out[start:i], strict=True)
                batch = Batch(
                    list(keys),
                    list(values),
                    list(times),
                    list(order),
                    list(headers) if any(headers) else None,
                    list(olds) if self._sends_olds else None,
                )
                self.ctx.emit(batch, port[0])
                start = i

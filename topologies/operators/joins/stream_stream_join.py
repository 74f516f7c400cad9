"""The join of two streams within a window of time: Kafka Streams' KStream–KStream join, and Flink's interval join.

A left and a right record with equal keys match if ``left - before <= right <= left + after``, both ends included.
Every pair gives one result, at the later timestamp. Each side is buffered for as long as partners may arrive.

On stream time (Kafka Streams): the operator's stream time is the highest timestamp of either side. A left record
without a partner is emitted with ``None`` once its timestamp + after + grace (a right one's: + before + grace) is
below stream time. It is emitted with the record that advanced stream time and before that record's own results, by
timestamp, right side first, then key. If its time for partners is over on arrival, it is emitted at once. Late
records are still joined with what is buffered. (Kafka Streams looks for records without a partner at most once a
second of wall-clock time, so they may come later there.)

On watermarks (Flink): a record below the watermark is late and dropped; records without a partner are emitted when
the watermark has passed the last timestamp that a partner could have. Grace is not used: the strategy's delay takes
its place.

A restored buffer lacks what its changelog has dropped by age, which can happen if records are much older than the
broker's clock: what would have been emitted alone is then counted as ``expired``.

Joins of typed JSON by expressions run on columns, both sides of a batch at once
(``penstock.topologies.operators.columnar.stream_join``).

Null values are dropped, null keys too by an inner join. If its side is kept, a record with a null key is emitted at
once without a partner. Neither advances stream time.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal

from penstock.state.stores.segmented_store import SegmentedEntry, SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.encoded_columns import SAME_BYTES
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.base.row_functions import plain_function
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.base.timer_batches import TimerBatches
from penstock.topologies.operators.columnar.join_records import EventTime, JoinBounds
from penstock.topologies.operators.columnar.pairs import why_no_pairs
from penstock.topologies.operators.columnar.stream_join import StreamJoinColumns
from penstock.topologies.operators.columnar.unmatched import UnmatchedSides

LEFT, RIGHT = 0, 1
_PENDING = struct.Struct(">Bq")
_SIDE_BYTE = (1, 0)
"""Right before left at equal times, as Kafka Streams orders records without a partner."""
ResultTime = Literal["latest", "left", "right"]
_SHORTEST_PART = 128
"""The least retention behind the watermark is this part of the longest time between two partners."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamStreamJoinSpec(OperatorSpec):
    """``joiner(left, right)``. ``keeps``: which sides are emitted with ``None`` for the other if they find no
    partner. ``condition(left, right)``: a pair that fails it is not joined. ``eager``: records without a partner so
    far are emitted at once, and again with each partner that arrives. Stores: left buffer, right buffer, and, if a
    side is kept, the records without a partner so far. The out port ``late`` has the records that were dropped as
    late."""

    joiner: Callable[[Any, Any], Any]
    before_ms: int
    after_ms: int
    grace_ms: int
    keeps: tuple[bool, bool] = (False, False)
    condition: Callable[[Any, Any], Any] | None = None
    eager: bool = False
    result_time: ResultTime = "latest"
    in_ports: tuple[str, ...] = ("left", "right")
    out_ports: tuple[str, ...] = ("out", "late")
    emits: Emits = "insert"
    accepts: frozenset[Any] = frozenset({"insert", "upsert"})
    order_sensitive: bool = True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        why = self.why_rows
        return InputMode(RequiredColumns(key=True, value=True)) if why is None else InputMode(ALL_AS_ROWS, why)

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        reason = super().row_reason(port, given)
        as_read = given.texts or given.fields is not None
        return reason if reason is not None or as_read else "values come as columns that were not read from the log"

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(keys=True, values=True) if port == 0 and input_mode.rows is None else ROW_LAYOUT

    @property
    def why_rows(self) -> str | None:
        """Why it joins record by record; ``None``: by columns, too."""
        if self.uses_watermark and min(self.before_ms, self.after_ms) < 0:
            return "its partners are all later, or all earlier"
        left, right = self.stores[:2]
        if left.key_serde not in SAME_BYTES or left.key_serde != right.key_serde:
            return f"its keys have the serde {left.key_serde.name}"
        return why_no_pairs(self.condition, self.joiner, {"left": left.value_serde, "right": right.value_serde})

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _StreamStreamJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Kind, bounds and stores."""
        kind = {(False, False): "inner", (True, False): "left", (False, True): "right", (True, True): "outer"}
        return {
            "type": kind[self.keeps],
            "before": f"{self.before_ms} ms",
            "after": f"{self.after_ms} ms",
            "grace": f"{self.grace_ms} ms",
            "stores": ",".join(s.name for s in self.stores),
        }


def buffer_retention_ms(spec_before_ms: int, spec_after_ms: int, grace_ms: int) -> tuple[int, int]:
    """For how long the left and the right buffer keep a record behind stream time."""
    size = spec_before_ms + spec_after_ms
    return max(spec_after_ms, size) + grace_ms, max(spec_before_ms, size) + grace_ms


def watermark_retention_ms(before_ms: int, after_ms: int) -> tuple[int, int]:
    """For how long the left and the right buffer keep a record behind the watermark: as long as a partner may come. If
    that is next to nothing, a bit longer, so that there are not too many segments until the watermark has passed. The
    shorter they are, the more records expire before they are written to the disk."""
    least_ms = (before_ms + after_ms) // _SHORTEST_PART
    return max(after_ms, least_ms), max(before_ms, least_ms)


class _StreamStreamJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: StreamStreamJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._spec = spec
        left, right, *pending = spec.stores
        self._buffers = (
            SegmentedState(ctx.state(left.name), only_appends=True),
            SegmentedState(ctx.state(right.name), only_appends=True),
        )
        self._pending = TimerQueue(ctx.state(pending[0].name)) if pending else None
        self._keys = (left.key_serde, right.key_serde)
        self._condition, self._joiner = plain_function(spec.condition), plain_function(spec.joiner)
        self._inner = not any(spec.keeps)
        self._on_watermarks = spec.uses_watermark
        self._look_ms = (spec.after_ms, spec.before_ms)
        """How far ahead of a record of each side a partner's timestamp may lie."""
        keep_ms = buffer_retention_ms(spec.before_ms, spec.after_ms, spec.grace_ms)
        self._needed_ms = self._look_ms if self._on_watermarks else keep_ms
        """How long each buffer needs a record."""
        self._waiting = None if self._pending is None else TimerBatches(self._pending, ctx.state(pending[0].name))
        self._columns = None if spec.why_rows is not None else _columns_of(spec, self._buffers, keep_ms, self._waiting)
        self._by_columns = False
        """Whether nothing was done by rows since the last batch that was joined by columns."""

    def resumed(self) -> None:
        super().resumed()
        self._expire(self.watermark_ms if self._on_watermarks else self.stream_time_ms)

    # -- columns -------------------------------------------------------------------------------------------------

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        return None if self.process_together([(port, batch)]) else batch

    def process_together(self, batches: Sequence[tuple[int, Batch]]) -> bool:
        if self._columns is None:
            return False
        if self._waiting is not None and not self._by_columns:
            self._waiting.used_by_rows()
        now = self.ctx.time
        marks = now.watermark_by_place_ms if self._on_watermarks else None
        time = EventTime(self.stream_time_ms, self.watermark_ms, marks, now.stride, 1 + self.ctx.index)
        found = self._columns.join(batches, time)
        if found is None:
            return False
        self._by_columns = True
        for reason, count in found.dropped.items():
            self.ctx.dropped(reason, count)
        if found.late is not None:
            self.ctx.emit(found.late, 1)
        if found.out is not None:
            self.ctx.emit(found.out)
        sequences = [
            None if appended is None else buffer.append_all(*appended)
            for buffer, appended in zip(self._buffers, found.appends, strict=True)
        ]
        if found.timers is not None and self._waiting is not None:
            self._waiting.apply(found.timer_changes(sequences), found.timers.until_ms)
        # watermarks go on at the end of the batch: no record that is not late looks at what they drop
        if found.stream_time_ms > self.stream_time_ms:
            self._expire(self.advance_stream_time(found.stream_time_ms))
        return True

    def _emit_overdue_by_columns(self, until_ms: int) -> bool:
        """Whether that was done."""
        if not self._by_columns or self._columns is None or self._waiting is None:
            return False
        found = self._columns.overdue(until_ms, self._order)
        if found is None:
            self._go_on_by_rows()
            return False
        if found.gone:
            self.ctx.dropped("expired", found.gone)
        if found.out is not None:
            self.ctx.emit(found.out)
        self._waiting.apply([(key, False) for key in found.timers], until_ms)
        return True

    # -- rows ----------------------------------------------------------------------------------------------------

    def process(self, port: int, batch: Batch) -> None:
        self._go_on_by_rows()
        super().process(port, batch)

    def _go_on_by_rows(self) -> None:
        if self._by_columns and self._waiting is not None:
            self._waiting.settle()
        self._by_columns = False

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if self._on_watermarks and ts < self.watermark_ms:
            self.ctx.dropped("late")
            self.emit_row(key, value, ts, port=1)
            return
        if value is None or key is None:
            self._without_key_or_value(port, value, ts)
            return
        key_bytes = self._keys[port].serialize(key)
        partners = self._partners(port, key_bytes, value, ts)
        results = [(self._joined(port, value, p.value), p) for p in partners]
        if self._inner:
            self._buffers[port].append(key_bytes, ts, value)
            for result, partner in results:
                self.emit_row(key, result, self._result_ms(port, ts, partner.time_ms))
            return
        alone = not results and self._spec.keeps[port]
        waits = alone and self._waits(port, ts)
        if alone and not waits:
            self._emit_alone(port, key, value, ts)
        sequence = self._buffers[port].append(key_bytes, ts, value)
        for result, partner in results:
            self._matched(1 - port, partner)
            self.emit_row(key, result, self._result_ms(port, ts, partner.time_ms))
        if waits:
            assert self._pending is not None
            payload = _PENDING.pack(_SIDE_BYTE[port], ts) + key_bytes + sequence
            self._pending.set(self._due_ms(port, ts), payload, new=True)

    def _without_key_or_value(self, port: int, value: Any, ts: int) -> None:
        if value is None:
            self.ctx.dropped("null_value")
        elif self._spec.keeps[port]:
            self._emit_alone(port, None, value, ts)
        else:
            self.ctx.dropped("null_key")

    def _partners(self, port: int, key: bytes, value: Any, ts: int) -> list[SegmentedEntry]:
        """The other side's records that match this one, by time, then arrival."""
        spec = self._spec
        before, after = (spec.before_ms, spec.after_ms) if port == LEFT else (spec.after_ms, spec.before_ms)
        if ts + after < 0:
            return []
        found = self._buffers[1 - port].fetch(key, max(ts - before, 0), ts + after)
        condition = self._condition
        if condition is None:
            return list(found)
        if port == LEFT:
            return [e for e in found if condition(value, e.value)]
        return [e for e in found if condition(e.value, value)]

    def _joined(self, port: int, value: Any, other: Any) -> Any:
        return self._joiner(value, other) if port == LEFT else self._joiner(other, value)

    def _result_ms(self, port: int, ts: int, other_ms: int) -> int:
        wanted = self._spec.result_time
        if wanted == "latest":
            return max(ts, other_ms)
        return ts if (wanted == "left") == (port == LEFT) else other_ms

    # -- records without a partner -------------------------------------------------------------------------------

    def _waits(self, port: int, ts: int) -> bool:
        """Whether a record without a partner so far waits for one."""
        over = ts + self._look_ms[port] < self.stream_time_ms and not self._spec.uses_watermark
        return not over and not self._spec.eager and self._pending is not None

    def _due_ms(self, port: int, ts: int) -> int:
        grace_ms = 0 if self._spec.uses_watermark else self._spec.grace_ms
        return ts + self._look_ms[port] + grace_ms

    def _matched(self, port: int, partner: SegmentedEntry) -> None:
        if self._pending is not None and self._spec.keeps[port]:
            due_ms = self._due_ms(port, partner.time_ms)
            packed = _PENDING.pack(_SIDE_BYTE[port], partner.time_ms) + partner.key + partner.suffix
            self._pending.delete(due_ms, packed)

    def _emit_overdue(self, until_ms: int) -> None:
        if self._pending is None or self._emit_overdue_by_columns(until_ms):
            return
        waiting = []
        for _, packed in self._pending.due(until_ms):
            side_byte, ts = _PENDING.unpack_from(packed)
            waiting.append((ts, side_byte, packed[_PENDING.size : -4], packed[-4:]))
        for ts, side_byte, key, sequence in sorted(waiting):
            port = _SIDE_BYTE.index(side_byte)
            found = self._buffers[port].get(key, ts, sequence)
            if found is None:
                # A buffer lives longer than the wait for partners, but its changelog may expire before that of the
                # waiting records.
                self.ctx.dropped("expired")
                continue
            user_key = self._keys[port].deserialize(key)
            try:
                self._emit_alone(port, user_key, found[0], ts, headers=())
            except Exception as exc:
                self.failed_waiting(user_key, found[0], ts, exc)

    def _emit_alone(self, port: int, key: Any, value: Any, ts: int, headers: Any = None) -> None:
        result = self._joiner(value, None) if port == LEFT else self._joiner(None, value)
        self.emit_row(key, result, ts, headers=headers)

    # -- time ----------------------------------------------------------------------------------------------------

    def before(self, key: Any, value: Any, ts: int) -> None:
        """Stream time may advance: emit the records whose time for partners is over, and drop what can find no
        partner any more."""
        if key is None or value is None or self._spec.uses_watermark:
            return
        if ts > self.stream_time_ms:
            self._emit_overdue(self.advance_stream_time(ts) - 1)
            self._expire(ts)

    def _expire(self, now_ms: int) -> None:
        for buffer, needed_ms in zip(self._buffers, self._needed_ms, strict=True):
            buffer.expire_before(now_ms - needed_ms)

    def on_watermark(self, watermark_ms: int) -> None:
        self._emit_overdue(watermark_ms - 1)
        self._expire(watermark_ms)
        if self._pending is None and min(self._look_ms) >= 0:
            # Until then nothing more can be dropped, and a record that is not late neither is below a floor nor looks there.
            self.due_ms = min(b.next_expiry_ms() + ms for b, ms in zip(self._buffers, self._look_ms, strict=True))

    def flush(self) -> None:
        if self._on_watermarks:  # what nobody looks for any more need not be written
            self._expire(self.watermark_ms)


def _columns_of(
    spec: StreamStreamJoinSpec,
    buffers: tuple[SegmentedState, SegmentedState],
    keep_ms: tuple[int, int],
    waiting: TimerBatches | None,
) -> StreamJoinColumns:
    left, right = spec.stores[:2]
    kept = None
    if any(spec.keeps):
        grace_ms = 0 if spec.uses_watermark else spec.grace_ms
        kept = UnmatchedSides(spec.keeps, (spec.after_ms, spec.before_ms), grace_ms, waiting is not None)
    bounds = JoinBounds(spec.before_ms, spec.after_ms, keep_ms, spec.result_time, kept)
    serdes = left.value_serde, right.value_serde
    return StreamJoinColumns(bounds, spec.condition, spec.joiner, buffers, left.key_serde, serdes, waiting)


def join_stores(
    name: str, keys: tuple[Any, Any], values: tuple[Any, Any], retention_ms: tuple[int, int]
) -> tuple[StoreSpec, StoreSpec]:
    """The two buffers of a join called ``name``."""
    left, right = (
        StoreSpec(f"{name}-{side}", "list", k, v, retention_ms=max(ms, 1))
        for side, k, v, ms in zip(("left", "right"), keys, values, retention_ms, strict=True)
    )
    return left, right

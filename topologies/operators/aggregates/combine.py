"""Combining before a repartition: the records of a key (of those that have the same windows) become one partial
aggregate, which is sent instead of them; the aggregation after the topic merges partials. For aggregations whose
merge is exact.

Partials are held from commit to commit, in no store: a commit sends them first, and so does everything else that must
not overtake them. The reader of the topic then gets the records in an order that is possible without combining too:

* A partial has the highest timestamp of its records.
* Partials are sent in the order in which their keys first had a record. Those of one task keep that order in the
  topic.
* Everything held is sent before a record is taken whose timestamp closes a window of something held. So no record of
  a partial lies behind one that closes its window, unless all of them do: a partial is late only if its records would
  have been.
* Everything held is sent before a watermark, or the news that the task is idle, that would close a window of it
  (without windows: that has passed a record of it).

If a user function refuses a record, under a policy that skips it, the reader of the topic does not see it,
not even as a moment of stream time.

Windows in processing time are those of the moment at which the aggregation takes a record. So nothing is held for them
beyond the batch whose records they are, and these count in one window, as records of one batch do.

Sessions depend on the times of their records alone. Those of a key that lie within one gap from each other are in one
session, and its bounds follow from the first and the last one, so two partials are sent, with these times. They are sent
with their batch, and before a watermark that leaves only records behind one of theirs: up to then each session that they
reach is open, also one that ends where they begin, and the order among them shows nowhere.

Between tasks that write one topic nothing is ordered, with or without combining; but with combining a task may be up
to a commit interval behind another one.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from penstock.state.serdes.serde import BYTES, STRING, Serde
from penstock.topologies.aggregators.kept_records import KeptBest, KeptByRank
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Emission, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.aggregates.column_combining import (
    Spans,
    closing_ms,
    closing_row,
    first_spans,
)
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.kept import keeping_mode
from penstock.topologies.operators.aggregates.partial_aggregates import (
    CountPartials,
    PartialAggregates,
    SessionPartials,
    SpanPartials,
    count_partials,
)
from penstock.topologies.operators.aggregates.tallied_partials import partials_of
from penstock.topologies.operators.base.row_functions import serialize_keys, without_nulls
from penstock.topologies.operators.columnar.grouping import entries_of
from penstock.topologies.operators.columnar.input_modes import counting_mode, folding_mode, why_rows
from penstock.topologies.windows import ALL_TIME, END_OF_TIME_MS, SpanWindows, WindowSpan, tumbling

HELD_MAX: Final = 100_000
"""The most partials that are held, so that many keys need no more memory than few."""
FOLDED_MAX: Final = 200_000
"""The most records that are folded before partials are sent, if a partial may grow with its records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombineSpec(OperatorSpec):
    """Sends partials of ``fold`` to ``topic`` instead of records. ``windows``: those of the aggregation, if any;
    ``by_watermark``: the watermark closes them, else stream time. ``at_once``: after each batch. ``gap_ms``: of the
    sessions that records are in. Serdes: of keys, of records, of partials.

    Keys are sent as they are if ``keeps_keys``, else as their bytes.
    """

    topic: str
    fold: Fold
    key_serde: Serde[Any]
    record_serde: Serde[Any]
    partial_serde: Serde[Any]
    windows: SpanWindows | None = None
    by_watermark: bool = False
    at_once: bool = False
    gap_ms: int | None = None
    emission: Emission | None = "per_commit"
    emits: Emits = "insert"

    @property
    def keeps_keys(self) -> bool:
        """Whether keys of this serde are equal exactly where their bytes are."""
        return self.key_serde in (STRING, BYTES)

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        if isinstance(self.fold.kept, KeptBest | KeptByRank):
            return keeping_mode(self.fold.kept, None, updates=False, olds=False)
        if self.fold.parts and not self.fold.counts:
            return folding_mode(self.fold.parts, None)
        reason = why_rows(counts=self.fold.counts, sends_olds=False, ready=self.fold.timed)
        return counting_mode(None, why_rows=reason)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(keys=True, values=True) if self.fold.counts else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return WatermarkCombineOperator(ctx, self) if self.uses_watermark else CombineOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The span that distinguishes partials, besides the key."""
        if self.gap_ms is not None:
            return {"gap_ms": self.gap_ms}
        return {} if self.windows is None else {"window": self.windows.describe()}


class CombineOperator(Operator):
    """Sends what is held before a record that would close a window of it, and at commits."""

    def __init__(self, ctx: OperatorContext, spec: CombineSpec) -> None:
        super().__init__(ctx)
        self._key_serde = spec.key_serde
        self._keeps_keys = spec.keeps_keys
        sent = spec.key_serde if spec.keeps_keys else BYTES
        self._partials: PartialAggregates
        if spec.gap_ms is not None:
            self._partials = SessionPartials(sent)
        elif spec.fold.counts:
            self._partials = count_partials(sent)
        else:
            self._partials = partials_of(
                ctx, spec.fold, spec.record_serde, spec.partial_serde, keys=spec.key_serde, sent=sent
            )
        spans = spec.windows if spec.gap_ms is None else tumbling(spec.gap_ms, grace=0)
        self._span_of = (lambda ts: ALL_TIME) if spans is None else spans.same_windows
        self._span = WindowSpan(0, 0, END_OF_TIME_MS)
        self.limit_ms = END_OF_TIME_MS
        """The time that closes the first window of what is held."""
        self._closed_by_records = not spec.by_watermark
        self._at_once = spec.at_once

    # -- records -------------------------------------------------------------------------------------------------

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if batch.key_column is None or not self._partials.in_columns:
            return batch
        usable = without_nulls(self.ctx, batch, "value")
        assert isinstance(usable, ColumnBatch)
        if self._partials.reads(usable):  # by rows, a value that cannot be read is met before a key that is null
            usable = without_nulls(self.ctx, usable, "key")
            assert isinstance(usable, ColumnBatch)
        taken = self.take_columns(usable) if len(usable) else 0
        if taken:
            self._send_if_due(int(usable.orders[taken - 1]))
        return None if taken == len(usable) else usable.slice(taken, len(usable))

    def process(self, port: int, batch: Batch) -> None:
        batch = without_nulls(self.ctx, batch, "value")
        keys, batch = self._grouping_keys(self._partials.readable(batch))
        if not keys:
            return
        self.take(keys, batch)
        self._send_if_due(batch.order[-1])

    def _send_if_due(self, order: int) -> None:
        if self._at_once or self._partials.held > HELD_MAX or self._partials.folded > FOLDED_MAX:
            self.send(order)

    def take_columns(self, batch: ColumnBatch) -> int:
        """Add a batch's records as columns, and first send what they would make late. How many were added: the others must
        be taken row by row."""
        taken = 0
        while taken < len(batch):
            left, spans = first_spans(batch.slice(taken, len(batch)), self._span_of)
            closing = closing_row(left.times, spans, self.limit_ms) if self._closed_by_records else None
            if closing is not None:
                left, spans = first_spans(left.slice(0, closing), self._span_of)
            if not self._add_columns(left, spans):
                break
            taken += len(left)
            if closing is not None:
                self.send(int(batch.orders[taken]))
        return taken

    def _add_columns(self, batch: ColumnBatch, spans: Spans) -> bool:
        """Add a batch's records, between which nothing must be sent. ``False``: nothing was done."""
        partials = self._partials
        if not (partials.add_spans(batch, spans) or self._added_whole(batch, spans)):
            made: list[SpanPartials] = []
            for span, inside in spans:
                part = batch if inside is None else batch.where(inside)
                found = entries_of(part, self._key_serde)
                keys = [] if found is None else found.keys if self._keeps_keys else found.store_keys
                one = None if found is None else partials.of_columns(span.low, keys, found, part)
                if one is None:
                    return False
                made.append(one)
            for one in made:
                partials.put(one)
        self.limit_ms = closing_ms(spans, self.limit_ms)
        return True

    def _added_whole(self, batch: ColumnBatch, spans: Spans) -> bool:
        """Count a batch's records without finding their groups, if possible."""
        partials = self._partials
        if len(spans) != 1 or not isinstance(partials, CountPartials):
            return False
        return partials.add_column(spans[0][0].low, batch.key_column, batch.times)

    def _grouping_keys(self, batch: Batch) -> tuple[list[Any], Batch]:
        """The group keys, equal exactly if the keys' bytes are, and the batch of the rows whose key can be written,
        with their keys as the aggregation would have read them."""
        keys, serde = batch.keys, self._key_serde
        if self._keeps_keys and set(map(type, keys)) == {serde.exact}:  # and so none is null
            if serde.exact is bytes:
                return keys, batch
            try:
                "".join(keys).encode()  # there are strings that cannot be written
                return keys, batch
            except UnicodeEncodeError:
                pass
        batch = without_nulls(self.ctx, batch, "key")
        written, batch = serialize_keys(self.ctx, batch, serde)
        batch = batch.replace(keys=list(map(serde.deserialize, written)))
        return (batch.keys if self._keeps_keys else written), batch

    def take(self, keys: list[Any], batch: Batch) -> None:
        """Add records, by runs with the same windows; first send what they would make late."""
        earliest, latest = _bounds(batch)
        if not self._span.low <= earliest < self._span.high:
            self._span = self._span_of(earliest)
        low, high, _ = self._span
        if latest < high:
            self._take_run(keys, batch)
            return
        start, times = 0, batch.timestamps
        for i, ts in enumerate(times):
            if not low <= ts < high:
                if i > start:
                    self._take_run(keys[start:i], batch.slice(start, i))
                low, high, _ = self._span = self._span_of(ts)
                start = i
        self._take_run(keys[start:], batch.slice(start, len(times)))

    def _take_run(self, keys: list[Any], batch: Batch) -> None:
        """Records of the current span, which close no window of their own."""
        low, high, closes_ms = self._span
        if self._closed_by_records and self.limit_ms < high and _bounds(batch)[1] >= self.limit_ms:
            times = batch.timestamps
            closing = next(i for i, ts in enumerate(times) if ts >= self.limit_ms)
            if closing:
                self._partials.add(low, keys[:closing], batch.slice(0, closing))
            self.send(batch.order[closing])
            keys, batch = keys[closing:], batch.slice(closing, len(times))
        self._partials.add(low, keys, batch)
        self.limit_ms = min(self.limit_ms, closes_ms)

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, order: int) -> None:
        """Send all that is held."""
        self.limit_ms = END_OF_TIME_MS
        keys, partials, times = self._partials.taken()
        self.ctx.emit(ColumnBatch(keys, partials, times, np.full(len(keys), order, np.int64)))

    def flush(self) -> None:
        self.send(0)


def _bounds(batch: Batch) -> tuple[int, int]:
    """The earliest and the latest timestamp."""
    if isinstance(batch, ColumnBatch):
        return int(batch.times.min()), int(batch.times.max())
    return min(batch.timestamps), max(batch.timestamps)


class WatermarkCombineOperator(CombineOperator):
    """Also sends what is held before a watermark that passes it is written to the topic."""

    def __init__(self, ctx: OperatorContext, spec: CombineSpec) -> None:
        super().__init__(ctx, spec)
        self._windows = spec.windows
        self._past_ms = 1 if spec.gap_ms is None else 0
        """Without windows, by how much T must have come past a record for partials to be sent before."""
        self._place = 0
        """The first place of the batch whose watermark was not seen yet."""

    def take_columns(self, batch: ColumnBatch) -> int:
        return self._take_places(batch, batch.orders // self.ctx.time.stride)

    def _take_places(self, batch: ColumnBatch, places: Ints) -> int:
        """As ``take_columns``, for records with these places. A batch in which something must be sent is halved."""
        limit_ms = min(self.limit_ms, self._passed_at(int(batch.times.min())))
        first, last = int(places[0]), int(places[-1])
        if self._due(last, limit_ms):
            if first < last:
                half = int(np.searchsorted(places, places[len(places) // 2])) or int(
                    np.searchsorted(places, first, "right")
                )
                taken = self._take_places(batch.slice(0, half), places[:half])
                if taken < half:
                    return taken
                return half + self._take_places(batch.slice(half, len(batch)), places[half:])
            self._show_until(first)
        return super().take_columns(batch)

    def _add_columns(self, batch: ColumnBatch, spans: Spans) -> bool:
        added = super()._add_columns(batch, spans)
        if added and self._windows is None and len(batch):
            self.limit_ms = min(self.limit_ms, int(batch.times.min()) + self._past_ms)
        return added

    def take(self, keys: list[Any], batch: Batch) -> None:
        order, stride = batch.order, self.ctx.time.stride
        if not self._due(order[-1] // stride, min(self.limit_ms, self._passed_at(_bounds(batch)[0]))):
            self._take(keys, batch)
            return
        start = 0
        for i, at in enumerate(order):
            if at // stride > self._place:
                if i > start:
                    self._take(keys[start:i], batch.slice(start, i))
                self._show_until(at // stride)
                start = i
        self._take(keys[start:], batch.slice(start, len(order)))

    def _take(self, keys: list[Any], batch: Batch) -> None:
        super().take(keys, batch)
        if self._windows is None:
            self.limit_ms = min(self.limit_ms, _bounds(batch)[0] + self._past_ms)

    def _passed_at(self, ts: int) -> int:
        """The limit that a record of this timestamp, and any later one, leaves at least."""
        windows = self._windows
        # not the span's: where windows leave gaps, later records may be in a window that an earlier one is not in
        return ts + self._past_ms if windows is None else windows.end_of(windows.open_from(ts)) + windows.grace_ms

    def _due(self, place: int, limit_ms: int) -> bool:
        """Whether the places before this one would have to send what has this limit."""
        time = self.ctx.time
        if place <= self._place or not time.watermark_by_place_ms:
            return False
        return time.watermark_by_place_ms[place - 1] >= limit_ms - 1 or True in time.idle_by_place[self._place : place]

    def _show_until(self, place: int) -> None:
        """See the watermarks that the records before ``place`` left."""
        time = self.ctx.time
        while self._due(place, self.limit_ms) and self._partials.held:
            at = bisect_left(time.watermark_by_place_ms, self.limit_ms - 1, self._place, place)
            if True in time.idle_by_place[self._place : at]:
                at = time.idle_by_place.index(True, self._place)
            self.send(at * time.stride + 1 + self.ctx.index)
            self._place = at + 1
        self._place = max(place, self._place)

    def advance(self, place: int) -> None:
        self._show_until(place)

    def end_batch(self) -> None:
        self._place = 0

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        self.send(1 + self.ctx.index)

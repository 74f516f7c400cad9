"""Pattern matching by batches: conditions are columns, and the compiled part matches events by them.

Taken where each condition reads its event alone and has a column, and events are taken in event time. A batch that has
anything else is left to the rows, to which the compiled part first gives back what it holds; so is an event for which a
condition fails, since it fails when the event is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.topologies.columnar.encoded_columns import SAME_BYTES
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.row_functions import without_nulls
from penstock.topologies.operators.columnar.grouping import entries_of
from penstock.topologies.operators.columnar.row_texts import written_texts
from penstock.topologies.operators.patterns.condition_bits import Bits, ConditionBits
from penstock.topologies.operators.patterns.match_rows import LATE, MATCHES, TIMEOUTS, MatchRowOperator
from penstock.topologies.operators.patterns.packed_matches import (
    Events,
    Handed,
    MatchOutcome,
    PackedMatches,
    patterns_of,
)
from penstock.topologies.patterns.matcher import Match

if TYPE_CHECKING:
    from penstock.topologies.operators.patterns.pattern_match import MatchPatternSpec

_FAR = 1 << 61
"""Times from here on are left to the rows."""


class PatternColumnsOperator(MatchRowOperator):
    """The running form: by columns where it can, else by rows."""

    def __init__(self, ctx: OperatorContext, spec: MatchPatternSpec) -> None:
        super().__init__(ctx, spec)
        self._packed: PackedMatches | None = None
        if spec.why_rows is not None or spec.sends_olds:
            return
        automaton = self._matcher.automaton
        self._bits = ConditionBits(automaton)
        self._texts = written_texts(self._events)
        patterns = patterns_of(automaton, self._bits)
        if patterns is None:
            return
        self._states.keep_bytes()
        alarms, waiting = (ctx.state(store.name) for store in spec.stores[1:])
        read = self._events.deserialize
        self._packed = PackedMatches(
            patterns,
            self._states,
            (alarms, self._alarms),
            (waiting, self._waiting),
            lambda event: self._bits.of_value(read(event)),
        )

    # -- records -------------------------------------------------------------------------------------------------

    def process(self, port: int, batch: Batch) -> None:
        if self._packed is not None and self._packed.active:
            if not len(batch):
                return
            usable = without_nulls(self.ctx, without_nulls(self.ctx, batch, "key"), "value")
            events = self._events_of_rows(usable)
            if events is not None and self._take_events(usable, events):
                return
            self._packed.leave()
            batch = usable
        super().process(port, batch)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if self._packed is None or batch.key_column is None or batch.olds is not None:
            return batch
        usable = without_nulls(self.ctx, without_nulls(self.ctx, batch, "key"), "value")
        assert isinstance(usable, ColumnBatch)
        if not len(usable):
            return None
        events = self._events_of_columns(usable) or self._events_of_rows(usable)
        if events is None or not (self._packed.active or self._packed.begin(self.watermark_ms)):
            return usable
        return None if self._take_events(usable, events) else usable

    def _take_events(self, batch: Batch, events: Events) -> bool:
        """Take events. ``False``: nothing was done."""
        assert self._packed is not None
        found = self._packed.take(events)
        if found is None:
            return False
        self._hand_out(found)
        if len(found.late):
            self.ctx.dropped("late", len(found.late))
            self.ctx.emit(batch.pick(found.late), LATE)
        if len(events.marks):
            self.watermark_ms = max(self.watermark_ms, int(events.marks.max()))
            self._place += len(events.marks)
        self._send()
        return True

    # -- events --------------------------------------------------------------------------------------------------

    def _events_of_columns(self, batch: ColumnBatch) -> Events | None:
        """The events of a batch. ``None``: rows take them."""
        bits = self._bits.of_columns(batch)
        found = None if bits is None else entries_of(batch, self._key)
        if bits is None or found is None:
            return None
        texts = self._texts_of(batch)
        return None if texts is None else self._events_with(batch, found.store_keys, found.groups.numbers, bits, texts)

    def _texts_of(self, batch: ColumnBatch) -> BytesColumn | None:
        """The values as their serde writes them; ``None``: one cannot be written."""
        column = batch.value_column
        texts = None if self._texts is None else self._texts.of_column(column)
        if texts is None and self._events in SAME_BYTES and isinstance(column, BytesColumn):
            texts = column
        return self._written_rows(batch) if texts is None else texts

    def _written_rows(self, batch: Batch) -> BytesColumn | None:
        write = self._events.serialize
        try:
            return BytesColumn.of([write(value) for value in batch.values])
        except Exception:  # not swallowed: its row meets it again
            return None

    def _events_of_rows(self, batch: Batch) -> Events | None:
        """The events of records as rows. ``None``: a key, a value or a condition fails for one."""
        texts = self._written_rows(batch)
        if texts is None:
            return None
        write, of_value = self._key.serialize, self._bits.of_value
        try:
            names = [write(key) for key in batch.keys]
            bits = np.array([of_value(value) for value in batch.values], np.uint64)
        except Exception:  # not swallowed: its row meets it again
            return None
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        numbers = np.array([places[name] for name in names], np.int64)
        return self._events_with(batch, list(places), numbers, bits, texts)

    def _events_with(
        self, batch: Batch, names: list[bytes], numbers: Any, bits: Bits, texts: BytesColumn
    ) -> Events | None:
        times = batch.times if isinstance(batch, ColumnBatch) else np.array(batch.timestamps, np.int64)
        if not len(times):
            return Events(names, numbers, times, bits, texts, times, times)
        if int(times.min()) < 0 or int(times.max()) >= _FAR:
            return None
        orders = batch.orders if isinstance(batch, ColumnBatch) else np.array(batch.order, np.int64)
        at = orders // self.ctx.time.stride
        marks = self.ctx.time.watermark_by_place_ms[self._place : int(at[-1])]
        return Events(names, numbers, times, bits, texts, np.maximum(at - self._place, 0), np.array(marks, np.int64))

    # -- time ----------------------------------------------------------------------------------------------------

    def on_watermark(self, watermark_ms: int) -> None:
        if self._packed is None or not self._packed.active:
            super().on_watermark(watermark_ms)
            return
        found = self._packed.take(Events.none(watermark_ms))
        if found is None:
            self._packed.leave()
            super().on_watermark(watermark_ms)
        else:
            self._hand_out(found, self._order)

    # -- results -------------------------------------------------------------------------------------------------

    def _hand_out(self, found: MatchOutcome, order: int | None = None) -> None:
        """Emit matches and partial ones that timed out. ``order``: of all of them, else it follows from their marks."""
        for name, amount in (("added", found.added), ("removed", found.removed)):
            if amount:
                self.ctx.count(f"partial_matches_{name}", amount)
        stride, before = self.ctx.time.stride, self._order
        for one in found.out:
            self._order = order if order is not None else (self._place + one.position) * stride + 1 + self.ctx.index
            try:
                self._emit(one)
            except Exception as exc:  # of the user's function, for an event that no policy can skip
                failed = Batch([None], [None], [max(one.ts, 0)], [self._order])
                self.ctx.failed(failed, 0, exc, may_skip=False)
        self._order = before

    def _emit(self, one: Handed) -> None:
        match = Match({}, one.ts)
        names, read = self._matcher.automaton.names, self._events.deserialize
        for stage, data in one.events:
            match.events.setdefault(names[stage], []).append(read(data))
        key = self._key.deserialize(one.name)
        if one.timed_out:
            self.emit_row(key, match.events, match.ts, headers=(), port=TIMEOUTS)
        else:
            self.emit_row(key, self._value(match), match.ts, headers=(), port=MATCHES)

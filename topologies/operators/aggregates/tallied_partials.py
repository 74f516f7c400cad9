"""Partial aggregates of whole numbers in the compiled part, from the columns of the records to those of the topic."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.part_store import PartTally, new_tally
from penstock.state.stores.store import cut
from penstock.topologies.columnar.column_parts import row_bytes
from penstock.topologies.columnar.encoded_columns import EncodedColumn, WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Ints
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.aggregates.column_combining import Spans
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.fold_partials import BestPartials, FoldPartials, PartPartials
from penstock.topologies.operators.aggregates.folds.best_texts import BestTexts
from penstock.topologies.operators.aggregates.folds.tallied_parts import PartInputs, letters_of, written_so
from penstock.topologies.operators.aggregates.partial_aggregates import SpanPartials, Taken
from penstock.topologies.operators.columnar.folding import PartFolds
from penstock.topologies.operators.columnar.grouping import Entries


class TalliedPartPartials(PartPartials):
    """Until they are sent, all are either in the compiled part or, from the first records on that it does not take, held as
    tuples. ``keys``: the serde of the records' keys; ``sent``: that of the keys as they are sent."""

    def __init__(
        self,
        ctx: OperatorContext,
        fold: Fold,
        record_serde: Serde[Any],
        partial_serde: Serde[Any],
        parts: PartFolds,
        *,
        tally: PartTally,
        letters: bytes,
        keys: Serde[Any],
        sent: Serde[Any],
    ) -> None:
        super().__init__(ctx, fold, record_serde, partial_serde, parts)
        self._tally = tally
        self._given = PartInputs(fold, letters)
        self._key_serde = keys
        self._sent = sent
        self._key_coder = Coder()
        self._spans: list[int] = []
        """Where the spans of what is in the compiled part begin, in the order in which they first had a record."""

    @property
    def held(self) -> int:
        return len(self._tally) + super().held

    def add_spans(self, batch: ColumnBatch, spans: Spans) -> bool:
        if not spans or self._held or not self.reads(batch):
            return False
        keys = row_bytes(batch.key_column, self._key_serde)
        given = None if keys is None else self._given.of(batch)
        if keys is None or given is None:
            return False
        starts = np.full(len(batch), spans[0][0].low, np.int64)
        for span, inside in spans[1:]:
            starts[inside] = span.low
        tally = self._tally
        done = tally.reserve(keys.data, np.ascontiguousarray(keys.offsets), starts)
        if done:
            tally.base_nothing()
            done = given.add(tally)
        if not done:
            self._settle()
            return False
        self._spans += [span.low for span, _ in spans if span.low not in self._spans]
        return True

    def add(self, span: int, keys: list[Any], batch: Batch) -> None:
        self._settle()
        super().add(span, keys, batch)

    def of_columns(self, span: int, keys: list[Any], found: Entries, batch: ColumnBatch) -> SpanPartials | None:
        self._settle()
        return super().of_columns(span, keys, found, batch)

    def _settle(self) -> None:
        """Hold what is in the compiled part as tuples."""
        if not len(self._tally):
            self._tally.clear()
            return
        keys, partials, starts, times = self._columns()
        read = self._partial_serde.deserialize
        held: dict[int, dict[Any, tuple[Any, int]]] = {span: {} for span in self._spans}
        names = (
            keys.to_list() if self._sent is BYTES else list(map(self._sent.deserialize, cut(keys.data, keys.offsets)))
        )
        values = map(read, cut(partials.data, partials.offsets))
        for span, name, value, ts in zip(starts.tolist(), names, values, times.tolist(), strict=True):
            held[span][name] = value, ts
        self._held = held
        self._forget()

    def _columns(self) -> tuple[BytesColumn, BytesColumn, Ints, Ints]:
        """Keys, partials, where their spans begin, and times."""
        starts, data, ends = self._tally.windows()
        written, written_ends = self._tally.written()
        keys, partials = BytesColumn.of_raw(data, ends, None), BytesColumn.of_raw(written, written_ends, None)
        return keys, partials, np.frombuffer(starts, np.int64), np.frombuffer(self._tally.times(), np.int64)

    def _forget(self) -> None:
        self._tally.clear()
        self._spans = []

    def taken(self) -> Taken:
        if not len(self._tally):
            return super().taken()
        keys, partials, starts, times = self._columns()
        if len(self._spans) > 1:
            numbers = {span: number for number, span in enumerate(self._spans)}
            distinct, places = np.unique(starts, return_inverse=True)
            ranks = np.array([numbers[span] for span in distinct.tolist()])[places]
            order = np.argsort(ranks, kind="stable")
            keys, partials, times = keys.take(order), partials.take(order), times[order]
        self._forget()
        return Taken(
            EncodedColumn(keys, self._sent, self._key_coder),
            WrittenColumn(partials, self._partial_serde, self._coder),
            times,
        )


def partials_of(
    ctx: OperatorContext,
    fold: Fold,
    record_serde: Serde[Any],
    partial_serde: Serde[Any],
    *,
    keys: Serde[Any],
    sent: Serde[Any],
) -> FoldPartials:
    """Partial aggregates of a fold that does not count. ``keys``, ``sent``: see ``TalliedPartPartials``."""
    best = BestTexts.of_fold(fold.kept)
    if best is not None:
        return BestPartials(ctx, fold, record_serde, partial_serde, best)
    parts = PartFolds.of(fold.parts)
    if parts is None:
        return FoldPartials(ctx, fold, record_serde, partial_serde)
    letters = letters_of(fold)
    tally = new_tally(letters) if letters is not None and written_so(partial_serde, letters) else None
    if letters is None or tally is None:
        return PartPartials(ctx, fold, record_serde, partial_serde, parts)
    return TalliedPartPartials(
        ctx, fold, record_serde, partial_serde, parts, tally=tally, letters=letters, keys=keys, sent=sent
    )

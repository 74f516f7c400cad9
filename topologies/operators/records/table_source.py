"""A topic read as a table: the operator that keeps its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.state.stores.logged_rows import LoggedStoreView, Rows
from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.encoded_columns import SAME_BYTES
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.base.row_functions import decode_column, without_nulls
from penstock.topologies.operators.columnar.source import Decoder
from penstock.topologies.operators.columnar.stored_rows import (
    RowValues,
    entries_of,
    row_values,
    rows_before,
    texts_of,
    why_no_texts,
)
from penstock.topologies.operators.records.source_sink import SourceSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSourceSpec(SourceSpec):
    """Reads a topic as a table: the last value per key is a row, a null value deletes it, null keys are skipped and
    counted (Kafka Streams, KTable). The topic itself is the store's changelog. Emits each update with the old value
    where a later operator asks for it (``olds``)."""

    emits: Emits = "upsert"

    @property
    def by_key(self) -> bool:
        return self.key_serde in SAME_BYTES

    @property
    def keeps_keys(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        mode = super().input_mode(port, out)
        if not self.sends_olds or mode.rows is not None:
            return mode
        why = why_no_texts(self.value_serde) or (None if self.store.as_bytes else "its old rows are objects")
        return mode if why is None else InputMode(ALL_AS_ROWS, why)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if self.sends_olds and input_mode.rows is not None:
            return ROW_LAYOUT
        return dataclasses.replace(super().output_layout(port, given, input_mode), olds=self.sends_olds)

    @property
    def store(self) -> StoreSpec:
        """The table's rows."""
        return self.stores[0]

    def open(self, ctx: OperatorContext) -> Operator:
        """Writes the rows."""
        return _TableSourceOperator(ctx, self)


class _TableSourceOperator(Operator):
    """Rows are decoded on arrival, so that bad bytes are found at their own offset and not at a later read; the store
    keeps the log's bytes."""

    def __init__(self, ctx: OperatorContext, spec: TableSourceSpec) -> None:
        super().__init__(ctx)
        self._state = ctx.state(spec.store.name)
        self._keys = spec.key_serde
        self._values = spec.value_serde
        self._sends_olds = spec.sends_olds
        self._decoder = None
        self._texts = row_values(spec.value_serde) if spec.sends_olds and spec.store.as_bytes else None
        if ctx.needs is not None and (self._texts is not None or not spec.sends_olds):
            self._decoder = Decoder(ctx, spec.key_serde, spec.value_serde, ctx.needs)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        if self._sends_olds:
            self.prefetch(port, batch)
        return True

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        keys, values = batch.key_column, batch.value_column
        if self._decoder is None or not isinstance(keys, BytesColumn) or not isinstance(values, BytesColumn):
            return batch
        raw = without_nulls(self.ctx, batch, "key")
        assert isinstance(raw, ColumnBatch)
        changes = self._decoder.read(raw)
        assert changes is not None
        if len(changes) < len(raw):
            raw = raw.pick(np.searchsorted(raw.orders, changes.orders))
        if len(changes):
            if self._texts is not None:
                changes = self._with_olds(raw, changes, self._texts)
            self._put(raw, changes)
            self.ctx.emit(changes)
        return None

    def _with_olds(self, raw: ColumnBatch, changes: Batch, texts: RowValues) -> Batch:
        """The changes with the row of each key before its record: what the store holds, or the key's record before it."""
        keys, values = raw.keys, raw.values
        olds = texts.canonical(BytesColumn.of(rows_before(texts_of(entries_of(self._state, keys)), keys, values)))
        column = changes.value_column
        if olds is not None and column is not None and isinstance(changes, ColumnBatch):
            return changes.with_olds(column, texts.column(olds))
        listed = changes.listed()  # the store has a row that the type does not read, so this raises what rows raise
        listed.olds = self._olds(keys, values, listed.values)
        return listed

    def _put(self, raw: ColumnBatch, changes: Batch) -> None:
        keys, values, state = raw.key_column, raw.value_column, self._state
        assert isinstance(keys, BytesColumn)
        assert isinstance(values, BytesColumn)
        if isinstance(state, LoggedStoreView) and state.keep(Rows(*keys.raw()), Rows(*values.raw()), raw.times):
            return
        state.put_raw(raw.keys, raw.values, changes.values if state.immutable else [], raw.timestamps)

    def prefetch(self, port: int, batch: Batch) -> None:
        if self._sends_olds:
            self._state.load(k for k in batch.keys if k is not None)

    def process(self, port: int, batch: Batch) -> None:
        batch = without_nulls(self.ctx, batch, "key")
        values, batch = decode_column(self.ctx, batch, self._values, batch.values, "value")
        keys, readable = decode_column(self.ctx, batch, self._keys, batch.keys, "key")
        if readable is not batch:
            values, _ = decode_column(self.ctx, readable, self._values, readable.values, "value")
        if not keys:
            return
        changes = readable.replace(keys=keys, values=values)
        if self._sends_olds:
            changes.olds = self._olds(readable.keys, readable.values, values)
        self._state.put_raw(readable.keys, readable.values, values, readable.timestamps)
        self.ctx.emit(changes)

    def _olds(self, keys: list[Any], raw_values: list[Any], values: list[Any]) -> list[Any]:
        """The row of each key before its record: what the store holds, or the key's record before it."""
        state = self._state
        state.load(keys)
        before: dict[bytes, Any] = {}
        olds: list[Any] = []
        if state.immutable:
            for key, value in zip(keys, values, strict=True):
                if key in before:
                    olds.append(before[key])
                else:
                    found = state.entries[key]
                    olds.append(None if found is None else found[0])
                before[key] = value
            return olds
        decode = self._values.deserialize
        for key, raw in zip(keys, raw_values, strict=True):
            if key in before:
                data = before[key]
            else:
                found = state.entries[key]
                data = None if found is None else found[8:]
            olds.append(None if data is None else decode(data))
            before[key] = raw
        return olds

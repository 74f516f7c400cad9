"""Operators on a table's changes that work on one row at a time: filter, map, show old rows, and keep rows in a store.

A change is a new value (``None``: the row is gone) and, if the input carries it, the old one. Semantics are those of
Kafka Streams: a filtered table has a row where the predicate holds, so a change to a value that it refuses deletes.
Without old values it cannot know whether there was such a row, and sends a tombstone each time; with them it knows,
and sends none. The DSL requests old values if the input's rows are kept already, as those of an aggregation are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.state.serdes.change_serde import Change
from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.column_parts import nulls_of, present, spread_over, with_nulls
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
    union_of,
)
from penstock.topologies.operators.base.row_expiry import RowExpiry
from penstock.topologies.operators.base.row_functions import map_rows, without_nulls
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.columnar.stateless import (
    ColumnarStep,
    filter_mode,
    mask_of,
    values_layout,
    values_mode,
    values_of,
)
from penstock.topologies.operators.columnar.stored_rows import stored_rows
from penstock.topologies.operators.tables.table_views import StoreView


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFilterSpec(OperatorSpec):
    """The rows for which ``fn(key, value)`` is true (``negate``: false). With ``sends_olds`` its input must carry old
    values."""

    fn: Callable[[Any, Any], Any]
    negate: bool = False

    def value_of(self, key: Any, value: Any) -> Any:
        """The filtered table's row for a row; ``None``: none."""
        return value if value is not None and bool(self.fn(key, value)) != self.negate else None

    @property
    def by_key(self) -> bool:
        return True

    @property
    def keeps_keys(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return filter_mode(self.fn, False, union_of(out))

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return super().row_reason(port, given) or _why_lists(self, given)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if input_mode.rows is not None:
            return EdgeLayout(given.keys)
        return dataclasses.replace(given, texts=False, olds=self.sends_olds)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        mask = mask_of(self.fn)
        columns = None if mask is None else partial(_kept, mask, self.negate)
        return _TableMapOperator(ctx, self.value_of, columns, sends_olds=self.sends_olds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableMapValuesSpec(OperatorSpec):
    """The rows with ``fn(value)`` for value (``with_key``: ``fn(key, value)``); ``None``: no row. Absent rows stay absent
    without a call. With ``sends_olds`` its input must carry old values."""

    fn: Callable[..., Any]
    with_key: bool = False

    def value_of(self, key: Any, value: Any) -> Any:
        """The mapped table's row for a row; ``None``: none."""
        if value is None:
            return None
        return self.fn(key, value) if self.with_key else self.fn(value)

    @property
    def by_key(self) -> bool:
        return True

    @property
    def keeps_keys(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return values_mode(self.fn, self.with_key, union_of(out))

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return super().row_reason(port, given) or _why_lists(self, given)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        olds = self.sends_olds and input_mode.rows is None
        return dataclasses.replace(values_layout(self.fn, given, input_mode), olds=olds)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        step = values_of(self.fn)
        columns = None if step is None else partial(_mapped, step)
        return _TableMapOperator(ctx, self.value_of, columns, sends_olds=self.sends_olds)


def _why_lists(spec: OperatorSpec, given: EdgeLayout) -> str | None:
    return "old values come as lists" if spec.sends_olds and not given.olds else None


OnColumns = Callable[[ColumnBatch, Column], Column | None]
"""The rows that a table has instead of these, the new ones or the old ones of a batch; null: none. ``None``: row by row."""


def _kept(mask: ColumnarStep, negate: bool, batch: ColumnBatch, rows: Column) -> Column | None:
    """Those of the rows for which a mask is true (``negate``: false)."""
    places, there = present(batch, rows)
    refused = np.ones(len(batch), np.bool_)
    if len(there):
        found = mask.make(there) if isinstance(there, ColumnBatch) else None
        if found is None:
            return None
        refused[slice(None) if places is None else places] = found if negate else ~found
    return with_nulls(rows, refused)


def _mapped(step: ColumnarStep, batch: ColumnBatch, rows: Column) -> Column | None:
    """The rows that a step makes of the rows."""
    places, there = present(batch, rows)
    if not len(there):
        return CodedColumn(np.zeros(len(batch), np.int32), [None])
    made: Column | None = step.make(there) if isinstance(there, ColumnBatch) else None
    return None if made is None else spread_over(made, places, len(batch))


class _TableMapOperator(Operator):
    def __init__(
        self,
        ctx: OperatorContext,
        fn: Callable[[Any, Any], Any],
        columns: OnColumns | None,
        *,
        sends_olds: bool,
    ) -> None:
        super().__init__(ctx)
        self._fn = fn
        self._columns = columns
        self._sends_olds = sends_olds

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        news, before = batch.value_column, batch.old_column
        if self._columns is None or news is None or (self._sends_olds and before is None):
            return batch
        new = self._columns(batch, news)
        if new is None:
            return batch
        if not self._sends_olds or before is None:
            self.ctx.emit(batch.replace(values=new))
            return None
        old = self._columns(batch, before)
        if old is None:
            return batch
        out = batch.with_olds(new, old)
        nulls, others = nulls_of(new), nulls_of(old)
        self.ctx.emit(out if nulls is None or others is None else out.where(~(nulls & others)))
        return None

    def _change(self, key: Any, new: Any, old: Any) -> tuple[Any, Any]:
        return self._fn(key, new), self._fn(key, old)

    def process(self, port: int, batch: Batch) -> None:
        if not self._sends_olds:
            values, batch = map_rows(self.ctx, batch, self._fn, batch.keys, batch.values)
            self.ctx.emit(batch.replace(values=values))
            return
        assert batch.olds is not None, f"{self.ctx.name} is given changes without old values"
        pairs, batch = map_rows(self.ctx, batch, self._change, batch.keys, batch.values, batch.olds)
        changed = [i for i, (new, old) in enumerate(pairs) if new is not None or old is not None]
        if changed:
            out = batch.pick(changed).replace(values=[pairs[i][0] for i in changed])
            out.olds = [pairs[i][1] for i in changed]
            self.ctx.emit(out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableChangesSpec(OperatorSpec):
    """Each change as a ``Change``, the new row with the old one. Its input must carry old values. A deletion of what was
    not there is left out."""

    emits: Emits = "insert"

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _TableChangesOperator(ctx)


class _TableChangesOperator(Operator):
    def process(self, port: int, batch: Batch) -> None:
        assert batch.olds is not None, f"{self.ctx.name} is given changes without old values"
        news, olds = batch.values, batch.olds
        changes = batch.replace(values=list(map(Change, news, olds)))
        if None in news:
            changes = changes.where([new is not None or old is not None for new, old in zip(news, olds, strict=True)])
        self.ctx.emit(changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaterializeSpec(OperatorSpec):
    """Writes the last value per key to a store: a null value deletes, null keys are dropped and counted. Passes every
    change on; with ``sends_olds`` including the old value from its store. Then, and with ``quiet`` or a ttl, it
    passes nothing on if there was no row and still is none. Without a store it only passes changes on: a placeholder
    until a store is needed.

    ``ttl_ms``: rows live for this time (``penstock.topologies.operators.base.row_expiry``); the second store holds
    their timers. Updates that would already be expired are dropped and counted as late. ``silent``: rows expire
    without a tombstone, as windows do whose retention has passed.
    """

    quiet: bool = False
    ttl_ms: int | None = None
    silent: bool = False
    emits: Emits = "upsert"

    @property
    def store(self) -> StoreSpec | None:
        """The rows."""
        return self.stores[0] if self.stores else None

    @property
    def by_key(self) -> bool:
        return self.ttl_ms is None

    @property
    def keeps_keys(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        if self.store is None:
            return InputMode(RequiredColumns(key=True) | union_of(out))
        if not self.store.as_bytes or self.ttl_ms is not None:
            return super().input_mode(port, out)
        return InputMode(RequiredColumns(key=True, value=True) | union_of(out))

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if not self.stores:
            return given
        if input_mode.rows is not None:
            return ROW_LAYOUT
        return dataclasses.replace(given, texts=False, olds=self.sends_olds)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        if self.store is None:
            return _PassThroughOperator(ctx)
        return (
            _MaterializeOperator(ctx, self, self.store)
            if self.ttl_ms is None
            else _ExpiringMaterializeOperator(ctx, self, self.store)
        )

    def details(self) -> dict[str, Any]:
        """The store, and how long rows live."""
        shown = {} if self.store is None else {"store": self.store.name}
        return shown if self.ttl_ms is None else shown | {"ttl": f"{self.ttl_ms} ms"}


class _PassThroughOperator(Operator):
    def process(self, port: int, batch: Batch) -> None:
        self.ctx.emit(without_nulls(self.ctx, batch, "key"))


class _MaterializeOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: MaterializeSpec, store: StoreSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(store.name)
        self._write = store.key_serde.serialize
        self._rows = StoreView(store).open(ctx.state)
        self._reads = spec.sends_olds or spec.quiet
        self._columns = stored_rows(store, self._state, reads=self._reads, sends_olds=spec.sends_olds)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        return self._columns is not None and self._columns.load(batch)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        changes = None if self._columns is None else self._columns.put(batch)
        if changes is None:
            return batch
        self.ctx.emit(changes)
        return None

    def load(self, port: int, batch: Batch) -> None:
        if self._reads:
            self._rows.load(batch.keys)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
            return
        store_key = self._write(key)
        found = self._state.get(store_key) if self._reads else None
        if value is None and found is None and self._reads:
            return
        self._state.put(store_key, value, ts)
        self._note(store_key, found, value, ts)
        self.emit_row(key, value, ts, old=None if found is None else found[0])

    def _note(self, store_key: bytes, before: tuple[Any, int] | None, value: Any, ts: int) -> None:
        """A row was written."""


class _ExpiringMaterializeOperator(_MaterializeOperator):
    def __init__(self, ctx: OperatorContext, spec: MaterializeSpec, store: StoreSpec) -> None:
        super().__init__(ctx, spec, store)
        assert spec.ttl_ms is not None
        self._expiry = RowExpiry(self._state, ctx.state(spec.stores[1].name), spec.ttl_ms)
        self._read = store.key_serde.deserialize
        self._silent = spec.silent
        self._reads = True
        self._columns = None

    def before(self, key: Any, value: Any, ts: int) -> None:
        for gone in self._expiry.gone(self.advance_stream_time(ts)):
            if self._silent:
                continue
            self.emit_row(self._read(gone.store_key), None, gone.deadline_ms, old=gone.value, headers=())

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is not None and self._expiry.late(ts, self.stream_time_ms):
            self.ctx.dropped("late")
            return
        super().row(port, key, value, ts)

    def _note(self, store_key: bytes, before: tuple[Any, int] | None, value: Any, ts: int) -> None:
        if value is not None:
            self._expiry.written(store_key, None if before is None else before[1], ts)

"""The stream–table join: each stream record is joined with the table's row as it is when the record is processed.

Only the stream triggers; a table update emits nothing (Kafka Streams, KStream–KTable). A null stream value is
dropped; a null stream key is dropped by an inner join and finds no row in a left one. The result has the stream
record's timestamp and headers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.column_parts import key_bytes
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tracing.traced_function import TracedFunction
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Column
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.base.row_functions import map_rows, serialize_keys, without_nulls
from penstock.topologies.operators.columnar.input_modes import join_mode
from penstock.topologies.operators.columnar.join import PerKey, meet, reading_row_alone
from penstock.topologies.operators.columnar.join_fields import JoinedFields, sides_of
from penstock.topologies.operators.columnar.row_fields import RowFields, mostly_different, row_fields
from penstock.topologies.operators.columnar.row_texts import RowTexts, row_texts
from penstock.topologies.operators.columnar.stateless import expression_of, keys_of, usable_by

_VALUE: Final = itemgetter(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamTableJoinSpec(OperatorSpec):
    """``joiner(left, right)`` for each stream record and its row; ``left``: also without one, ``right`` being ``None``.
    It shares the table's store, whose key serde must write the stream's keys as the table's. ``key_fn(key, value)``: the
    row's key, of a table of which every task has all rows; ``None``: the record's key."""

    joiner: Callable[[Any, Any], Any]
    left: bool = False
    key_fn: Callable[[Any, Any], Any] | None = None

    @property
    def store(self) -> StoreSpec:
        """The table's rows."""
        return self.stores[0]

    @property
    def by_key(self) -> bool:
        return self.key_fn is None

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def at_most_one(self) -> bool:
        return True

    def writes(self, port: int) -> tuple[str, ...]:
        return ()

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return join_mode(self.joiner, self.key_fn)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys, input_mode.rows is None)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _StreamTableJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The table's store and the kind of join."""
        return {"store": self.store.name, "type": "left" if self.left else "inner"}


class _StreamTableJoinOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: StreamTableJoinSpec) -> None:
        super().__init__(ctx)
        self._spec = spec
        self._state = ctx.state(spec.store.name)
        self._key_serde = spec.store.key_serde
        self._decode = spec.store.value_serde.deserialize
        joiner = expression_of(spec.joiner)
        alone = reading_row_alone(joiner)
        sides = sides_of(joiner)
        self._usable_by_joiner: Callable[[ColumnBatch], bool] | None = None
        if isinstance(spec.joiner, TracedFunction) and joiner is not spec.joiner:
            self._usable_by_joiner = usable_by(spec.joiner)
        self._joined: PerKey | JoinedFields | None = None
        if alone is not None:
            self._joined = PerKey(alone, self._rows, left=spec.left)
        elif sides is not None:
            assert isinstance(joiner, ExpressionFunction)
            self._joined = JoinedFields(sides, joiner, self._rows, left=spec.left, immutable=self._state.immutable)
        passes_rows = isinstance(self._joined, JoinedFields) and self._joined.whole_rows
        self._fields: RowFields | None = None
        """For a joiner that reads fields of rows."""
        if isinstance(joiner, ExpressionFunction):
            of_rows = {"": joiner.expression} if alone is not None else {} if sides is None else sides.right
            self._fields = row_fields(spec.store.value_serde, joiner.scope, of_rows)
        self._texts = row_texts(spec.store.value_serde) if passes_rows else None
        self._keys_of = None if spec.key_fn is None else keys_of(spec.key_fn)

    def prefetch(self, port: int, batch: Batch) -> None:
        if self._spec.key_fn is not None:
            return  # process handles its errors
        with suppress(SerdeError):  # process meets it at its row
            self._state.load(k for k in self._key_serde.serialize_all(batch.keys) if k is not None)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        # rows that are passed on, or whose fields are read, are not decoded
        if self._spec.key_fn is not None or self._texts is not None or self._fields is not None:
            return True
        return meet(batch, self._state, self._key_serde, left=True) is not None

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if batch.key_column is None:
            return batch
        usable = self._usable(batch)
        assert isinstance(usable, ColumnBatch)
        joined: Batch | None = usable
        if len(usable):
            keys = self._row_keys(usable)
            joined = None if keys is None else self._joined_columns(usable, keys)
        if joined is not None:
            self.ctx.emit(joined)
        return usable if joined is None else None

    def process(self, port: int, batch: Batch) -> None:
        batch = self._usable(batch)
        if not len(batch):
            return
        if self._spec.key_fn is None:
            keys, batch = serialize_keys(self.ctx, batch, self._key_serde)
        else:
            keys, batch = self._wanted(batch, self._spec.key_fn)
        rows = self._rows(self._entries(keys))
        if not self._spec.left and None in rows:
            mask = [r is not None for r in rows]
            rows = [r for r in rows if r is not None]
            batch = batch.where(mask)
        values, batch = map_rows(self.ctx, batch, self._spec.joiner, batch.values, rows)
        self.ctx.emit(batch.replace(values=values))

    def _entries(self, keys: list[bytes | None]) -> list[Any]:
        """The entry of each key, ``None`` of a null one."""
        if all(keys):  # nearly always so, and faster than looking for nulls
            return self._state.entries_of(keys)  # type: ignore[arg-type]  # none is null
        found = iter(self._state.entries_of([k for k in keys if k is not None]))
        return [None if k is None else next(found) for k in keys]

    def _rows(self, entries: list[Any]) -> list[Any]:
        if self._state.immutable:
            if all(entries):  # tuples
                return list(map(_VALUE, entries))
            return [None if e is None else e[0] for e in entries]
        decode = self._decode
        return [None if e is None else decode(e[8:]) for e in entries]

    def _row_keys(self, batch: ColumnBatch) -> Column | None:
        """The keys of the rows that the records meet; ``None``: row by row."""
        if self._spec.key_fn is None:
            return batch.key_column
        keys: Column | None = None if self._keys_of is None else self._keys_of.make(batch)
        return keys

    def _joined_columns(self, batch: ColumnBatch, keys: Column) -> Batch | None:
        """The joined records, by distinct keys of rows; ``None``: row by row."""
        exact = self._usable_by_joiner is None or self._usable_by_joiner(batch)
        joined = self._passed_on(batch, keys, self._texts) if exact and self._texts is not None else None
        if joined is None and exact and self._fields is not None:
            joined = self._by_fields(batch, keys, self._fields)
        if joined is not None:
            return joined
        met = meet(batch, self._state, self._key_serde, left=self._spec.left, keys=keys)
        if met is None:
            return None
        joined = self._joined.joined(met) if exact and self._joined is not None else None
        if joined is not None:
            return joined
        rows = self._rows([met.entries[i] for i in met.numbers.tolist()])
        values, kept = map_rows(self.ctx, met.batch, self._spec.joiner, met.batch.values, rows)
        return kept.replace(values=values)

    def _passed_on(self, batch: ColumnBatch, row_keys: Column, texts: RowTexts) -> Batch | None:
        """The joined records, if their rows can be passed on as they are stored."""
        assert isinstance(self._joined, JoinedFields)
        keys = key_bytes(row_keys, self._key_serde)
        if keys is None or (keys.nulls is not None and keys.nulls.any()):
            return None
        rows = texts.of(keys, self._state)
        if rows is None:
            return None
        absent = rows.nulls
        if absent is None or self._spec.left or not absent.any():
            return self._joined.with_rows(batch, rows)
        places = np.flatnonzero(~absent)
        return self._joined.with_rows(batch.pick(places), rows.take(places))

    def _by_fields(self, batch: ColumnBatch, row_keys: Column, fields: RowFields) -> Batch | None:
        """The joined records, if the fields of their rows can be read where they are stored."""
        keys = key_bytes(row_keys, self._key_serde)
        if keys is None or (keys.nulls is not None and keys.nulls.any()) or not mostly_different(row_keys):
            return None
        rows = fields.rows(keys, self._state)
        if rows is None:
            return None
        met: Batch = batch
        if rows.nulls is not None and rows.nulls.any():
            if self._spec.left:
                return None
            places = np.flatnonzero(~rows.nulls)
            met, rows = batch.pick(places), rows.take(places)
        columns = fields.columns(met, rows)
        if columns is None:
            return None
        if isinstance(self._joined, JoinedFields):
            return self._joined.with_columns(met, columns)
        return met.replace(values=columns[""])

    def _wanted(self, batch: Batch, key_fn: Callable[[Any, Any], Any]) -> tuple[list[Any], Batch]:
        """The keys, as bytes, of the rows that the records need; an inner join drops records that need none."""
        write = self._key_serde.serialize

        def wanted(key: Any, value: Any) -> bytes | None:
            row_key = key_fn(key, value)
            return None if row_key is None else write(row_key)

        keys, batch = map_rows(self.ctx, batch, wanted, batch.keys, batch.values)
        if None in keys and not self._spec.left:
            mask = [k is not None for k in keys]
            self.ctx.dropped("null_key", len(mask) - sum(mask))
            keys, batch = [k for k in keys if k is not None], batch.where(mask)
        return keys, batch

    def _usable(self, batch: Batch) -> Batch:
        batch = without_nulls(self.ctx, batch, "value")
        if self._spec.left or self._spec.key_fn is not None:
            return batch
        return without_nulls(self.ctx, batch, "key")

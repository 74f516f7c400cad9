"""Joins of a left table with the row of a right table that each left row names: foreign-key joins.

The two tables are partitioned by different keys, so their tasks communicate through two topics (Kafka Streams'
protocol):

* ``ForeignKeySubscribeSpec`` (left tasks): a left row's change becomes instructions under its foreign key: subscribe,
  forget.
* ``ForeignKeyResponseSpec`` (right tasks): keeps the subscriptions by foreign key; answers each one with the right
  row, and all of a foreign key when its row changes.
* ``ForeignKeyJoinSpec`` (left tasks): joins an answer with the left row, unless the row has changed since the
  request: then another answer will follow.

Every change of a left row gets an answer, even if there can be no right row. Kafka Streams omits answers of inner
joins if it assumes that there is no result; but an answer that would have deleted a result may have been out of date
when it arrived, and the result would stay. Answers for one left value come from one right task in its order, so the
last one has the current right row. The result's timestamp is the higher of the two rows'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
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
from penstock.topologies.operators.base import foreign_key_messages as wire
from penstock.topologies.operators.base.foreign_key_messages import Response, Subscription
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.columnar.foreign_keys import Answering, Joining, Subscribing
from penstock.topologies.operators.columnar.pairs import why_no_pairs
from penstock.topologies.operators.columnar.stateless import keys_of, reads
from penstock.topologies.operators.columnar.stored_rows import row_values, why_no_texts
from penstock.topologies.operators.tables.table_views import StoreView, TableView


def why_rows_join(joiner: Any, left: Serde[Any], right: Serde[Any]) -> str | None:
    """Why answers are joined one by one, with rows of these serdes."""
    why = why_no_texts(left) or why_no_texts(right)
    return why or why_no_pairs(None, joiner, {"left": left, "right": right})


def partition_of_answer(key: Any, response: Response, partitions: int) -> int:
    """Routes an answer to the task that subscribed."""
    return response.partition


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignKeySubscribeSpec(OperatorSpec):
    """``fn(key, value)`` names the right row; ``None``: none, which an inner join counts as dropped. Its input must carry
    old values. Each serde is named after what it writes."""

    fn: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    foreign_key_serde: Serde[Any]
    left: bool = False
    emits: Emits = "insert"

    @property
    def why_rows(self) -> str | None:
        """Why it takes changes one by one."""
        if self.foreign_key_serde not in SAME_BYTES:
            return f"its foreign keys have the serde {self.foreign_key_serde.name}"
        found = reads(self.fn)
        return found if isinstance(found, str) else why_no_texts(self.value_serde)

    @property
    def by_key(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        why, found = self.why_rows, reads(self.fn)
        if why is not None or isinstance(found, str):
            return InputMode(ALL_AS_ROWS, why)
        return InputMode(found | RequiredColumns(key=True, value=True))

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return super().row_reason(port, given) or (None if given.olds else "old values come as lists")

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(keys=True, values=True) if input_mode.rows is None else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _ForeignKeySubscribeOperator(ctx, self)


class _ForeignKeySubscribeOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: ForeignKeySubscribeSpec) -> None:
        super().__init__(ctx, spec)
        self._fn, self._left = spec.fn, spec.left
        self._write_key = spec.key_serde.serialize
        self._write_value = spec.value_serde.serialize
        self._write_foreign = spec.foreign_key_serde.serialize
        self._columns: Subscribing | None = None
        step, values = (None, None) if spec.why_rows else (keys_of(spec.fn), row_values(spec.value_serde))
        if step is not None and values is not None:
            serdes = spec.key_serde, spec.foreign_key_serde
            self._columns = Subscribing(step, values, *serdes, ctx.task.partition)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        return True

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        found = None if self._columns is None else self._columns.of(batch)
        if found is None:
            return batch
        subscriptions, unnamed = found
        if unnamed and not self._left:
            self.ctx.dropped("null_foreign_key", unnamed)
        self.ctx.emit(subscriptions)
        return None

    def _named(self, key: Any, value: Any) -> tuple[Any, bytes | None]:
        """The foreign key that a value names, and its bytes."""
        foreign = None if value is None else self._fn(key, value)
        return foreign, None if foreign is None else self._write_foreign(foreign)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
            return
        old = self.old
        if value is None and old is None:
            return
        (was, was_bytes), (now, now_bytes) = self._named(key, old), self._named(key, value)
        hashed = None if value is None else wire.hash_of(self._write_value(value))
        raw_key = self._write_key(key)

        def send(foreign: Any, instruction: int) -> None:
            self.emit_row(foreign, Subscription(hashed, instruction, raw_key, self.ctx.task.partition), ts)

        if was is not None and was_bytes != now_bytes:
            send(was, wire.DELETE_NO_PROPAGATE)
        if now is None and value is not None and not self._left:
            self.ctx.dropped("null_foreign_key")
        send(now, wire.PROPAGATE_NULL_IF_NO_FK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignKeyResponseSpec(OperatorSpec):
    """``subscriptions`` come under the foreign key, ``rows`` are the right table's changes, which ``right`` reads. The first
    of ``stores`` holds the subscriptions, the others are the view's. Emits ``Response`` values under left key bytes."""

    right: TableView
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]
    in_ports: tuple[str, ...] = ("subscriptions", "rows")
    emits: Emits = "insert"

    @property
    def why_rows(self) -> str | None:
        """Why it takes records one by one."""
        if not isinstance(self.right, StoreView) or not self.right.store.as_bytes:
            return "its rows are not texts in a store"
        return why_no_texts(self.value_serde)

    @property
    def by_key(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        why = self.why_rows
        return InputMode(RequiredColumns(key=True, value=True)) if why is None else InputMode(ALL_AS_ROWS, why)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(keys=True, values=True) if input_mode.rows is None else ROW_LAYOUT

    def writes(self, port: int) -> tuple[str, ...]:
        return () if port else self.resources[:1]

    def touches(self, port: int) -> tuple[str, ...]:
        """A row's change reads the subscriptions only."""
        return self.resources[:1] if port else self.resources

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _ForeignKeyResponseOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The subscriptions' store."""
        return {"store": self.stores[0].name}


class _ForeignKeyResponseOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: ForeignKeyResponseSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._rows = spec.right.open(ctx.state)
        self._write_key = spec.foreign_key_serde.serialize
        self._write_value = spec.value_serde.serialize
        self._columns: Answering | None = None
        values = None if spec.why_rows is not None else row_values(spec.value_serde)
        if values is not None:
            rows = ctx.state(spec.right.stores[0].name)
            self._columns = Answering(values, self._state, rows, spec.foreign_key_serde, partition_of_answer)

    def load(self, port: int, batch: Batch) -> None:
        if port == 0:
            self._rows.load(batch.keys)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        return self._columns is not None and (port == 1 or self._columns.load(batch))

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if self._columns is None:
            return batch
        answers = self._columns.subscribed(batch) if port == 0 else self._columns.changed(batch)
        if answers is None:
            return batch
        self.ctx.emit(answers)
        return None

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if port == 0:
            self._subscribed(key, value, ts)
        elif key is None:
            self.ctx.dropped("null_key")
        else:
            self._changed(key, value, ts)

    def _subscribed(self, foreign: Any, asked: Subscription, ts: int) -> None:
        found = None
        if foreign is not None:
            store_key = wire.subscription_key(self._write_key(foreign), asked.key)
            if asked.instruction == wire.DELETE_NO_PROPAGATE:
                self._state.put(store_key, None, ts)
                return
            found = self._rows.get(foreign)
            self._state.put(store_key, asked, ts)
        value = None
        if found is not None:
            value, ts = self._write_value(found[0]), max(ts, found[1])
        self.emit_row(asked.key, Response(asked.hash, value, asked.partition), ts)

    def _changed(self, foreign: Any, value: Any, ts: int) -> None:
        written = None if value is None else self._write_value(value)
        prefix = wire.subscription_key(self._write_key(foreign), b"")
        for _, asked, asked_ts in self._state.range(prefix, wire.after_prefix(prefix)):
            self.emit_row(asked.key, Response(asked.hash, written, asked.partition), max(ts, asked_ts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignKeyJoinSpec(OperatorSpec):
    """``joiner(left value, right value)`` for each answer that is not out of date; ``stores`` must be those of ``rows``,
    the left table's view, and ``marks`` if given. ``value_serde`` writes left values, ``foreign_value_serde`` reads right
    ones. ``marks`` remembers which keys have a result, so that deletions are emitted only where there was one."""

    rows: TableView
    value_serde: Serde[Any]
    foreign_value_serde: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    left: bool = False
    marks: StoreSpec | None = None
    emits: Emits = "upsert"

    @property
    def why_rows(self) -> str | None:
        """Why it joins answers one by one."""
        if not isinstance(self.rows, StoreView) or not self.rows.store.as_bytes:
            return "its rows are not texts in a store"
        return why_rows_join(self.joiner, self.value_serde, self.foreign_value_serde)

    @property
    def by_key(self) -> bool:
        return True

    @property
    def keeps_keys(self) -> bool:
        return True

    def writes(self, port: int) -> tuple[str, ...]:
        return () if self.marks is None else (f"store:{self.marks.name}",)

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        why = self.why_rows
        return InputMode(RequiredColumns(key=True, value=True)) if why is None else InputMode(ALL_AS_ROWS, why)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys, True) if input_mode.rows is None else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _ForeignKeyJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The kind of join."""
        return {"type": "left" if self.left else "inner"}


class _ForeignKeyJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: ForeignKeyJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._rows = spec.rows.open(ctx.state)
        self._write = spec.value_serde.serialize
        self._read = spec.foreign_value_serde.deserialize
        self._joiner, self._left = spec.joiner, spec.left
        self._marks = None if spec.marks is None else ctx.state(spec.marks.name)
        self._columns: Joining | None = None
        values = [None] if spec.why_rows else [row_values(s) for s in (spec.value_serde, spec.foreign_value_serde)]
        if (own := values[0]) is not None and (foreign := values[-1]) is not None:
            store = spec.rows.stores[0]
            rows = ctx.state(store.name)
            self._columns = Joining(spec.joiner, (own, foreign), rows, store.key_serde, self._marks, left=spec.left)

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        return self._columns is not None and self._columns.load(batch)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        results = None if self._columns is None else self._columns.of(batch)
        if results is None:
            return batch
        self.ctx.emit(results)
        return None

    def load(self, port: int, batch: Batch) -> None:
        self._rows.load(batch.keys)
        if self._marks is not None:
            StoreView(self._marks.spec).open(self.ctx.state).load(batch.keys)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        found = self._rows.get(key)
        hashed = None if found is None else wire.hash_of(self._write(found[0]))
        if hashed != value.hash:
            return
        result = None
        if found is not None and (value.value is not None or self._left):
            result = self._joiner(found[0], None if value.value is None else self._read(value.value))
        if self._marks is not None and not self._changes(self._marks, key, result is not None, ts):
            return
        self.emit_row(key, result, ts)

    def _changes(self, marks: KeyValueStoreView, key: Any, present: bool, ts: int) -> bool:
        """Whether there is, or was, a result; updates the marks."""
        store_key = marks.spec.key_serde.serialize(key)
        before = marks.get(store_key) is not None
        if before != present:
            marks.put(store_key, b"\x01" if present else None, ts)
        return before or present

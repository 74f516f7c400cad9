"""Aggregations of a table's rows under another key: each change of a row is removed from its old group and added to
its new one.

``RegroupSpec`` (``penstock.topologies.operators.tables.regroup``) turns a change of a row into changes of groups, which
go through a repartition topic; ``TableAggregateSpec`` applies them: first the old value is subtracted, then the new one is
added. An adder or subtractor that raises stops the task under every policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.members_apart import with_count
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.edge_kinds import EdgeKind, Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.aggregates.fold import DistinctCounts
from penstock.topologies.operators.aggregates.folds.changes import ChangeFolds, ChangeParts
from penstock.topologies.operators.base.member_store import MemberStore, numbered
from penstock.topologies.operators.base.row_expiry import RowExpiry
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.columnar.flushing import PartFlush
from penstock.topologies.operators.columnar.grouping import entries_of
from penstock.topologies.operators.columnar.stateless import PYTHON


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableAggregateSpec(OperatorSpec):
    """``subtractor(key, old value, aggregate)``, then ``adder(key, new value, aggregate)``, from ``init()``; ``None``
    deletes the group. ``init`` is ``None`` for a reduce: then the first value is the aggregate. The result's timestamp is
    the highest that went into it.

    ``result`` makes what is emitted of an aggregate; ``None``: the aggregate itself. ``folds``: the aggregate as
    expressions, or why it is folded by rows. ``distinct``: the distinct counts whose
    members are in the second store, which adder and subtractor leave alone.
    ``ttl_ms``: groups live for this time after their latest change (``penstock.topologies.operators.base.row_expiry``);
    the second store holds their timers. What is subtracted from a group that is gone changes nothing."""

    init: Callable[[], Any] | None
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    result: Callable[[Any], Any] | None = None
    folds: ChangeParts | str = PYTHON
    distinct: DistinctCounts | None = None
    ttl_ms: int | None = None
    emits: Emits = "upsert"
    accepts: frozenset[EdgeKind] = frozenset({"insert"})

    @property
    def store(self) -> StoreSpec:
        """Where the aggregates are kept."""
        return self.stores[0]

    @property
    def parts(self) -> ChangeParts | str:
        """The aggregates that are folded by columns, or why by rows."""
        if self.ttl_ms is not None:
            return "its groups expire"
        return self.folds if self.distinct is None else "it looks up the members of its distinct counts one by one"

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        parts = self.parts
        return InputMode(ALL_AS_ROWS, parts) if isinstance(parts, str) else parts.input_mode()

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        # next to columns of values, lists of keys are as good
        return super().row_reason(port, dataclasses.replace(given, keys=given.keys or given.values))

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if input_mode.rows is not None or isinstance(self.parts, str):
            return ROW_LAYOUT
        if self.emission == "every_update":
            return EdgeLayout(given.keys, values=True, olds=True)
        return PartFlush.layout(self.parts.result, self.store.key_serde, single=self.parts.single)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _TableAggregateOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store and emission."""
        shown = {"store": self.store.name, "emission": self.emission}
        return shown if self.ttl_ms is None else shown | {"ttl": f"{self.ttl_ms} ms"}


class _TableAggregateOperator(RowOperator):
    may_skip = False

    def __init__(self, ctx: OperatorContext, spec: TableAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.store.name)
        self._key_serde = spec.store.key_serde
        self._init, self._adder, self._subtractor = spec.init, spec.adder, spec.subtractor
        self._result = spec.result
        self._every_update = spec.emission == "every_update"
        self._distinct = spec.distinct
        self._members = None if spec.distinct is None else MemberStore(ctx.state(spec.stores[1].name))
        self._expiry: RowExpiry | None = None
        if spec.ttl_ms is not None:
            self._expiry = RowExpiry(self._state, ctx.state(spec.stores[1].name), spec.ttl_ms)
        self._changed: dict[bytes, tuple[Any, Any]] = {}
        """Groups that changed since the commit: key and the aggregate before."""
        self._folded_columns = False
        """Whether columns were folded since the last commit: then results are emitted in columns, too."""
        self._columns: ChangeFolds | None = None
        self._flush: PartFlush | None = None
        parts = spec.parts
        if not isinstance(parts, str) and parts.input_mode().rows is None:
            assert spec.init is not None
            olds = self._sends_olds and self._every_update
            self._columns = ChangeFolds(self._state, parts, spec.init, olds=olds)
            self._flush = PartFlush(parts.parts, parts.result, self._key_serde)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        keys = batch.key_column
        if self._columns is None or (None in batch.keys if keys is None else nulls_of(keys) is not None):
            return batch
        found = entries_of(batch, self._key_serde)
        made = None if found is None else self._columns.fold(batch, found)
        if found is None or made is None:
            return batch
        if self._every_update:
            self.ctx.emit(made.shown)
        else:
            self._folded_columns = True
            for store_key, key, entry in zip(found.store_keys, found.keys, made.before, strict=True):
                self._changed.setdefault(store_key, (key, None if entry is None else entry[0]))
        return None

    def load(self, port: int, batch: Batch) -> None:
        with suppress(SerdeError):  # the row that has such a key meets it again
            self._state.load(self._key_serde.serialize_all([k for k in batch.keys if k is not None]))  # type: ignore[arg-type]  # no nulls
        if self._members is not None:
            with suppress(Exception):  # the row that fails meets it again
                self._members.load(self._members_in(batch))

    def _members_in(self, batch: Batch) -> list[bytes]:
        """Store keys of all members that the changes of a batch add or remove."""
        write, out = self._key_serde.serialize, []
        for key, change in zip(batch.keys, batch.values, strict=True):
            if key is not None and change is not None:
                store_key = write(key)
                for value in (change.old, change.new):
                    out += [] if value is None else [m for _, m in self._members_of(store_key, value)]
        return out

    def _members_of(self, store_key: bytes, value: Any) -> list[tuple[int, bytes]]:
        """Numbers of counts, and store keys of the members of a value."""
        assert self._distinct is not None and self._members is not None
        head = self._members.head(store_key)
        return [(number, head + numbered(number) + member) for number, member in self._distinct.members(value)]

    def _counted(self, store_key: bytes, value: Any, aggregate: Any, by: int) -> Any:
        """The aggregate with the members of a row added (``by`` 1) or removed (-1)."""
        if self._distinct is None or self._members is None:
            return aggregate
        for number, member in self._members_of(store_key, value):
            moved = self._members.move(member, by)
            if moved:
                aggregate = with_count(aggregate, self._distinct.paths[number], moved)
        return aggregate

    def before(self, key: Any, value: Any, ts: int) -> None:
        if self._expiry is not None:
            read = self._key_serde.deserialize
            for gone in self._expiry.gone(self.advance_stream_time(ts)):
                old = self._shown(gone.value)
                self.emit_row(read(gone.store_key), None, gone.deadline_ms, old=old, headers=())

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        store_key = self._key_serde.serialize(key)
        found = self._state.get(store_key)
        if found is None and self._expiry is not None and self._expiry.late(ts, self.stream_time_ms):
            self.ctx.dropped("late")
            return
        aggregate = None if found is None else found[0]
        if aggregate is not None and value.old is not None:
            aggregate = self._counted(store_key, value.old, self._subtractor(key, value.old, aggregate), -1)
        if value.new is not None:
            if aggregate is None:
                aggregate = None if self._init is None else self._init()
            aggregate = value.new if aggregate is None else self._adder(key, value.new, aggregate)
            aggregate = self._counted(store_key, value.new, aggregate, 1)
        if found is not None:
            ts = max(ts, found[1])
        elif aggregate is None:
            return
        before = found if self._sends_olds else None
        if before is not None and not self._state.immutable:
            # functions may have changed the given aggregate in place: read the old one again
            before = self._state.get(store_key)
        old, shown = None if before is None else before[0], self._shown(aggregate)
        shown_before = self._shown(old) if self._every_update else None
        self._state.put(store_key, aggregate, ts)
        if self._expiry is not None and aggregate is not None:
            self._expiry.written(store_key, None if found is None else found[1], ts)
        if self._every_update:
            self.emit_row(key, shown, ts, old=shown_before)
        else:
            self._changed.setdefault(store_key, (key, old))

    def _shown(self, aggregate: Any) -> Any:
        return aggregate if self._result is None or aggregate is None else self._result(aggregate)

    def flush(self) -> None:
        changed, self._changed = self._changed, {}
        flushed = self._flushed(changed) if self._folded_columns else None
        self._folded_columns = False
        if flushed is not None:
            self.ctx.emit(flushed)
            return
        self._order, self.headers = 0, ()
        for store_key, (key, before) in changed.items():
            found, old = self._state.get(store_key), self._shown(before)
            if found is None:
                self.emit_row(key, None, self._state.dirty[store_key], old=old)
            else:
                self.emit_row(key, self._shown(found[0]), found[1], old=old)
        self._send()

    def _flushed(self, changed: dict[bytes, tuple[Any, Any]]) -> ColumnBatch | None:
        """The groups that changed since the commit, as columns; ``None``: row by row."""
        entries: list[Any] = list(map(self._state.entries.get, changed))
        if self._columns is None or self._flush is None or None in entries:
            return None
        accumulators = self._columns.accumulators
        before = [accumulators(b) for _, b in changed.values()] if self._sends_olds else None
        return self._flush.of(list(changed), [accumulators(e[0]) for e in entries], [e[1] for e in entries], before)

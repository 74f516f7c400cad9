"""Joins of two tables by their key: the result is a table, and either side's change updates it.

The other side's row is read where it is stored, through its view; no side is copied. Semantics are those of Kafka
Streams: the result's timestamp is the higher of the two rows'; a deletion deletes the result, or leaves the kept
side's result. Unlike there, a deletion is emitted if a single record removes both sides at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.state.serdes.serde import Serde
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
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.columnar.pairs import SIDES, why_no_pairs
from penstock.topologies.operators.columnar.stored_rows import row_values, why_no_texts
from penstock.topologies.operators.columnar.table_join import TableJoining
from penstock.topologies.operators.tables.table_views import JoinView, StoreView


def why_rows_join(view: JoinView) -> str | None:
    """Why changes of the sides are joined one by one, with rows of the other side."""
    sides = (view.left, view.right)
    serdes: dict[str, Serde[Any]] = {}
    for name, side in zip(SIDES, sides, strict=True):
        if not isinstance(side, StoreView) or not side.store.as_bytes:
            return f"its {name} rows are not texts in a store"
        serdes[name] = side.store.value_serde
    return why_no_joining(view.joiner, serdes)


def why_no_joining(joiner: Any, serdes: Mapping[str, Serde[Any]]) -> str | None:
    """Why rows of these serdes, by side, are joined one by one where they are kept as texts."""
    found = (why_no_texts(serde) for serde in serdes.values())
    return next(filter(None, found), None) or why_no_pairs(None, joiner, serdes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableTableJoinSpec(OperatorSpec):
    """``view`` says how rows are joined; ``stores`` must be the view's. The side that is kept without a partner must
    carry old values, and both must with ``sends_olds``.

    ``shared``: both sides are made of the same records, so that a single one can take both away at once. Then neither
    side can tell whether there was a result, so every absence is emitted; the operator that stores the results drops
    the redundant ones."""

    view: JoinView
    shared: bool = False
    in_ports: tuple[str, ...] = ("left", "right")
    emits: Emits = "upsert"

    @property
    def by_key(self) -> bool:
        return True

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def why_rows(self) -> str | None:
        """Why it joins changes one by one."""
        return why_rows_join(self.view)

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        why = self.why_rows
        return InputMode(RequiredColumns(key=True, value=True)) if why is None else InputMode(ALL_AS_ROWS, why)

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        why = super().row_reason(port, given)
        return why or ("old values come as lists" if self.reads_olds(port) and not given.olds else None)

    def reads_olds(self, port: int) -> bool:
        """Whether it needs the old values of a side."""
        keeps = self.view.keeps_right if port else self.view.keeps_left
        return self.sends_olds or (keeps and not self.shared)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys, True, olds=self.sends_olds) if input_mode.rows is None else ROW_LAYOUT

    def writes(self, port: int) -> tuple[str, ...]:
        return ()

    def touches(self, port: int) -> tuple[str, ...]:
        """A side's change reads the other side."""
        other = self.view.left if port else self.view.right
        return tuple(f"store:{s.name}" for s in other.stores)

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _TableTableJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The kind of join, and the stores that it reads."""
        kept = {(False, False): "inner", (True, False): "left", (False, True): "right", (True, True): "outer"}
        return {
            "type": kept[self.view.keeps_left, self.view.keeps_right],
            "stores": ", ".join(s.name for s in self.stores),
        }


class _TableTableJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: TableTableJoinSpec) -> None:
        super().__init__(ctx, spec)
        view = spec.view
        self._result = view.result
        self._others = (view.right.open(ctx.state), view.left.open(ctx.state))
        self._kept = (view.keeps_left, view.keeps_right)
        self._shared = spec.shared
        self._columns: TableJoining | None = None
        if spec.why_rows is None:
            left, right = (ctx.state(side.stores[0].name) for side in (view.left, view.right))
            values = row_values(left.spec.value_serde), row_values(right.spec.value_serde)
            if values[0] is not None and values[1] is not None:
                self._columns = TableJoining(
                    view.joiner,
                    (values[0], values[1]),
                    (left, right),
                    self._kept,
                    shared=spec.shared,
                    sends_olds=spec.sends_olds,
                )

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        return self._columns is not None and self._columns.load(port, batch)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        results = None if self._columns is None else self._columns.of(port, batch)
        if results is None:
            return batch
        if len(results):
            self.ctx.emit(results)
        return None

    def load(self, port: int, batch: Batch) -> None:
        self._others[port].load(batch.keys)

    def _joined(self, port: int, value: Any, other: Any) -> Any:
        return self._result(other, value) if port else self._result(value, other)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None:
            self.ctx.dropped("null_key")
            return
        found = self._others[port].get(key)
        if found is None:
            if not self._shared and (not self._kept[port] or (value is None and self.old is None)):
                return
            other = None
        else:
            other, ts = found[0], max(ts, found[1])
        new = self._joined(port, value, other)
        if not self._sends_olds:
            self.emit_row(key, new, ts)
            return
        old = self._joined(port, self.old, other)
        if new is not None or old is not None:
            self.emit_row(key, new, ts, old=old)

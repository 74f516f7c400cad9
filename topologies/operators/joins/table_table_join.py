"""Joins of two tables by their key: the result is a table, and either side's change updates it.

The other side's row is read where it is stored, through its view; no side is copied. Semantics are those of Kafka
Streams: the result's timestamp is the higher of the two rows'; a deletion deletes the result, or leaves the kept
side's result. Unlike there, a deletion is emitted if a single record removes both sides at once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.tables.table_views import JoinView


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

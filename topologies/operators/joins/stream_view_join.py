"""The stream–table join with a table that keeps no rows of its own: rows are computed when a stream record needs
them.

Everything else is as in ``penstock.topologies.operators.joins.stream_table_join``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.tables.table_views import TableView


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamViewJoinSpec(OperatorSpec):
    """Emits ``joiner(value, row)`` for each stream record that has a row. With ``left``, also for one that has none; the row
    is then ``None``. ``stores`` must be the view's."""

    view: TableView
    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def by_key(self) -> bool:
        return True

    @property
    def keeps_keys(self) -> bool:
        return True

    def writes(self, port: int) -> tuple[str, ...]:
        return ()

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _StreamViewJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The stores behind the table and the kind of join."""
        return {"stores": ", ".join(s.name for s in self.stores), "type": "left" if self.left else "inner"}


class _StreamViewJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: StreamViewJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._rows = spec.view.open(ctx.state)
        self._joiner, self._left = spec.joiner, spec.left

    def load(self, port: int, batch: Batch) -> None:
        self._rows.load(batch.keys)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if value is None:
            self.ctx.dropped("null_value")
            return
        if key is None and not self._left:
            self.ctx.dropped("null_key")
            return
        found = None if key is None else self._rows.get(key)
        if found is not None or self._left:
            self.emit_row(key, self._joiner(value, None if found is None else found[0]), ts)

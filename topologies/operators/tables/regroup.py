"""Changes of a table's rows as changes of groups: each change of a row is removed from its old group and added to its new
one.

If a row's group is the same before and after, that is one change, so that no consumer sees the state in between. The order
between two groups is not defined.

Only what was added to a group may be removed from it. So a row for which the grouping function raises, under a policy
that skips it, belongs to no group: its former value is removed, and the row is counted, or sent to the dead letter
topic, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.serdes.change_serde import Change
from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import ROW_LAYOUT, EdgeLayout, InputMode, RequiredColumns
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.columnar.regrouping import Regrouping, regrouping_mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegroupSpec(OperatorSpec):
    """``fn(key, value)`` gives a row's group and what of it is aggregated, or ``None``; rows without one, or whose group
    or value is null, belong to no group. With ``whole_rows``, ``fn`` gives the group alone, which gets the row. Its input
    must carry old values; it emits ``Change`` values under the groups' keys, which ``key_serde`` writes."""

    fn: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    whole_rows: bool = False
    emits: Emits = "insert"

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return regrouping_mode(self.fn)

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return super().row_reason(port, given) or (None if given.olds else "old values come as lists")

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(keys=True, values=True) if input_mode.rows is None else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _RegroupOperator(ctx, self)


class _RegroupOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: RegroupSpec) -> None:
        super().__init__(ctx, spec)
        fn = spec.fn
        self._fn = (lambda key, row: (fn(key, row), row)) if spec.whole_rows else fn
        self._write = spec.key_serde.serialize
        self._columns = Regrouping.of(fn, spec.key_serde)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        regrouped = None if self._columns is None else self._columns.of_batch(batch)
        if regrouped is None:
            return batch
        self.ctx.emit(regrouped)
        return None

    def _grouped(self, key: Any, value: Any) -> tuple[Any, Any, bytes] | None:
        """Group, what it gets, and the group's bytes, which are made here: a group that cannot be written is refused now, as
        it will be when the row is to leave it."""
        made = None if value is None else self._fn(key, value)
        if made is None:
            return None
        try:
            group, grouped = made
        except (TypeError, ValueError) as exc:
            raise TypeError(f"the function must return a (key, value) pair or None, not {made!r:.100}") from exc
        return None if group is None or grouped is None else (group, grouped, self._write(group))

    def _grouped_before(self, key: Any, value: Any) -> tuple[Any, Any, bytes] | None:
        try:
            return self._grouped(key, value)
        except Exception:  # it was refused when it came
            return None

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        old, new = self._grouped_before(key, self.old), None
        try:
            new = self._grouped(key, value)
        except Exception as exc:
            self.failed_waiting(key, value, ts, exc)
        if old is not None and new is not None and old[2] == new[2]:
            self.emit_row(new[0], Change(new[1], old[1]), ts)
            return
        if old is not None:
            self.emit_row(old[0], Change(None, old[1]), ts)
        if new is not None:
            self.emit_row(new[0], Change(new[1], None), ts)

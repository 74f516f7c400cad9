"""The join of a stream with a versioned table: each record is joined with the row as it was at the record's time.

The in port ``table`` takes the table's changes, which emit nothing here: they advance the table's stream time. A
record that is older than that minus the history is joined with the newest version of its key, if that was already
valid at the record's time: a row that never changed is always found. Replaced versions that are older than the
history are gone: an inner join drops such a record and counts it as ``expired``, a left join finds no row. With
``grace`` the stream waits in ``penstock.topologies.operators.base.grace_buffer`` before it arrives here, so that late
updates are seen. (Kafka Streams, KIP-914 and KIP-923; Flink's temporal join.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.topologies.operator_api.edge_kinds import Emits
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.tables.table_views import TableView


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamVersionedJoinSpec(OperatorSpec):
    """``joiner(left, row)``; ``left``: also without a row. ``view`` reads the table; its rows must know ``as_of``."""

    joiner: Callable[[Any, Any], Any]
    view: TableView
    history_ms: int
    left: bool = False
    in_ports: tuple[str, ...] = ("in", "table")
    emits: Emits = "insert"

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _StreamVersionedJoinOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """The table's store and the kind of join."""
        return {"store": self.stores[0].name, "type": "left" if self.left else "inner", "as_of": "record time"}


class _StreamVersionedJoinOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: StreamVersionedJoinSpec) -> None:
        super().__init__(ctx, spec)
        self._join = spec
        self._rows: Any = spec.view.open(ctx.state)

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if port == 1:
            self.advance_stream_time(ts)
            return
        if value is None:
            self.ctx.dropped("null_value")
            return
        if key is None and not self._join.left:
            self.ctx.dropped("null_key")
            return
        horizon_ms = self.stream_time_ms - self._join.history_ms
        found = None if key is None else self._rows.as_of(key, ts, horizon_ms)
        if found is not None:
            self.emit_row(key, self._join.joiner(value, found[0]), ts)
        elif self._join.left:
            self.emit_row(key, self._join.joiner(value, None), ts)
        elif ts < horizon_ms and self._rows.get(key) is not None:
            self.ctx.dropped("expired")

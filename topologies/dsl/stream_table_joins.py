"""Joins of a stream with a table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Function, Handle
from penstock.topologies.dsl.table import KTable
from penstock.topologies.dsl.typed import join_function, result_serde
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.base.grace_buffer import GraceBufferSpec, hold_store
from penstock.topologies.operators.joins.stream_table_join import StreamTableJoinSpec
from penstock.topologies.operators.joins.stream_versioned_join import StreamVersionedJoinSpec
from penstock.topologies.operators.joins.stream_view_join import StreamViewJoinSpec
from penstock.topologies.operators.tables.table_views import StoreView
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class StreamTableJoinMethods(Handle):
    """Methods of ``KStream``."""

    def _join_table(
        self,
        table: Any,
        joiner: Function | Expression,
        value: Any,
        name: str,
        *,
        left: bool,
        grace: int | str | None = None,
    ) -> KStream:
        """``joiner(left, row)`` for each record that meets a row of the table when it is processed (``left``: also for
        those that meet none, or have no key). The table's own updates emit nothing. Null values, and null keys of an
        inner join, are dropped and counted."""
        wiring = self._flow.wiring
        if not isinstance(table, KTable):
            raise TopologyError(f"operator {name!r} joins {table!r:.100}; the right side must be a KTable")
        wiring.check_own(table._flow, name)
        if table.windowed:
            raise TopologyError(
                f"operator {name!r} joins the windowed table {table.name!r}, whose rows no stream key can "
                "name; join a table per key, or read the store in a processor"
            )
        if self.key_serde.name != table.key_serde.name:
            raise TopologyError(
                f"operator {name!r}: keys of {self.out!r} are {self.key_serde.name}, those of table "
                f"{table.name!r} are {table.key_serde.name}, and would never meet; bring the stream to the "
                "table's with select_key(…, key=…)"
            )
        flow = wiring.by_key(self._flow)
        checked = join_function(joiner, name, (flow, table._flow), nulls=(False, left), into=value)
        value = result_serde(checked, name, value)
        if table.history_ms is not None:
            return self._join_versions(flow, table, checked, value, name, left=left, grace=grace)
        if grace is not None:
            raise TopologyError(
                f"operator {name!r} has grace={grace!r} for a table without history, whose rows are read as they stand; "
                "give the table a history (table(topic, history=…)), or leave grace out"
            )
        wiring.check_together((flow, table._flow), name)
        wiring.add(name, _join_of_rows(table.readable(), checked, left=left), flow)
        return self._stream(self._stream(flow)._behind(name, value=value))

    def _join_versions(
        self,
        flow: Flow,
        table: KTable,
        joiner: Function,
        value: Any,
        name: str,
        *,
        left: bool,
        grace: int | str | None,
    ) -> KStream:
        """The row as it was at each record's time; with ``grace`` the stream waits so long for late updates (under
        watermarks: for the watermark)."""
        wiring = self._flow.wiring
        wiring.check_together((flow, table._flow), name)
        assert table.history_ms is not None
        if grace is not None:
            hold_ms = duration_ms(grace)
            if hold_ms > table.history_ms:
                raise TopologyError(
                    f"operator {name!r} waits {hold_ms} ms, longer than the {table.history_ms} ms for which table "
                    f"{table.name!r} knows its history; give less grace or more history"
                )
            held = f"{name}-hold"
            spec = GraceBufferSpec(
                stores=(hold_store(held, hold_ms),),
                hold_ms=hold_ms,
                key_serde=flow.key,
                value_serde=flow.value,
                uses_watermark=flow.watermarked,
            )
            wiring.add(held, spec, flow)
            flow = dataclasses.replace(flow, operator=held, port=None)
        view = table.view
        join = StreamVersionedJoinSpec(
            stores=view.stores, joiner=joiner, view=view, history_ms=table.history_ms, left=left
        )
        kept = table
        while kept._inputs:  # the one whose stream time says how far its history reaches
            (kept,) = kept._inputs
        wiring.add_ports(name, join, {"in": flow, "table": kept._flow})
        return self._stream(self._stream(flow)._behind(name, value=value))


def _join_of_rows(table: KTable, joiner: Function, *, left: bool) -> OperatorSpec:
    """The operator for a table with rows of its own, or for one whose rows are computed."""
    view = table.view
    if isinstance(view, StoreView):
        return StreamTableJoinSpec(stores=(view.store,), joiner=joiner, left=left)
    return StreamViewJoinSpec(stores=view.stores, view=view, joiner=joiner, left=left)

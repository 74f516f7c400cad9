"""Join a stream with a table."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.typed import join_function, result_serde
from penstock.topologies.dsl.wiring import Flow, Function
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.base.grace_buffer import GraceBufferSpec, hold_store
from penstock.topologies.operators.joins.stream_table_join import StreamTableJoinSpec
from penstock.topologies.operators.joins.stream_versioned_join import StreamVersionedJoinSpec
from penstock.topologies.operators.joins.stream_view_join import StreamViewJoinSpec
from penstock.topologies.operators.tables.table_views import StoreView
from penstock.topologies.windows import Duration, duration_ms


def joined_with_table(
    flow: Flow, table: TableFlow, joiner: Any, value: Any, name: str, *, left: bool, grace: Duration | None
) -> Flow:
    """Emit ``joiner(left, row)`` for each record that finds a row of the table when it is processed; with ``left`` also
    for records that find none or have no key. The table's own updates emit nothing. Null values, and null keys of an
    inner join, are dropped and counted."""
    wiring = flow.wiring
    rows = table.flow
    wiring.check_own(rows, name)
    if table.windowed:
        raise TopologyError(
            f"operator {name!r} joins the windowed table {table.name!r}, whose rows a stream key cannot "
            "name; join a table per key, or read the store in a processor"
        )
    if flow.key.name != rows.key.name:
        raise TopologyError(
            f"operator {name!r}: keys of {flow.out!r} are {flow.key.name}, those of table "
            f"{table.name!r} are {rows.key.name}, so they would never match; convert the stream to the "
            "table's key with select_key(…, key=…)"
        )
    flow = wiring.by_key(flow)
    checked = join_function(joiner, name, (flow, rows), nulls=(False, left), into=value)
    value = result_serde(checked, name, value)
    if table.history_ms is not None:
        return _joined_with_versions(flow, table, checked, value, name, left=left, grace=grace)
    if grace is not None:
        raise TopologyError(
            f"operator {name!r} has grace={grace!r}, but its table has no history, so current rows are joined; "
            "give the table a history (table(topic, history=…)), or leave grace out"
        )
    wiring.check_together((flow, rows), name)
    wiring.add(name, _join_of_rows(table.readable(), checked, left=left), flow)
    return flow.behind(name, value=value)


def _joined_with_versions(
    flow: Flow, table: TableFlow, joiner: Function, value: Any, name: str, *, left: bool, grace: Duration | None
) -> Flow:
    """Join the row that was valid at each record's time. With ``grace`` the stream waits that long for late updates
    (under watermarks: until the watermark has passed)."""
    wiring = flow.wiring
    wiring.check_together((flow, table.flow), name)
    assert table.history_ms is not None
    if grace is not None:
        hold_ms = duration_ms(grace)
        if hold_ms > table.history_ms:
            raise TopologyError(
                f"operator {name!r} waits {hold_ms} ms, longer than the {table.history_ms} ms for which table "
                f"{table.name!r} keeps history; give less grace or more history"
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
    join = StreamVersionedJoinSpec(stores=view.stores, joiner=joiner, view=view, history_ms=table.history_ms, left=left)
    wiring.add_ports(name, join, {"in": flow, "table": table.versioned.flow})
    return flow.behind(name, value=value)


def _join_of_rows(table: TableFlow, joiner: Function, *, left: bool) -> OperatorSpec:
    """Return the operator for a table with stored rows, or for one whose rows are computed."""
    view = table.view
    if isinstance(view, StoreView):
        return StreamTableJoinSpec(stores=(view.store,), joiner=joiner, left=left)
    return StreamViewJoinSpec(stores=view.stores, view=view, joiner=joiner, left=left)

"""Join a stream with a global table, and copy the table for each join."""

from __future__ import annotations

from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.global_ktable import GlobalKTable
from penstock.topologies.dsl.typed import join_function, result_serde, row_function, traced
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operators.joins.stream_table_join import StreamTableJoinSpec
from penstock.topologies.operators.records.source_sink import SinkSpec
from penstock.topologies.operators.records.table_source import TableSourceSpec


def joined_with_global(
    flow: Flow, kind: str, table: object, key_fn: Any, joiner: Any, value: Any, name: str | None, *, left: bool
) -> Flow:
    """Emit ``joiner(value, row)`` for each record with the row whose key is ``key_fn(key, value)``."""
    wiring = flow.wiring
    name = wiring.name(flow, kind, name)
    if not isinstance(table, GlobalKTable):
        raise TopologyError(f"operator {name!r} joins {table!r:.100}; give what global_table(topic) returned")
    rows = table._flow
    wiring.check_own(rows, name)
    checked = join_function(joiner, name, (flow, rows), nulls=(False, left), into=value)
    row_key = traced(row_function(key_fn, name, flow), flow, ("key", "value"), "key")
    value = result_serde(checked, name, value)
    spec = StreamTableJoinSpec(stores=(global_rows(rows, f"{name}-rows"),), joiner=checked, left=left, key_fn=row_key)
    wiring.add(name, spec, flow)
    return flow.behind(name, value=value)


def global_rows(table: Flow, name: str) -> StoreSpec:
    """Copy a global table to every task of the sub-topology that uses the returned store, which is called ``name``."""
    wiring = table.wiring
    topic = f"{name}{REPARTITION}"
    wiring.add(
        f"{topic}-sink",
        SinkSpec(topic=topic, key_serde=table.key, value_serde=table.value, internal=True, route="broadcast"),
        table,
    )
    store = StoreSpec(name, "key_value", table.key, table.value)
    source = TableSourceSpec(
        topic=topic, key_serde=table.key, value_serde=table.value, internal=True, bootstrap=True, stores=(store,)
    )
    wiring.add_source(name, source)
    return store

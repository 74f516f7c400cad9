"""Row-by-row operators of a table."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.serdes.change_serde import change_serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.partitions import processed
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.typed import result_serde, row_function, selection, traced
from penstock.topologies.dsl.wiring import Flow, as_serde
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Expression, StructOf
from penstock.topologies.operators.records.stateless import SelectKeySpec
from penstock.topologies.operators.tables.table_operators import (
    MaterializeSpec,
    TableChangesSpec,
    TableFilterSpec,
    TableMapValuesSpec,
)
from penstock.topologies.operators.tables.table_views import ComputedView

_BOTH = ("key", "value")


def filtered(table: TableFlow, kind: str, fn: Any, name: str | None, *, negate: bool) -> TableFlow:
    """Keep the rows for which ``fn(key, value)`` is true (``negate``: false). If the table's rows are kept already, request
    its old values (as Kafka Streams does), so that a row that stays refused is not deleted twice."""
    own = _operator_name(table, kind, name)
    if negate and isinstance(fn, Expression):
        fn, negate = ~fn, False  # if a condition is null, neither it nor its negation is true
    checked = traced(row_function(fn, own, table.flow, condition=True), table.flow, _BOTH, "condition")
    knows = table.keeps_olds
    if knows:  # then the filter knows which rows it refused before, and says nothing of them again
        table.request_olds()
    return _derived(table, own, TableFilterSpec(fn=checked, negate=negate, sends_olds=knows), None, name)


def mapped(table: TableFlow, kind: str, fn: Any, value: Any, name: str | None, *, with_key: bool) -> TableFlow:
    """Map the value of each row to ``fn(value)`` or ``fn(key, value)``."""
    own = _operator_name(table, kind, name)
    if isinstance(fn, StructOf):
        fn = selection(fn.fields, value)
    takes = _BOTH if with_key else ("value",)
    checked = row_function(fn, own, table.flow, takes=takes)
    value = result_serde(checked, own, value)
    made = traced(checked, table.flow, takes, "value", (table.flow.behind(own, value=value).value,))
    spec = TableMapValuesSpec(fn=made, with_key=with_key or isinstance(checked, ExpressionFunction))
    return _derived(table, own, spec, value, name)


def transformed(
    table: TableFlow, factory: Any, stores: tuple[StoreSpec, ...], value: Any, name: str | None
) -> TableFlow:
    """Replace rows by what a processor forwards."""
    own = _operator_name(table, "transform-values", name)
    flow, _ = processed(table.flow, factory, stores=stores, key=None, value=value, keeps_key=True, name=own)
    rows = f"{own}-rows"
    flow.wiring.add(rows, MaterializeSpec(), flow)
    return TableFlow(dataclasses.replace(flow, operator=rows, port=None)).named(name)


def changes(table: TableFlow, key_fn: Any, key: Any, name: str | None) -> Flow:
    """Return the table's changes as a stream, keyed by ``key_fn(key, value)`` if given."""
    flow = table.flow
    if key_fn is None:
        return flow if key is None else dataclasses.replace(flow, key=as_serde(key, f"{flow.out!r}"))
    name = flow.wiring.name(flow, "to-stream", name)
    checked = row_function(key_fn, name, flow, record=True)
    key = result_serde(checked, name, key)
    serde = flow.key if key is None else as_serde(key, f"the key of operator {name!r}")
    flow.wiring.add(name, SelectKeySpec(fn=traced(checked, flow, _BOTH, "key", (serde,))), flow)
    return dataclasses.replace(flow, operator=name, port=None, key=serde, rekeyed=True)


def old_and_new(table: TableFlow, name: str | None) -> Flow:
    """Return the table's changes as a stream of ``Change`` values."""
    flow = table.flow
    own = flow.wiring.name(flow, "to-changes", name)
    table.request_olds()
    flow.wiring.add(own, TableChangesSpec(), flow)
    return flow.behind(own, value=change_serde(flow.value))


def _operator_name(table: TableFlow, kind: str, name: str | None) -> str:
    return table.flow.wiring.name(table.flow, kind, None if name is None else f"{name}-{kind}")


def _derived(
    table: TableFlow, own: str, spec: TableFilterSpec | TableMapValuesSpec, value: Any, name: str | None
) -> TableFlow:
    table.flow.wiring.add(own, spec, table.flow)
    made = TableFlow(
        table.flow.behind(own, value=value),
        view=lambda: ComputedView(table.readable().view, spec.value_of),
        inputs=(table,),
    )
    return made.named(name)

"""Join two tables: by key, or by a foreign key in the rows."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.typed import join_function, result_serde, row_function
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.internal_names import REGISTRATION as REGISTRATION_SUFFIX
from penstock.topologies.operator_api.internal_names import RESPONSE as RESPONSE_SUFFIX
from penstock.topologies.operators.base.foreign_key_messages import RESPONSE, SUBSCRIPTION
from penstock.topologies.operators.joins.foreign_key_join import (
    ForeignKeyJoinSpec,
    ForeignKeyResponseSpec,
    ForeignKeySubscribeSpec,
    partition_of_answer,
    why_rows_join,
)
from penstock.topologies.operators.joins.table_table_join import TableTableJoinSpec, why_no_joining
from penstock.topologies.operators.records.source_sink import Route, SinkSpec, SourceSpec
from penstock.topologies.operators.tables.table_operators import MaterializeSpec
from penstock.topologies.operators.tables.table_views import JoinView


def joined(
    table: TableFlow,
    kind: str,
    other: object,
    joiner: Any,
    value: Any,
    name: str | None,
    *,
    keeps_left: bool = False,
    keeps_right: bool = False,
) -> TableFlow:
    """Emit a row ``joiner(left, right)`` for each key. ``keeps_left``: also for left rows without a right one;
    ``keeps_right``: also for right rows without a left one."""
    wiring = table.flow.wiring
    own = wiring.name(table.flow, kind, None if name is None else f"{name}-{kind}")
    left, right = table.readable(), _with_same_keys(table, other, own).readable()
    if left.flow.out == right.flow.out:
        raise TopologyError(f"operator {own!r} joins table {left.name!r} with itself; use map_values")
    left.retain_for_lookups()
    right.retain_for_lookups()
    if keeps_left:
        left.request_olds()
    if keeps_right:
        right.request_olds()
    sides = (left.flow, right.flow)
    checked = join_function(joiner, own, sides, nulls=(keeps_right, keeps_left), into=value)
    value = result_serde(checked, own, value)
    wiring.check_together(sides, own)
    serdes = {"left": left.flow.value, "right": right.flow.value}
    if left.holds_texts and right.holds_texts and why_no_joining(checked, serdes) is None:
        left.keep_as_bytes()
        right.keep_as_bytes()
    view = JoinView(left.view, right.view, checked, keeps_left, keeps_right)
    shared = not wiring.graph.upstream(left.name).isdisjoint(wiring.graph.upstream(right.name))
    spec = TableTableJoinSpec(view=view, stores=view.stores, shared=shared)
    wiring.add_ports(own, spec, {"left": left.flow, "right": right.flow})
    watermarked = left.flow.watermarked or right.flow.watermarked
    flow = dataclasses.replace(left.flow.behind(own, value=value), watermarked=watermarked)
    if shared:
        return TableFlow(flow, inputs=(left, right)).kept(name or f"{own}-rows", quiet=True)
    return TableFlow(flow, view=lambda: view, inputs=(left, right)).named(name)


def _other_table(table: TableFlow, other: object, name: str) -> TableFlow:
    """Return the other side, or raise if it is not a table of the same builder."""
    wiring = table.flow.wiring
    if not isinstance(other, wiring.handles.table):
        raise TopologyError(f"operator {name!r} joins {other!r:.100}; the other side must be a KTable")
    rows: TableFlow = other._rows
    wiring.check_own(rows.flow, name)
    return rows


def _with_same_keys(table: TableFlow, other: object, name: str) -> TableFlow:
    """Return the other side, or raise if its keys cannot match the table's."""
    rows = _other_table(table, other, name)
    if table.flow.key.name != rows.flow.key.name:
        raise TopologyError(
            f"operator {name!r}: keys of {table.flow.out!r} are {table.flow.key.name}, those of {rows.flow.out!r} are "
            f"{rows.flow.key.name}, so they would never match; give both tables the same key serde, or join by "
            "foreign key (join_foreign)"
        )
    return rows


# -- foreign keys --------------------------------------------------------------------------------------------


def joined_foreign(
    table: TableFlow, kind: str, other: object, fn: Any, joiner: Any, value: Any, name: str | None, *, left: bool
) -> TableFlow:
    """Join each row with the row of the other table that its foreign key ``fn(key, value)`` names."""
    wiring = table.flow.wiring
    own = wiring.name(table.flow, kind, name)
    rows = _other_table(table, other, own)
    if rows.windowed:
        raise TopologyError(
            f"operator {own!r}: rows of the windowed table {rows.name!r} cannot be reached by a foreign key; join a "
            "table per key"
        )
    asking, asked = table.readable(), rows.readable()
    asking.retain_for_lookups()
    asking.request_olds()
    asked.silence_refused()
    keys, values = asking.flow.key, asking.flow.value
    checked = join_function(joiner, own, (asking.flow, asked.flow), nulls=(False, left), into=value)
    subscribe = ForeignKeySubscribeSpec(
        fn=row_function(fn, own, asking.flow),
        key_serde=keys,
        value_serde=values,
        foreign_key_serde=asked.flow.key,
        left=left,
    )
    if subscribe.why_rows is None and why_rows_join(checked, values, asked.flow.value) is None:
        asking.keep_as_bytes()
        asked.keep_as_bytes()
    wiring.add(f"{own}-subscribe", subscribe, asking.flow)
    answers = _exchange(own, asking, asked)
    # a store of results knows which results exist; a left join has one per left row
    marks = None if left or name else StoreSpec(f"{own}-joined", "key_value", keys, BYTES)
    join = ForeignKeyJoinSpec(
        stores=asking.view.stores if marks is None else (*asking.view.stores, marks),
        rows=asking.view,
        value_serde=values,
        foreign_value_serde=asked.flow.value,
        joiner=checked,
        left=left,
        marks=marks,
    )
    wiring.add(f"{own}-response", join, answers)
    behind = table.flow.behind(f"{own}-response", value=result_serde(checked, own, value))
    flow = dataclasses.replace(behind, rekeyed=False)
    wiring.add(own, MaterializeSpec(quiet=True), flow)
    made = TableFlow(dataclasses.replace(flow, operator=own))
    return made if name is None else made.with_store()


def _exchange(own: str, asking: TableFlow, asked: TableFlow) -> Flow:
    """Wire the two topics and the responder between them: from ``<own>-subscribe`` to the answers."""
    wiring, root = asking.flow.wiring, asking.flow.root
    subscriptions = Flow(wiring, root, f"{own}-subscribe", None, asked.flow.key, SUBSCRIPTION, rekeyed=True)
    wiring.check_together((subscriptions, asked.flow), own)
    arrived = _through(subscriptions, f"{own}{REGISTRATION_SUFFIX}")
    store = StoreSpec(f"{own}-subscription-store", "key_value", BYTES, SUBSCRIPTION, as_bytes=True)
    answer = ForeignKeyResponseSpec(
        stores=(store, *asked.view.stores),
        right=asked.view,
        foreign_key_serde=asked.flow.key,
        value_serde=asked.flow.value,
    )
    wiring.add_ports(f"{own}-answer", answer, {"subscriptions": arrived, "rows": asked.flow})
    answers = Flow(wiring, root, f"{own}-answer", None, BYTES, RESPONSE)
    return _through(answers, f"{own}{RESPONSE_SUFFIX}", read_key=asking.flow.key, route=partition_of_answer)


def _through(
    flow: Flow,
    topic: str,
    *,
    read_key: Serde[Any] | None = None,
    route: Route = "key",
) -> Flow:
    """Send the records through an internal topic. ``read_key``: the serde for reading keys. If the writer chooses
    partitions, the topic carries no watermarks: it returns answers to what its readers have sent, so they would wait
    for themselves."""
    wiring = flow.wiring
    key = flow.key if read_key is None else read_key
    sink = SinkSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, internal=True, route=route)
    source = SourceSpec(
        topic=topic, key_serde=key, value_serde=flow.value, internal=True, carries_watermarks=route == "key"
    )
    wiring.add(f"{topic}-sink", sink, flow)
    wiring.add_source(topic, source)
    return dataclasses.replace(flow, operator=topic, port=None, key=key, rekeyed=False)

"""Joins of a table with another one: by key, and by a foreign key that its rows name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.table_handle import TableHandle
from penstock.topologies.dsl.typed import join_function, result_serde, row_function
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.internal_names import REGISTRATION as REGISTRATION_SUFFIX
from penstock.topologies.operator_api.internal_names import RESPONSE as RESPONSE_SUFFIX
from penstock.topologies.operators.joins.foreign_key_join import (
    ForeignKeyJoinSpec,
    ForeignKeyResponseSpec,
    ForeignKeySubscribeSpec,
    partition_of_answer,
)
from penstock.topologies.operators.joins.foreign_key_messages import RESPONSE, SUBSCRIPTION
from penstock.topologies.operators.joins.table_table_join import TableTableJoinSpec
from penstock.topologies.operators.records.source_sink import Route, SinkSpec, SourceSpec
from penstock.topologies.operators.tables.table_operators import MaterializeSpec
from penstock.topologies.operators.tables.table_views import JoinView

if TYPE_CHECKING:
    from penstock.topologies.dsl.table import KTable


class TableJoinMethods(TableHandle):
    """Methods of ``KTable``. ``value`` is the serde of results (default: this table's); ``name`` names the operator and
    gives the result a store of that name."""

    def join(
        self, other: KTable, joiner: Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KTable:
        """A row ``joiner(left, right)`` for each key that has one in both tables, kept up to date by changes of either
        side. The tables must be partitioned alike; nothing is copied. Rows of windows whose ``retention`` nobody named are
        kept for a day of stream time after they closed, so that two tables meet whose windows close in turn."""
        return self._joined("join", other, joiner, value, name)

    def left_join(
        self, other: KTable, joiner: Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KTable:
        """As ``join``, and ``joiner(left, None)`` where the other table has no row."""
        return self._joined("left-join", other, joiner, value, name, keeps_left=True)

    def right_join(
        self, other: KTable, joiner: Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KTable:
        """As ``join``, and ``joiner(None, right)`` where only the other table has a row."""
        return self._joined("right-join", other, joiner, value, name, keeps_right=True)

    def outer_join(
        self, other: KTable, joiner: Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KTable:
        """As ``left_join``, and ``joiner(None, right)`` where only the other table has a row."""
        return self._joined("outer-join", other, joiner, value, name, keeps_left=True, keeps_right=True)

    def _joined(
        self,
        kind: str,
        other: Any,
        joiner: Any,
        value: Any,
        name: str | None,
        *,
        keeps_left: bool = False,
        keeps_right: bool = False,
    ) -> KTable:
        wiring = self._flow.wiring
        own = wiring.name(self._flow, kind, None if name is None else f"{name}-{kind}")
        left, right = self.readable(), self._check_same_keys(other, own).readable()
        if left.out == right.out:
            raise TopologyError(f"operator {own!r} joins table {left.name!r} with itself; use map_values")
        left.retain_for_lookups()
        right.retain_for_lookups()
        if keeps_left:
            left.request_olds()
        if keeps_right:
            right.request_olds()
        sides = (left._flow, right._flow)
        checked = join_function(joiner, own, sides, nulls=(keeps_right, keeps_left), into=value)
        value = result_serde(checked, own, value)
        wiring.check_together((left._flow, right._flow), own)
        view = JoinView(left.view, right.view, checked, keeps_left, keeps_right)
        shared = not wiring.graph.upstream(left.name).isdisjoint(wiring.graph.upstream(right.name))
        spec = TableTableJoinSpec(view=view, stores=view.stores, shared=shared)
        wiring.add_ports(own, spec, {"left": left._flow, "right": right._flow})
        watermarked = left._flow.watermarked or right._flow.watermarked
        flow = dataclasses.replace(left._behind(own, value=value), watermarked=watermarked)
        if shared:
            return self._table(flow, inputs=(left, right))._kept(name or f"{own}-rows", quiet=True)
        return self._named(self._table(flow, view=lambda: view, inputs=(left, right)), name)

    # -- foreign keys ----------------------------------------------------------------------------------------

    def join_foreign(
        self,
        other: KTable,
        fn: Function | Expression,
        joiner: Function | Expression,
        *,
        value: Any = None,
        name: str | None = None,
    ) -> KTable:
        """A row ``joiner(left, right)`` for each row of this table whose foreign key ``fn(key, value)`` has a row in the
        other; ``None``: it names none, which is counted. Keys are this table's. The tables may be partitioned in any
        way: their tasks exchange subscriptions and answers through two topics."""
        return self._joined_foreign("join-foreign", other, fn, joiner, value, name, left=False)

    def left_join_foreign(
        self,
        other: KTable,
        fn: Function | Expression,
        joiner: Function | Expression,
        *,
        value: Any = None,
        name: str | None = None,
    ) -> KTable:
        """As ``join_foreign``, and ``joiner(left, None)`` for rows that name no row, or one that is not there."""
        return self._joined_foreign("left-join-foreign", other, fn, joiner, value, name, left=True)

    def _joined_foreign(
        self, kind: str, other: Any, fn: Any, joiner: Any, value: Any, name: str | None, *, left: bool
    ) -> KTable:
        from penstock.topologies.dsl.table import KTable

        wiring = self._flow.wiring
        own = wiring.name(self._flow, kind, name)
        if not isinstance(other, KTable):
            raise TopologyError(f"operator {own!r} joins {other!r:.100}; the other side must be a KTable")
        wiring.check_own(other._flow, own)
        if other.windowed:
            raise TopologyError(
                f"operator {own!r}: rows of the windowed table {other.name!r} cannot be named by a foreign key; join a "
                "table per key"
            )
        asking, asked = self.readable(), other.readable()
        asking.retain_for_lookups()
        asking.request_olds()
        asked.silence_refused()
        checked = join_function(joiner, own, (asking._flow, asked._flow), nulls=(False, left), into=value)
        subscribe = ForeignKeySubscribeSpec(
            fn=row_function(fn, own, asking._flow),
            key_serde=asking.key_serde,
            value_serde=asking.value_serde,
            foreign_key_serde=asked.key_serde,
            left=left,
        )
        wiring.add(f"{own}-subscribe", subscribe, asking._flow)
        answers = _exchange(own, asking, asked)
        # a store of results knows which there are; a left join has one for every left row
        marks = None if left or name else StoreSpec(f"{own}-joined", "key_value", asking.key_serde, BYTES)
        join = ForeignKeyJoinSpec(
            stores=asking.view.stores if marks is None else (*asking.view.stores, marks),
            rows=asking.view,
            value_serde=asking.value_serde,
            foreign_value_serde=asked.value_serde,
            joiner=checked,
            left=left,
            marks=marks,
        )
        wiring.add(f"{own}-response", join, answers)
        behind = self._behind(f"{own}-response", value=result_serde(checked, own, value))
        flow = dataclasses.replace(behind, port=None, rekeyed=False)
        wiring.add(own, MaterializeSpec(quiet=True), flow)
        table = self._table(dataclasses.replace(flow, operator=own))
        return table if name is None else table.with_store()


def _exchange(own: str, asking: KTable, asked: KTable) -> Flow:
    """The two topics with what answers between them: from the operator ``<own>-subscribe`` to the answers."""
    wiring = asking._flow.wiring
    subscriptions = Flow(
        wiring, asking._flow.root, f"{own}-subscribe", None, asked.key_serde, SUBSCRIPTION, rekeyed=True
    )
    wiring.check_together((subscriptions, asked._flow), own)
    arrived = _through(subscriptions, f"{own}{REGISTRATION_SUFFIX}")
    store = StoreSpec(f"{own}-subscription-store", "key_value", BYTES, SUBSCRIPTION)
    answer = ForeignKeyResponseSpec(
        stores=(store, *asked.view.stores),
        right=asked.view,
        foreign_key_serde=asked.key_serde,
        value_serde=asked.value_serde,
    )
    wiring.add_ports(f"{own}-answer", answer, {"subscriptions": arrived, "rows": asked._flow})
    answers = Flow(wiring, asking._flow.root, f"{own}-answer", None, BYTES, RESPONSE)
    return _through(answers, f"{own}{RESPONSE_SUFFIX}", read_key=asking.key_serde, route=partition_of_answer)


def _through(
    flow: Flow,
    topic: str,
    *,
    read_key: Serde[Any] | None = None,
    route: Route = "key",
) -> Flow:
    """The same records behind an internal topic. ``read_key``: the serde by which keys are read there. Where the writer
    chooses partitions, the topic carries no watermarks: it brings answers to what its readers have sent, so that they
    would wait for themselves."""
    wiring = flow.wiring
    key = flow.key if read_key is None else read_key
    sink = SinkSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, internal=True, route=route)
    source = SourceSpec(
        topic=topic, key_serde=key, value_serde=flow.value, internal=True, carries_watermarks=route == "key"
    )
    wiring.add(f"{topic}-sink", sink, flow)
    wiring.add_source(topic, source)
    return dataclasses.replace(flow, operator=topic, port=None, key=key, rekeyed=False)

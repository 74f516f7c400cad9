"""Aggregations of a table's rows by another key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.change_serde import change_serde
from penstock.state.serdes.serde import INT, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.dsl.table_handle import TableHandle
from penstock.topologies.dsl.typed import aggregate_of, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import Flow, as_emission, as_serde, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.base.row_expiry import checked_ttl, expiry_store
from penstock.topologies.operators.tables.table_aggregate import RegroupSpec, TableAggregateSpec
from penstock.topologies.operators.tables.table_views import view_of_results

if TYPE_CHECKING:
    from penstock.topologies.dsl.table import KTable


class TableGroupMethods(TableHandle):
    """Methods of ``KTable``."""

    def group_by(
        self,
        fn: Callable[[Any, Any], tuple[Any, Any] | None],
        *,
        key: Any = None,
        value: Any = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KGroupedTable:
        """Group rows by ``fn(key, value)``, which gives the group and what of the row is aggregated. ``None``, or a null in
        either place: the row belongs to no group. Changes go through a repartition topic. ``key`` and ``value`` are the
        serdes of what ``fn`` gives (default: this table's)."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "group-by", name)
        table = self.readable()
        table.request_olds()
        flow = table._behind(name, key=key, value=value, rekeyed=True)
        wiring.add(name, RegroupSpec(fn=check_function(fn, name), key_serde=flow.key), table._flow)
        changes = dataclasses.replace(flow, value=change_serde(flow.value))
        return KGroupedTable(wiring.repartition(changes, partitions=partitions), flow.value)


class KGroupedTable:
    """The rows of a table in groups. Every method adds one operator with one store, both called ``name``, and returns its
    table. When a row changes, its old value is taken out of its old group, and its new value is added to its new group.
    ``emission``: ``every_update`` or ``per_commit``; ``None``: the builder's."""

    def __init__(self, flow: Flow, value: Serde[Any], ttl_ms: int | None = None) -> None:
        self._flow = flow
        self._value = value
        self._ttl_ms = ttl_ms

    def with_ttl(self, ttl: int | str) -> KGroupedTable:
        """Groups live for ``ttl`` of stream time after their latest change, then are deleted: a tombstone goes downstream
        and to the changelog."""
        return KGroupedTable(self._flow, self._value, checked_ttl(ttl, f"group of {self._flow.out}"))

    def count(self, *, name: str | None = None, emission: Emission | None = None) -> KTable:
        """The number of rows per group. Values are longs."""
        name = self._flow.wiring.name(self._flow, "count", name)
        return self._add(name, INT, emission, int, _plus_one, _minus_one)

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable:
        """``adder(aggregate, value)`` and ``subtractor(aggregate, value)`` over the values; a group's first value is its
        first aggregate."""
        name = self._flow.wiring.name(self._flow, "reduce", name)
        return self._add(name, self._value, emission, None, _of_values(adder, name), _of_values(subtractor, name))

    def aggregate(
        self,
        init: Callable[[], Any] | Aggregator | Expression,
        adder: Callable[[Any, Any, Any], Any] | None = None,
        subtractor: Callable[[Any, Any, Any], Any] | None = None,
        *,
        value: Any = None,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable:
        """``adder(key, value, aggregate)`` and ``subtractor(key, value, aggregate)``, from ``init()``; ``None`` deletes the
        group. ``value`` is the aggregate's serde, which must be named.

        Or a ready aggregate or an expression over aggregates alone, of those that can take a value out again:
        ``aggregate(mean("price"))``, ``aggregate(col("price").sum())``. The store then holds accumulators."""
        name = self._flow.wiring.name(self._flow, "aggregate", name)
        if isinstance(init, Expression):
            init, tp = aggregator_of_one(init, scope_of_flow(self._rows), operator=name)
            value = serde_of_type(tp) if value is None else value
        if isinstance(init, Aggregator):
            return self._ready(name, init, value, emission)
        if value is None:
            raise TopologyError(
                f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
            )
        serde = as_serde(value, f"the aggregates of operator {name!r}")
        functions = (check_function(fn, name) for fn in (init, adder, subtractor))
        return self._add(name, serde, emission, *functions)

    def agg(
        self,
        *,
        value: Any = None,
        name: str | None = None,
        emission: Emission | None = None,
        **parts: Aggregator | Expression,
    ) -> KTable:
        """Several ready aggregates at once, or expressions over aggregates: ``agg(total=sum_("price"), n=count())``. Values
        are dicts; of expressions alone also instances of the Struct or dataclass that ``value`` names."""
        name = self._flow.wiring.name(self._flow, "agg", name)
        made, shown = aggregate_of(parts, name, self._rows, value)
        return self._ready(name, made, shown, emission)

    @property
    def _rows(self) -> Flow:
        """The flow as if it held the grouped values themselves."""
        return dataclasses.replace(self._flow, value=self._value)

    def _ready(self, name: str, of: Aggregator, value: Any, emission: Emission | None) -> KTable:
        add, inverse = of.add, of.inverse
        if inverse is None or of.ordered:
            raise TopologyError(
                f"operator {name!r}: {of.name} cannot take out a row that has changed; use an aggregate that can (count, "
                "sum, mean, variance…), or aggregate(init, adder, subtractor) over a collection"
            )
        shown = of.result_serde if value is None else as_serde(value, f"the results of operator {name!r}")
        # what does not depend on the order of values does not look at their times either
        return self._add(
            name,
            of.serde,
            emission,
            of.init,
            lambda key, row, acc: add(acc, row, 0),
            lambda key, row, acc: inverse(acc, row, 0),
            result=of.result,
            shown=shown,
        )

    def _add(
        self,
        name: str,
        value: Serde[Any],
        emission: Emission | None,
        init: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        *,
        result: Callable[[Any], Any] | None = None,
        shown: Serde[Any] | None = None,
    ) -> KTable:
        from penstock.topologies.dsl.table import KTable

        wiring = self._flow.wiring
        emission = wiring.emission if emission is None else as_emission(emission, f"operator {name!r}")
        if emission == "on_close":
            raise TopologyError(
                f"operator {name!r}: a table's groups never close; use emission='every_update' or 'per_commit'"
            )
        if emission == "per_commit" and self._ttl_ms is not None:
            raise TopologyError(
                f"operator {name!r}: emission='per_commit' would hide that a group was gone in between; with a ttl use "
                "emission='every_update'"
            )
        store = StoreSpec(name, "key_value", self._flow.key, value)
        spec = TableAggregateSpec(
            stores=(store,) if self._ttl_ms is None else (store, expiry_store(name)),
            emission=emission,
            order_sensitive=self._ttl_ms is not None,
            init=init,
            adder=adder,
            subtractor=subtractor,
            result=result,
            ttl_ms=self._ttl_ms,
        )
        wiring.add(name, spec, self._flow)
        flow = dataclasses.replace(self._flow, operator=name, port=None, value=value if shown is None else shown)
        view = None if result is None else view_of_results(store, value, result)
        return KTable(flow, store, view=None if view is None else lambda: view)


def _plus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def _minus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate - 1


def _of_values(fn: Any, name: str) -> Callable[[Any, Any, Any], Any]:
    """A function of aggregate and value as one of key, value and aggregate."""
    checked = check_function(fn, name)

    def of_key(key: Any, value: Any, aggregate: Any) -> Any:
        return checked(aggregate, value)

    return of_key

"""Aggregate a table's rows by another key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.change_serde import RowChangeSerde
from penstock.state.serdes.serde import INT, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.typed import aggregate_of, result_serde, row_function, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import Flow, as_emission, as_serde, check_function, serde_of_aggregates
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.fold import DistinctCounts
from penstock.topologies.operators.aggregates.folds.changes import ROWS, ChangeParts
from penstock.topologies.operators.base.member_store import members_of
from penstock.topologies.operators.base.row_expiry import checked_ttl, expiry_store
from penstock.topologies.operators.columnar.input_modes import READY
from penstock.topologies.operators.columnar.stateless import PYTHON
from penstock.topologies.operators.tables.regroup import RegroupSpec
from penstock.topologies.operators.tables.table_aggregate import TableAggregateSpec
from penstock.topologies.operators.tables.table_views import view_of_results
from penstock.topologies.windows.durations import Duration


@dataclasses.dataclass(frozen=True)
class RowGroups:
    """The grouped changes of a table's rows. ``value``: the serde of what is aggregated."""

    changes: Flow
    value: Serde[Any]
    ttl_ms: int | None = None

    def with_ttl(self, ttl: Duration) -> RowGroups:
        """Delete groups ``ttl`` after their latest change."""
        return dataclasses.replace(self, ttl_ms=checked_ttl(ttl, f"group of {self.changes.out}"))

    def name(self, kind: str, name: str | None) -> str:
        """The operator's own name, or the next automatic one."""
        return self.changes.wiring.name(self.changes, kind, name)

    @property
    def rows(self) -> Flow:
        """The flow as if it held the grouped values themselves."""
        return dataclasses.replace(self.changes, value=self.value)


def regrouped(
    table: TableFlow, fn: Any, *, key: Any, value: Any, partitions: int | None, name: str | None
) -> RowGroups:
    """Rows by the group that ``fn(key, value)`` gives, or an expression, through a repartition topic."""
    wiring = table.flow.wiring
    name = wiring.name(table.flow, "group-by", name)
    rows = table.readable()
    rows.request_olds()
    whole_rows = isinstance(fn, Expression)
    made = row_function(fn, name, rows.flow) if whole_rows else check_function(fn, name)
    flow = rows.flow.behind(name, key=result_serde(made, name, key), value=value, rekeyed=True)
    wiring.add(name, RegroupSpec(fn=made, key_serde=flow.key, whole_rows=whole_rows), rows.flow)
    changes = dataclasses.replace(flow, value=RowChangeSerde.of(flow.value))
    return RowGroups(wiring.repartition(changes, partitions=partitions), flow.value)


def counted(groups: RowGroups, name: str | None, emission: Emission | None) -> TableFlow:
    """Count the rows per group."""
    rows = ChangeParts((ROWS,), single=True)
    return _folded(groups, groups.name("count", name), INT, emission, int, _plus_one, _minus_one, folds=rows)


def reduced(groups: RowGroups, adder: Any, subtractor: Any, name: str | None, emission: Emission | None) -> TableFlow:
    """Fold the values with ``adder(aggregate, value)`` and ``subtractor(aggregate, value)``."""
    name = groups.name("reduce", name)
    return _folded(groups, name, groups.value, emission, None, _of_values(adder, name), _of_values(subtractor, name))


def aggregated(
    groups: RowGroups,
    init: Any,
    adder: Any,
    subtractor: Any,
    *,
    value: Any,
    name: str | None,
    emission: Emission | None,
) -> TableFlow:
    """Fold with ``adder`` and ``subtractor`` of ``(key, value, aggregate)``, or a subtractable ready aggregate."""
    name = groups.name("aggregate", name)
    if isinstance(init, Expression):
        init, tp = aggregator_of_one(init, scope_of_flow(groups.rows), operator=name)
        value = serde_of_type(tp) if value is None else value
    if isinstance(init, Aggregator):
        return _ready(groups, name, init, value, emission)
    serde = serde_of_aggregates(value, name)
    three = ("key", "value", "aggregate")
    functions = (
        check_function(fn, name, takes=takes) for fn, takes in ((init, ()), (adder, three), (subtractor, three))
    )
    return _folded(groups, name, serde, emission, *functions)


def aggregated_parts(
    groups: RowGroups, value: Any, name: str | None, emission: Emission | None, parts: Mapping[str, Any]
) -> TableFlow:
    """Compute several ready aggregates at once."""
    name = groups.name("agg", name)
    made, shown = aggregate_of(parts, name, groups.rows, value)
    return _ready(groups, name, made, shown, emission)


def _ready(groups: RowGroups, name: str, of: Aggregator, value: Any, emission: Emission | None) -> TableFlow:
    apart, distinct = of.apart, None
    if apart is not None and groups.ttl_ms is None:
        of, distinct = apart.aggregator, DistinctCounts.of(apart)
    add, inverse = of.add, of.inverse
    if inverse is None or of.ordered:
        raise TopologyError(
            f"operator {name!r}: {of.name} cannot subtract the old value of a changed row; use an aggregate that can "
            "(count, sum, mean, variance…), or aggregate(init, adder, subtractor) over a collection"
        )
    shown = of.result_serde if value is None else as_serde(value, f"the results of operator {name!r}")
    # if the order of values does not matter, their times do not either
    return _folded(
        groups,
        name,
        of.serde,
        emission,
        of.init,
        lambda key, row, acc: add(acc, row, 0),
        lambda key, row, acc: inverse(acc, row, 0),
        result=of.result,
        shown=shown,
        folds=ChangeParts(of.parts, of.result_of_parts) if of.parts else READY,
        distinct=distinct,
    )


def _folded(
    groups: RowGroups,
    name: str,
    value: Serde[Any],
    emission: Emission | None,
    init: Callable[[], Any] | None,
    adder: Callable[[Any, Any, Any], Any],
    subtractor: Callable[[Any, Any, Any], Any],
    *,
    result: Callable[[Any], Any] | None = None,
    shown: Serde[Any] | None = None,
    folds: ChangeParts | str = PYTHON,
    distinct: DistinctCounts | None = None,
) -> TableFlow:
    changes, ttl_ms = groups.changes, groups.ttl_ms
    wiring = changes.wiring
    emission = wiring.emission if emission is None else as_emission(emission, f"operator {name!r}")
    if emission == "on_close":
        raise TopologyError(
            f"operator {name!r}: a table's groups never close; use emission='every_update' or 'per_commit'"
        )
    if emission == "per_commit" and ttl_ms is not None:
        raise TopologyError(
            f"operator {name!r}: emission='per_commit' would hide that a group expired in between; with a ttl use "
            "emission='every_update'"
        )
    store = StoreSpec(name, "key_value", changes.key, value)
    stores: tuple[StoreSpec, ...] = (store,) if ttl_ms is None else (store, expiry_store(name))
    if distinct is not None:
        stores = (store, members_of(store, None))
    spec = TableAggregateSpec(
        stores=stores,
        emission=emission,
        order_sensitive=ttl_ms is not None,
        init=init,
        adder=adder,
        subtractor=subtractor,
        result=result,
        folds=folds,
        distinct=distinct,
        ttl_ms=ttl_ms,
    )
    wiring.add(name, spec, changes)
    flow = dataclasses.replace(changes, operator=name, port=None, value=value if shown is None else shown)
    view = None if result is None else view_of_results(store, value, result)
    return TableFlow(flow, store, view=None if view is None else lambda: view)


def _plus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def _minus_one(key: Any, value: Any, aggregate: int) -> int:
    return aggregate - 1


def _of_values(fn: Any, name: str) -> Callable[[Any, Any, Any], Any]:
    """Adapt a function of aggregate and value to key, value and aggregate."""
    checked = check_function(fn, name, takes=("aggregate", "value"))

    def of_key(key: Any, value: Any, aggregate: Any) -> Any:
        return checked(aggregate, value)

    return of_key

"""Tables grouped by another key in the DSL: ``KTable.group_by``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import A, K, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.internals import table_aggregates
from penstock.topologies.dsl.internals.table_aggregates import RowGroups
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows.durations import Duration

if TYPE_CHECKING:
    from penstock.topologies.dsl.ktable import KTable


class KGroupedTable(Generic[K, V]):
    """Grouped rows of a table. Every method adds one operator with one store, both called ``name``, and returns its
    table. If a row changes, its old value is subtracted from its old group, and its new value is added to its new
    group. ``emission``: ``every_update`` or ``per_commit``; ``None``: the builder's."""

    def __init__(self, groups: RowGroups) -> None:
        self._groups = groups

    def with_ttl(self, ttl: Duration) -> KGroupedTable[K, V]:
        """Delete groups ``ttl`` of stream time after their latest change: a tombstone goes downstream and to the
        changelog."""
        return KGroupedTable(self._groups.with_ttl(ttl))

    def count(self, *, name: str | None = None, emission: Emission | None = None) -> KTable[K, int]:
        """Count the rows per group. Values are longs."""
        return self._table(table_aggregates.counted(self._groups, name, emission))

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable[K, V]:
        """Fold the values with ``adder(aggregate, value)`` and ``subtractor(aggregate, value)``; a group's first value
        is its first aggregate."""
        return self._table(table_aggregates.reduced(self._groups, adder, subtractor, name, emission))

    def aggregate(
        self,
        init: Callable[[], A] | Aggregator[A, V] | Expression,
        adder: Callable[[K, V, A], A | None] | None = None,
        subtractor: Callable[[K, V, A], A | None] | None = None,
        *,
        value: SerdeLike[A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable[K, A]:
        """Fold the rows with ``adder(key, value, aggregate)`` and ``subtractor(key, value, aggregate)``, from
        ``init()``; ``None`` deletes the group. ``value`` is the aggregate's serde and is required.

        Or give a ready aggregate, or an expression over aggregates only, if it can subtract values:
        ``aggregate(mean("price"))``, ``aggregate(col("price").sum())``. The store then holds accumulators."""
        made = table_aggregates.aggregated(
            self._groups, init, adder, subtractor, value=value, name=name, emission=emission
        )
        return self._table(made)

    def agg(
        self,
        *,
        value: SerdeLike[A] | None = None,
        name: str | None = None,
        emission: Emission | None = None,
        **parts: Aggregator[Any, V] | Expression,
    ) -> KTable[K, A]:
        """Compute several ready aggregates at once, or expressions over aggregates: ``agg(total=sum_("price"),
        n=count())``. Values are dicts, or, for expressions only, instances of the Struct or dataclass that ``value``
        names."""
        return self._table(table_aggregates.aggregated_parts(self._groups, value, name, emission, parts))

    def _table(self, rows: TableFlow) -> KTable[K, Any]:
        return rows.flow.wiring.handles.table(rows)

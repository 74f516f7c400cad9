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

if TYPE_CHECKING:
    from penstock.topologies.dsl.ktable import KTable


class KGroupedTable(Generic[K, V]):
    """The rows of a table in groups. Every method adds one operator with one store, both called ``name``, and returns its
    table. When a row changes, its old value is taken out of its old group, and its new value is added to its new group.
    ``emission``: ``every_update`` or ``per_commit``; ``None``: the builder's."""

    def __init__(self, groups: RowGroups) -> None:
        self._groups = groups

    def with_ttl(self, ttl: int | str) -> KGroupedTable[K, V]:
        """Groups live for ``ttl`` of stream time after their latest change, then are deleted: a tombstone goes downstream
        and to the changelog."""
        return KGroupedTable(self._groups.with_ttl(ttl))

    def count(self, *, name: str | None = None, emission: Emission | None = None) -> KTable[K, int]:
        """The number of rows per group. Values are longs."""
        return self._table(table_aggregates.counted(self._groups, name, emission))

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        emission: Emission | None = None,
    ) -> KTable[K, V]:
        """``adder(aggregate, value)`` and ``subtractor(aggregate, value)`` over the values; a group's first value is its
        first aggregate."""
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
        """``adder(key, value, aggregate)`` and ``subtractor(key, value, aggregate)``, from ``init()``; ``None`` deletes the
        group. ``value`` is the aggregate's serde, which must be named.

        Or a ready aggregate or an expression over aggregates alone, of those that can take a value out again:
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
        """Several ready aggregates at once, or expressions over aggregates: ``agg(total=sum_("price"), n=count())``. Values
        are dicts; of expressions alone also instances of the Struct or dataclass that ``value`` names."""
        return self._table(table_aggregates.aggregated_parts(self._groups, value, name, emission, parts))

    def _table(self, rows: TableFlow) -> KTable[K, Any]:
        return rows.flow.wiring.handles.table(rows)

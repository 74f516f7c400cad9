"""What a table can do row by row.

``name`` names the operator and gives its result a store of that name, in which the rows can be read. Without it the result
keeps no rows of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.table_handle import TableHandle
from penstock.topologies.dsl.typed import result_serde, row_function, selection
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Expression, StructOf
from penstock.topologies.functions import takes_two
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.operators.tables.table_operators import MaterializeSpec, TableFilterSpec, TableMapValuesSpec
from penstock.topologies.operators.tables.table_views import ComputedView

if TYPE_CHECKING:
    from penstock.topologies.dsl.table import KTable


class TableOpMethods(TableHandle):
    """Methods of ``KTable``."""

    def filter(self, fn: Function | Expression, *, name: str | None = None) -> KTable:
        """The rows for which ``fn(key, value)`` is true. A row that no longer is one is deleted; where it is not known
        whether there was one, a tombstone is sent all the same."""
        return self._filtered("filter", fn, name, negate=False)

    def filter_not(self, fn: Function | Expression, *, name: str | None = None) -> KTable:
        """The rows for which ``fn(key, value)`` is false, as ``filter``."""
        return self._filtered("filter-not", fn, name, negate=True)

    def map_values(
        self, fn: Callable[[Any], Any] | Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KTable:
        """The rows with ``fn(value)`` for value, or ``fn(key, value)`` of a function that must be given two arguments;
        ``None``: no row. Deletions pass without a call."""
        return self._mapped("map-values", fn, value, name, with_key=not isinstance(fn, Expression) and takes_two(fn))

    def map_values_with_key(self, fn: Function | Expression, *, value: Any = None, name: str | None = None) -> KTable:
        """The rows with ``fn(key, value)`` for value; ``None``: no row. Deletions pass without a call."""
        return self._mapped("map-values-with-key", fn, value, name, with_key=True)

    def transform_values(
        self,
        factory: Callable[[], Processor],
        *,
        stores: tuple[StoreSpec, ...] = (),
        value: Any = None,
        name: str | None = None,
    ) -> KTable:
        """The rows that a ``Processor`` forwards, for values that need stores, times or headers. It is given each change,
        deletions too (a null value), and forwards under the key that it was given; null deletes."""
        own = self._operator_name("transform-values", name)
        flow = self._stream(self._flow).process(factory, stores=stores, value=value, keeps_key=True, name=own)._flow
        rows = f"{own}-rows"
        flow.wiring.add(rows, MaterializeSpec(), flow)
        return self._named(self._table(dataclasses.replace(flow, operator=rows, port=None)), name)

    def _filtered(self, kind: str, fn: Any, name: str | None, *, negate: bool) -> KTable:
        own = self._operator_name(kind, name)
        if negate and isinstance(fn, Expression):
            fn, negate = ~fn, False  # of what is null neither a condition nor its opposite is true
        checked = row_function(fn, own, self._flow, condition=True)
        return self._derived(own, TableFilterSpec(fn=checked, negate=negate), None, name)

    def _mapped(self, kind: str, fn: Any, value: Any, name: str | None, *, with_key: bool) -> KTable:
        own = self._operator_name(kind, name)
        if isinstance(fn, StructOf):
            fn = selection(fn.fields, value)
        checked = row_function(fn, own, self._flow)
        spec = TableMapValuesSpec(fn=checked, with_key=with_key or isinstance(checked, ExpressionFunction))
        return self._derived(own, spec, result_serde(checked, own, value), name)

    def _operator_name(self, kind: str, name: str | None) -> str:
        return self._flow.wiring.name(self._flow, kind, None if name is None else f"{name}-{kind}")

    def _derived(self, own: str, spec: TableFilterSpec | TableMapValuesSpec, value: Any, name: str | None) -> KTable:
        self._flow.wiring.add(own, spec, self._flow)
        table = self._table(
            self._behind(own, value=value),
            view=lambda: ComputedView(self.readable().view, spec.value_of),
            inputs=(self._itself(),),
        )
        return self._named(table, name)

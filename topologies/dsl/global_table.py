"""Global tables: every task has all rows, so that a stream may look up any row, whatever its own key.

The topic is copied to every partition of a repartition topic of the join (one per join, so that each joining sub-topology
keeps the rows in its own order of events and every run of it gives the same answer), and read from there as a bootstrap:
the stream begins when all rows that were there at the start have arrived. Updates afterwards are met in the order in which
the task takes them; they emit nothing. The price is a copy of the table per task; for tables too large for that,
co-partition instead, or join by a foreign key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Function, Handle
from penstock.topologies.dsl.typed import join_function, result_serde, row_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operators.joins.stream_table_join import StreamTableJoinSpec
from penstock.topologies.operators.records.source_sink import SinkSpec, TableSourceSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class GlobalKTable(Handle):
    """A handle on a global table; ``KStream.join_global`` takes it."""


class GlobalTableJoinMethods(Handle):
    """Methods of ``KStream``."""

    def join_global(
        self,
        table: GlobalKTable,
        key_fn: Function | Expression,
        joiner: Function | Expression,
        *,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """``joiner(left, row)`` for each record that meets the row whose key is ``key_fn(key, value)``. Records that
        name no key, and null values, are dropped and counted."""
        return self._join_global("join-global", table, key_fn, joiner, value, name, left=False)

    def left_join_global(
        self,
        table: GlobalKTable,
        key_fn: Function | Expression,
        joiner: Function | Expression,
        *,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """As ``join_global``, and ``joiner(left, None)`` for records that name no key or meet no row."""
        return self._join_global("left-join-global", table, key_fn, joiner, value, name, left=True)

    def _join_global(
        self, kind: str, table: GlobalKTable, key_fn: Any, joiner: Any, value: Any, name: str | None, *, left: bool
    ) -> KStream:
        wiring = self._flow.wiring
        name = wiring.name(self._flow, kind, name)
        if not isinstance(table, GlobalKTable):
            raise TopologyError(f"operator {name!r} joins {table!r:.100}; give what global_table(topic) returned")
        wiring.check_own(table._flow, name)
        checked = join_function(joiner, name, (self._flow, table._flow), nulls=(False, left), into=value)
        row_key = row_function(key_fn, name, self._flow)
        value = result_serde(checked, name, value)
        spec = StreamTableJoinSpec(
            stores=(global_rows(table, f"{name}-rows"),), joiner=checked, left=left, key_fn=row_key
        )
        wiring.add(name, spec, self._flow)
        return self._stream(self._behind(name, value=value))


def global_rows(table: GlobalKTable, name: str) -> StoreSpec:
    """Copy a global table to every task of the sub-topology that uses the store that comes back, called ``name``."""
    flow = table._flow
    wiring = flow.wiring
    topic = f"{name}{REPARTITION}"
    wiring.add(
        f"{topic}-sink",
        SinkSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, internal=True, route="broadcast"),
        flow,
    )
    store = StoreSpec(name, "key_value", flow.key, flow.value)
    source = TableSourceSpec(
        topic=topic, key_serde=flow.key, value_serde=flow.value, internal=True, bootstrap=True, stores=(store,)
    )
    wiring.add_source(name, source)
    return store

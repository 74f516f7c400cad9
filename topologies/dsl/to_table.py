"""Streams read as tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.operators.base.row_expiry import checked_ttl, expiry_store
from penstock.topologies.operators.tables.table_operators import MaterializeSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.table import KTable


def keep_rows(store: StoreSpec, ttl: int | str | None) -> MaterializeSpec:
    """The operator that keeps a table's rows in a store. Raises ``TopologyError`` for a ttl that keeps none."""
    if ttl is None:
        return MaterializeSpec(stores=(store,))
    return MaterializeSpec(
        stores=(store, expiry_store(store.name)), ttl_ms=checked_ttl(ttl, store.name), order_sensitive=True
    )


class ToTableMethods(Handle):
    """Methods of ``KStream``."""

    def to_table(
        self, *, key: Any = None, value: Any = None, ttl: int | str | None = None, name: str | None = None
    ) -> KTable:
        """The last value per key as a table, in a store called ``name``: a null value deletes, null keys are dropped and
        counted. Goes through a repartition topic where keys may have changed. ``ttl``: a row that was not updated for so
        long, of stream time, is deleted: a tombstone goes downstream and to the changelog."""
        from penstock.topologies.dsl.table import KTable  # tables make streams

        wiring = self._flow.wiring
        name = wiring.name(self._flow, "to-table", name)
        flow = wiring.by_key(self._behind(self._flow.operator, port=self._flow.port, key=key, value=value))
        store = StoreSpec(name, "key_value", flow.key, flow.value)
        wiring.add(name, keep_rows(store, ttl), flow)
        return KTable(dataclasses.replace(flow, operator=name, port=None), store)

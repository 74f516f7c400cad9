"""A table in the DSL: its changes, a way to read its rows, and old values for the operators that need them.

A table of a topic or of an aggregation has a store. If a filtered, mapped or joined table is not named or materialized,
it keeps no rows: an operator that must look its rows up computes them from upstream stores
(``penstock.topologies.operators.tables.table_views``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operators.base.row_expiry import checked_ttl, expiry_store
from penstock.topologies.operators.columnar.stored_rows import why_no_texts
from penstock.topologies.operators.records.table_source import TableSourceSpec
from penstock.topologies.operators.tables.table_operators import MaterializeSpec, TableFilterSpec
from penstock.topologies.operators.tables.table_views import TableView, view_of_store
from penstock.topologies.windows import Duration, Windows, duration_ms

JOINED_RETENTION_MS = duration_ms("1d")
"""How long joined tables keep closed windows."""


class TableFlow:
    """A table's changes (``flow``) and rows. ``store`` holds the rows. Without a store, ``view`` builds the way to read
    them, and ``inputs`` are the tables that must send old values if this one does. ``windows``: those of the
    aggregation that produced the table. ``retention_named``: the user set how long its rows can be read. ``named``: the
    store is one whose old values Kafka Streams would know too: not that of a topic's table without a name, or of
    versions."""

    def __init__(
        self,
        flow: Flow,
        store: StoreSpec | None = None,
        *,
        view: Callable[[], TableView] | None = None,
        inputs: tuple[TableFlow, ...] = (),
        windows: Windows | None = None,
        retention_named: bool = False,
        named: bool = True,
    ) -> None:
        self.flow = flow
        self._store = store
        self._make_view = view
        self._inputs = inputs
        self._windows = windows
        self._retention_fixed = retention_named
        self._named = named
        self._copy: TableFlow | None = None
        self._copied_from: TableFlow | None = None

    @property
    def name(self) -> str:
        """The name of the operator that emits the changes."""
        return self.flow.operator

    # -- rows ------------------------------------------------------------------------------------------------

    @property
    def store(self) -> StoreSpec:
        """The store of the rows. Raises ``TopologyError`` if the table keeps none."""
        self._fill_place()
        if self._store is None:
            raise TopologyError(
                f"table {self.name!r} keeps no rows of its own; give it a store with materialize(name), or name the "
                "operator, which does the same"
            )
        return self._store

    @property
    def windowed(self) -> bool:
        """Whether its keys are ``Windowed``."""
        return isinstance(self.flow.key, WindowedSerde) or (
            self._store is not None and self._store.kind not in ("key_value", "versioned")
        )

    @property
    def history_ms(self) -> int | None:
        """How long it keeps former rows: see ``KTable.history_ms``."""
        if self._store is not None:
            return self._store.retention_ms if self._store.kind == "versioned" else None
        return self._inputs[0].history_ms if len(self._inputs) == 1 else None

    def materialize(self, name: str | None = None) -> TableFlow:
        """Keep the rows in a store called ``name``."""
        return self.kept(self.flow.wiring.name(self.flow, "materialize", name))

    def named(self, name: str | None) -> TableFlow:
        """Return the table unchanged, or materialized under the user's name."""
        return self if name is None else self.materialize(name)

    def kept(self, name: str, *, quiet: bool = False) -> TableFlow:
        """Keep the rows in a store of that name. ``quiet``: pass on only changes of rows."""
        flow = self.flow
        store = StoreSpec(name, "key_value", flow.key, flow.value)
        spec = MaterializeSpec(stores=(store,), quiet=quiet)
        kept_ms = self._retained_ms() if self.windowed else None
        if kept_ms is not None:
            spec = dataclasses.replace(spec, stores=(store, expiry_store(name)), ttl_ms=kept_ms, silent=True)
        flow.wiring.add(name, spec, flow)
        made = TableFlow(dataclasses.replace(flow, operator=name, port=None), store)
        made._copied_from = self
        return made

    def retain_for_lookups(self) -> None:
        """Keep rows of windows until the other side of a join has looked them up. It may be behind, or close its
        windows later than this table's aggregation, which by default drops them then. A retention that the user set
        stays."""
        for table in self._inputs:
            table.retain_for_lookups()
        graph = self.flow.wiring.graph
        if self._windows is not None:
            before = self._store
            if (
                before is None
                or before.retention_ms is None
                or self._windows.horizon_ms is None
                or self._retention_fixed
            ):
                return
            self._retention_fixed = True
            self._store = dataclasses.replace(before, retention_ms=before.retention_ms + JOINED_RETENTION_MS)
            graph.replace_store(before, self._store)
        if self._copied_from is not None:
            self._copied_from.retain_for_lookups()
            spec = graph.operator(self.name)
            kept_ms = self._copied_from._retained_ms()
            if isinstance(spec, MaterializeSpec) and spec.ttl_ms is not None and kept_ms is not None:
                graph.replace_operator(self.name, dataclasses.replace(spec, ttl_ms=max(spec.ttl_ms, kept_ms)))

    @property
    def holds_texts(self) -> bool:
        """Whether its rows are in a store that can keep them as bytes in memory, and are passed on as texts."""
        spec, store = self.flow.wiring.graph.operator(self.name), self._store
        if store is None or store.kind != "key_value" or why_no_texts(store.value_serde) is not None:
            return False
        return isinstance(spec, TableSourceSpec) or (isinstance(spec, MaterializeSpec) and spec.ttl_ms is None)

    def keep_as_bytes(self) -> None:
        """Have a store of rows that are passed on as texts keep them as bytes in memory, too."""
        before = self._store
        if before is not None and self.holds_texts:
            self._store = dataclasses.replace(before, as_bytes=True)
            self.flow.wiring.graph.replace_store(before, self._store)

    @property
    def versioned(self) -> TableFlow:
        """The upstream table whose stream time bounds this table's history."""
        table = self
        while table._inputs:
            (table,) = table._inputs
        return table

    def _retained_ms(self) -> int | None:
        """How long the windows of the rows are kept."""
        spec = self.flow.wiring.graph.operator(self.name)
        if isinstance(spec, MaterializeSpec):
            return spec.ttl_ms
        if self._store is not None:
            return self._store.retention_ms
        found = [table._retained_ms() for table in self._inputs]
        known = [ms for ms in found if ms is not None]
        return max(known) if known and len(known) == len(found) else None

    def with_store(self) -> TableFlow:
        """Return this table if it has a store, else its one materialized version."""
        self._fill_place()
        return self if self._store is not None else self._copied()

    def readable(self) -> TableFlow:
        """Return this table, or a materialized one if its rows cannot be read otherwise."""
        self._fill_place()
        if self._make_view is not None or view_of_store(self._store, self.flow.value) is not None:
            return self
        return self._copied()

    @property
    def view(self) -> TableView:
        """How to read the rows. Call it on what ``readable`` returned."""
        if self._make_view is not None:
            return self._make_view()
        view = view_of_store(self._store, self.flow.value)
        assert view is not None, self.name
        return view

    def _copied(self) -> TableFlow:
        if self._copy is None:
            self._copy = self.materialize()
        return self._copy

    def _fill_place(self) -> None:
        """Add the deferred store to a table that so far only passes changes on."""
        graph = self.flow.wiring.graph
        spec = graph.operator(self.name)
        if isinstance(spec, MaterializeSpec) and spec.store is None:
            self._store = StoreSpec(self.name, "key_value", self.flow.key, self.flow.value)
            graph.replace_operator(self.name, dataclasses.replace(spec, stores=(self._store,)))

    # -- old values ------------------------------------------------------------------------------------------

    def request_olds(self) -> None:
        """Make the table's changes carry the old value with the new one."""
        self._fill_place()
        graph = self.flow.wiring.graph
        spec = graph.operator(self.name)
        if spec.sends_olds:
            return
        for table in self._inputs:
            table.request_olds()
        # those of the inputs may have changed the stores that it names
        graph.replace_operator(self.name, dataclasses.replace(graph.operator(self.name), sends_olds=True))
        if isinstance(spec, TableSourceSpec):
            self.keep_as_bytes()

    @property
    def keeps_olds(self) -> bool:
        """Whether Kafka Streams would have its old values without another store: its rows are kept, or those that they
        are computed from."""
        if self._store is not None:
            return self._named or self.flow.wiring.graph.operator(self.name).sends_olds
        return bool(self._inputs) and all(table.keeps_olds for table in self._inputs)

    def silence_refused(self) -> None:
        """Make a filtered table drop changes if the filter rejects both the old and the new row, which needs old
        values: for operators that such a change would trigger (Kafka Streams requests old values there too)."""
        if self._filtered_before():
            self.request_olds()

    def _filtered_before(self) -> bool:
        tables = self._inputs if self._copied_from is None else (*self._inputs, self._copied_from)
        spec = self.flow.wiring.graph.operator(self.name)
        return isinstance(spec, TableFilterSpec) or any(table._filtered_before() for table in tables)


def keep_rows(store: StoreSpec, ttl: Duration | None) -> MaterializeSpec:
    """Return the operator that stores a table's rows. Raises ``TopologyError`` if the ttl would keep none."""
    if ttl is None:
        return MaterializeSpec(stores=(store,))
    return MaterializeSpec(
        stores=(store, expiry_store(store.name)), ttl_ms=checked_ttl(ttl, store.name), order_sensitive=True
    )


def table_of_stream(flow: Flow, ttl: Duration | None, name: str | None) -> TableFlow:
    """Turn a stream into a table: the last value per key."""
    wiring, named = flow.wiring, name is not None
    name = wiring.name(flow, "to-table", name)
    flow = wiring.by_key(flow)
    store = StoreSpec(name, "key_value", flow.key, flow.value)
    wiring.add(name, keep_rows(store, ttl), flow)
    return TableFlow(dataclasses.replace(flow, operator=name, port=None), store, named=named)

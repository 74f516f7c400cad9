"""What every table of the DSL has: its changes, a way to read its rows, and old values beside the new for who asks.

A table of a topic or of an aggregation has a store. A filtered, mapped or joined one keeps no rows unless it is named or
materialized: who must look its rows up computes them from the stores behind it
(``penstock.topologies.operators.tables.table_views``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operators.base.row_expiry import expiry_store
from penstock.topologies.operators.tables.table_operators import MaterializeSpec, TableFilterSpec
from penstock.topologies.operators.tables.table_views import TableView, view_of_store

if TYPE_CHECKING:
    from penstock.topologies.dsl.table import KTable


class TableHandle(Handle):
    """See the module. ``store`` holds the rows. Without one, ``view`` makes the way to read them, and ``inputs`` are the
    tables that must send old values if this one is to."""

    def __init__(
        self,
        flow: Flow,
        store: StoreSpec | None = None,
        *,
        view: Callable[[], TableView] | None = None,
        inputs: tuple[KTable, ...] = (),
    ) -> None:
        super().__init__(flow)
        self._store = store
        self._make_view = view
        self._inputs = inputs
        self._copy: KTable | None = None
        self._copied_from: TableHandle | None = None

    # -- rows ------------------------------------------------------------------------------------------------

    @property
    def store(self) -> StoreSpec:
        """Where the rows are kept; give it to ``KStream.process(…, stores=…)`` to read them in a processor. Raises
        ``TopologyError`` for a table that keeps none."""
        self._fill_place()
        if self._store is None:
            raise TopologyError(
                f"table {self.name!r} keeps no rows of its own; give it a store with materialize(name), or name the "
                "operator, which does the same"
            )
        return self._store

    @property
    def store_name(self) -> str:
        """The store's name."""
        return self.store.name

    @property
    def windowed(self) -> bool:
        """Whether its keys are ``Windowed``."""
        return isinstance(self._flow.key, WindowedSerde) or (
            self._store is not None and self._store.kind not in ("key_value", "versioned")
        )

    @property
    def history_ms(self) -> int | None:
        """For how long it knows what its rows were; ``None`` for a table that is not versioned. A filtered or mapped
        versioned table is versioned; one with a store of its own, joined or aggregated is not (Kafka Streams)."""
        if self._store is not None:
            return self._store.retention_ms if self._store.kind == "versioned" else None
        return self._inputs[0].history_ms if len(self._inputs) == 1 else None

    def materialize(self, name: str | None = None) -> KTable:
        """The same table with its rows in a store called ``name``, which can be read by that name. Rows of windowed keys
        stay as long after their timestamp as the windows are retained (for ever where nothing says how long)."""
        return self._kept(self._flow.wiring.name(self._flow, "materialize", name))

    def _kept(self, name: str, *, quiet: bool = False) -> KTable:
        store = StoreSpec(name, "key_value", self._flow.key, self._flow.value)
        spec = MaterializeSpec(stores=(store,), quiet=quiet)
        kept_ms = self._retained_ms() if self.windowed else None
        if kept_ms is not None:
            spec = dataclasses.replace(spec, stores=(store, expiry_store(name)), ttl_ms=kept_ms, silent=True)
        self._flow.wiring.add(name, spec, self._flow)
        made = self._table(dataclasses.replace(self._flow, operator=name, port=None), store)
        made._copied_from = self
        return made

    def retain_for_lookups(self) -> None:
        """Have rows of windows kept until the other side of a join looks them up. It may be behind, or close its windows
        later than this table's aggregation does, which by default forgets them then. A retention that the user named
        stays."""
        for table in self._inputs:
            table.retain_for_lookups()
        if self._copied_from is None:
            return
        self._copied_from.retain_for_lookups()
        graph = self._flow.wiring.graph
        spec = graph.operator(self.name)
        kept_ms = self._copied_from._retained_ms()
        if isinstance(spec, MaterializeSpec) and spec.ttl_ms is not None and kept_ms is not None:
            graph.replace_operator(self.name, dataclasses.replace(spec, ttl_ms=max(spec.ttl_ms, kept_ms)))

    def _retained_ms(self) -> int | None:
        """How long the windows are kept that the rows are of."""
        spec = self._flow.wiring.graph.operator(self.name)
        if isinstance(spec, MaterializeSpec):
            return spec.ttl_ms
        if self._store is not None:
            return self._store.retention_ms
        found = [table._retained_ms() for table in self._inputs]
        known = [ms for ms in found if ms is not None]
        return max(known) if known and len(known) == len(found) else None

    def with_store(self) -> KTable:
        """This table if it has a store, else a materialized one, the same for all who ask."""
        self._fill_place()
        if self._store is not None:
            return self._itself()
        return self._copied()

    def readable(self) -> KTable:
        """This table, or a materialized one where its rows can be read in no other way."""
        self._fill_place()
        if self._make_view is not None or view_of_store(self._store, self._flow.value) is not None:
            return self._itself()
        return self._copied()

    @property
    def view(self) -> TableView:
        """How to read the rows; of a table that ``readable`` gave."""
        if self._make_view is not None:
            return self._make_view()
        view = view_of_store(self._store, self._flow.value)
        assert view is not None, self.name
        return view

    def _copied(self) -> KTable:
        if self._copy is None:
            self._copy = self.materialize()
        return self._copy

    def _fill_place(self) -> None:
        """Give a table that only passes changes on the store for which it has the place."""
        graph = self._flow.wiring.graph
        spec = graph.operator(self.name)
        if isinstance(spec, MaterializeSpec) and spec.store is None:
            self._store = StoreSpec(self.name, "key_value", self._flow.key, self._flow.value)
            graph.replace_operator(self.name, dataclasses.replace(spec, stores=(self._store,)))

    def _itself(self) -> KTable:
        from penstock.topologies.dsl.table import KTable  # the themes' files are its bases

        assert isinstance(self, KTable)
        return self

    def _table(
        self,
        flow: Flow,
        store: StoreSpec | None = None,
        *,
        view: Callable[[], TableView] | None = None,
        inputs: tuple[KTable, ...] = (),
    ) -> KTable:
        """A table handle on a flow."""
        from penstock.topologies.dsl.table import KTable

        return KTable(flow, store, view=view, inputs=inputs)

    # -- old values ------------------------------------------------------------------------------------------

    def request_olds(self) -> None:
        """Have the table's changes carry the old value beside the new one. For operators that need it."""
        self._fill_place()
        graph = self._flow.wiring.graph
        spec = graph.operator(self.name)
        if spec.sends_olds:
            return
        for table in self._inputs:
            table.request_olds()
        graph.replace_operator(self.name, dataclasses.replace(spec, sends_olds=True))

    def silence_refused(self) -> None:
        """Have a filtered table say nothing of rows that the filter refuses and refused, which it knows by old values: for
        operators that such a change would move (Kafka Streams asks for old values there too)."""
        if self._filtered_before():
            self.request_olds()

    def _filtered_before(self) -> bool:
        tables = self._inputs if self._copied_from is None else (*self._inputs, self._copied_from)
        spec = self._flow.wiring.graph.operator(self.name)
        return isinstance(spec, TableFilterSpec) or any(table._filtered_before() for table in tables)

    def _named(self, table: KTable, name: str | None) -> KTable:
        """The table as it is, or materialized under the name that the user gave."""
        return table if name is None else table.materialize(name)

    def _check_same_keys(self, other: Any, name: str, *, what: str = "joins") -> KTable:
        """The other side of an operator on two tables, if it is one whose keys this table's can meet."""
        from penstock.topologies.dsl.table import KTable

        if not isinstance(other, KTable):
            raise TopologyError(f"operator {name!r} {what} {other!r:.100}; the other side must be a KTable")
        self._flow.wiring.check_own(other._flow, name)
        if self.key_serde.name != other.key_serde.name:
            raise TopologyError(
                f"operator {name!r}: keys of {self.out!r} are {self.key_serde.name}, those of {other.out!r} are "
                f"{other.key_serde.name}, and would never meet; give both tables the same key serde, or join by "
                "foreign key (join_foreign)"
            )
        return other

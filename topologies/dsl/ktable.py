"""Tables in the DSL: the last value per key of a topic, the result of an aggregation, or derived from other tables.

``name`` names the operator and gives its result a readable store of that name. Without it the result of ``filter``,
``map_values`` or a join keeps no rows of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.state.errors import TopologyError
from penstock.state.log import Windowed
from penstock.state.serdes.change_serde import Change
from penstock.state.serdes.serde import SerdeLike
from penstock.state.stores.store import StoreSpec
from penstock.state.type_parameters import K2, KR, V2, VR, K, V, VIn
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.internals import table_joins, table_ops
from penstock.topologies.dsl.internals.aggregation import Aggregated
from penstock.topologies.dsl.internals.suppress import suppressed
from penstock.topologies.dsl.internals.table_aggregates import regrouped
from penstock.topologies.dsl.internals.table_flow import TableFlow
from penstock.topologies.dsl.kgrouped_table import KGroupedTable
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.functions import takes_two
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.operators.tables.suppress import SuppressWhenFull, Until
from penstock.topologies.windows import Windows

if TYPE_CHECKING:
    from penstock.topologies.dsl.kstream import KStream


class KTable(Handle[K, V]):
    """A handle on a table with keys of type ``K`` and rows of type ``V``. Its changes are upserts: the new value, or
    null when the key is deleted."""

    def __init__(self, rows: TableFlow) -> None:
        super().__init__(rows.flow)
        self._rows = rows

    # -- rows ------------------------------------------------------------------------------------------------

    @property
    def store(self) -> StoreSpec:
        """The store of the rows. To read it in a processor, pass it to ``KStream.process(…, stores=…)``. Raises
        ``TopologyError`` if the table keeps no rows."""
        return self._rows.store

    @property
    def store_name(self) -> str:
        """The store's name."""
        return self.store.name

    @property
    def windowed(self) -> bool:
        """Whether its keys are ``Windowed``."""
        return self._rows.windowed

    @property
    def history_ms(self) -> int | None:
        """How long it keeps former rows; ``None`` if the table is not versioned. A filtered or mapped versioned table
        is versioned; a table with its own store, a joined or an aggregated one is not (Kafka Streams)."""
        return self._rows.history_ms

    def materialize(self, name: str | None = None) -> KTable[K, V]:
        """Keep the rows in a store called ``name``, which can be read by that name. Rows of windowed keys stay after
        their timestamp for the windows' retention (forever if nothing sets one)."""
        return KTable(self._rows.materialize(name))

    def request_olds(self) -> None:
        """Make the table's changes carry the old value with the new one, for operators that need it."""
        self._rows.request_olds()

    # -- row by row ------------------------------------------------------------------------------------------

    def filter(self, fn: Callable[[K, V], object] | Expression, *, name: str | None = None) -> KTable[K, V]:
        """Keep the rows for which ``fn(key, value)`` is true. If it is no longer true for a row, the row is deleted. If
        it is unknown whether the row existed, a tombstone is sent anyway."""
        return KTable(table_ops.filtered(self._rows, "filter", fn, name, negate=False))

    def filter_not(self, fn: Callable[[K, V], object] | Expression, *, name: str | None = None) -> KTable[K, V]:
        """Keep the rows for which ``fn(key, value)`` is false, as ``filter``."""
        return KTable(table_ops.filtered(self._rows, "filter-not", fn, name, negate=True))

    @overload
    def map_values(
        self,
        fn: Callable[[V], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def map_values(
        self, fn: Callable[[K, V], VR | None], *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KTable[K, VR]: ...

    def map_values(
        self,
        fn: Callable[[V], VR | None] | Callable[[K, V], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Map the value of each row to ``fn(value)``, or to ``fn(key, value)`` if the function requires two arguments.
        ``None``: no row. Deletions pass without a call."""
        with_key = not isinstance(fn, Expression) and takes_two(fn)
        return KTable(table_ops.mapped(self._rows, "map-values", fn, value, name, with_key=with_key))

    def map_values_with_key(
        self,
        fn: Callable[[K, V], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Map the value of each row to ``fn(key, value)``; ``None``: no row. Deletions pass without a call."""
        return KTable(table_ops.mapped(self._rows, "map-values-with-key", fn, value, name, with_key=True))

    def transform_values(
        self,
        factory: Callable[[], Processor[K, V, K, VR]],
        *,
        stores: tuple[StoreSpec, ...] = (),
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Replace rows by what a ``Processor`` forwards, for values that need stores, times or headers. It gets each
        change, deletions too (a null value), and forwards under the same key; null deletes."""
        return KTable(table_ops.transformed(self._rows, factory, stores, value, name))

    # -- joins: ``value`` is the serde of results (default: this table's) ------------------------------------

    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join into a row ``joiner(left, right)`` for each key that has a row in both tables, updated on changes of
        either side. The tables must be co-partitioned; nothing is copied. If no ``retention`` is set, windowed rows are
        kept for a day of stream time after their windows close, so tables match even if one closes its windows
        later."""
        return KTable(table_joins.joined(self._rows, "join", other, joiner, value, name))

    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As ``join``, and ``joiner(left, None)`` if the other table has no row."""
        return KTable(table_joins.joined(self._rows, "left-join", other, joiner, value, name, keeps_left=True))

    def right_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As ``join``, and ``joiner(None, right)`` if only the other table has a row."""
        return KTable(table_joins.joined(self._rows, "right-join", other, joiner, value, name, keeps_right=True))

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As ``left_join``, and ``joiner(None, right)`` if only the other table has a row."""
        made = table_joins.joined(
            self._rows, "outer-join", other, joiner, value, name, keeps_left=True, keeps_right=True
        )
        return KTable(made)

    def join_foreign(
        self,
        other: KTable[K2, V2],
        fn: Callable[[K, V], K2 | None] | Expression,
        joiner: Callable[[V, V2], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Join into a row ``joiner(left, right)`` for each row of this table whose foreign key ``fn(key, value)`` has a
        row in the other table. ``None`` means no foreign key, which is counted. Keys are this table's. The tables need
        not be co-partitioned: their tasks exchange subscriptions and answers through two topics."""
        return KTable(
            table_joins.joined_foreign(self._rows, "join-foreign", other, fn, joiner, value, name, left=False)
        )

    def left_join_foreign(
        self,
        other: KTable[K2, V2],
        fn: Callable[[K, V], K2 | None] | Expression,
        joiner: Callable[[V, V2 | None], VR | None] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """As ``join_foreign``, and ``joiner(left, None)`` for rows without a foreign key or without a row behind it."""
        return KTable(
            table_joins.joined_foreign(self._rows, "left-join-foreign", other, fn, joiner, value, name, left=True)
        )

    # -- groups ----------------------------------------------------------------------------------------------

    def group_by(
        self,
        fn: Callable[[K, V], tuple[KR | None, VR | None] | None] | Expression,
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KGroupedTable[KR, VR]:
        """Group rows by ``fn(key, value)``, which returns the group and the value to aggregate. If it returns ``None``,
        or a null for either, the row is in no group. Of an expression, which gives the group alone, whole rows are
        aggregated. Changes go through a repartition topic. ``key`` and ``value`` are the serdes of what ``fn`` returns
        (default: this table's; an expression's key has that of its type)."""
        return KGroupedTable(regrouped(self._rows, fn, key=key, value=value, partitions=partitions, name=name))

    # -- changes ---------------------------------------------------------------------------------------------

    def suppress(
        self,
        until: Until,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: SuppressWhenFull | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Pass on only the last changes: with ``until_time_limit("10s")``, or for windowed tables with
        ``until_window_closes()``, which emits each window's result once, when it is final. The buffer may be bounded by
        keys and bytes. ``when_full`` is ``emit_early`` (default for a time limit) or ``shut_down`` (the only choice for
        window close, whose results would otherwise not be final). Buffer and operator are called ``name``. See
        ``penstock.topologies.operators.tables.suppress``."""
        made = suppressed(
            self._rows, until, max_records=max_records, max_bytes=max_bytes, when_full=when_full, name=name
        )
        return KTable(made)

    @overload
    def to_stream(self, *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(
        self,
        key_fn: Callable[[K, V], KR] | Expression | None = None,
        *,
        key: SerdeLike[KR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, V]: ...

    def to_stream(
        self,
        key_fn: Callable[[K, V], KR] | Expression | None = None,
        *,
        key: SerdeLike[KR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, V] | KStream[K, V]:
        """Return the table's changes as a stream, keyed by ``key_fn(key, value)`` if given, with the serde ``key``."""
        stream: KStream[KR, V] = self._flow.wiring.handles.stream(table_ops.changes(self._rows, key_fn, key, name))
        return stream

    def to_changes(self, *, name: str | None = None) -> KStream[K, Change[V]]:
        """Return the table's changes as a stream of the new row with the one that it replaces: ``Change(new, old)``, with
        ``None`` where there was none or is none left. With it, a function can write what differs and nothing else."""
        stream: KStream[K, Change[V]] = self._flow.wiring.handles.stream(table_ops.old_and_new(self._rows, name))
        return stream

    def to(
        self,
        topic: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the table's changes to a topic: ``to_stream().to(topic)``."""
        self.to_stream().to(topic, key=key, value=value, name=name)

    if not TYPE_CHECKING:  # type checkers see it on windowed tables only

        @property
        def late(self) -> KStream[Any, Any]:
            """For windowed tables: see ``WindowedTable``. Raises ``TopologyError`` for other tables."""
            raise TopologyError(f"table {self.name!r} has no windows, so nothing of it is late")


class WindowedTable(KTable[Windowed[K], V], Generic[K, V, VIn]):
    """The table of an aggregation over windows, whose keys are ``Windowed``. ``VIn``: the type of the records'
    values."""

    def __init__(self, made: Aggregated, windows: Windows) -> None:
        super().__init__(made.table)
        self._late = made.late
        self.windows = windows

    @property
    def late(self) -> KStream[K, VIn]:
        """The records that arrived after all their windows had closed, unchanged. Request them with ``late=True``.
        Raises ``TopologyError`` if they were not requested."""
        if self._late is None:
            raise TopologyError(f"operator {self.name!r} only counts its late records; request them with late=True")
        return self._late.wiring.handles.stream(self._late)

"""The DSL's entry point: ``StreamsBuilder`` opens streams and tables on topics, and builds the topology from what was
added to them.

    builder = StreamsBuilder("page-views")
    views = builder.stream("views", value=View)
    users = builder.table("users", value=User)
    joined = views.join(users, lambda view, user: {"page": view.page, "city": user.city}, value=dict)
    joined.to("views-by-user")
    topology = builder.build()

Handles are cheap and may be used any number of times. The DSL adds to the graph with ``add_operator`` and
``add_stream`` only. Both are public, so custom operators and the DSL can be mixed in one
graph. Names: see ``penstock.topologies.dsl.wiring``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypedDict, Unpack, overload

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import SerdeLike, optional
from penstock.state.stores.store import StoreSpec
from penstock.state.type_parameters import K, KDefault, V, VDefault
from penstock.topologies.dsl.global_ktable import GlobalKTable
from penstock.topologies.dsl.internals.table_flow import TableFlow, keep_rows
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.panes import TriggeredStream
from penstock.topologies.dsl.wiring import Flow, Handles, Wiring, as_serde
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission, OperatorSpec
from penstock.topologies.operator_api.watermark_strategies import WatermarkStrategy
from penstock.topologies.operators.records.source_sink import SourceSpec
from penstock.topologies.operators.records.table_source import TableSourceSpec
from penstock.topologies.operators.tables.table_operators import MaterializeSpec
from penstock.topologies.operators.tables.versioned_table import VersionedTableSourceSpec
from penstock.topologies.windows import Duration, duration_ms

HANDLES = Handles(stream=KStream, table=KTable, panes=TriggeredStream)


class StreamOptions(TypedDict, total=False):
    """Options of ``StreamsBuilder.stream``."""

    watermark: WatermarkStrategy | None
    bootstrap: bool
    priority: int
    name: str | None


class TableOptions(TypedDict, total=False):
    """Options of ``StreamsBuilder.table``."""

    history: Duration | None
    ttl: Duration | None
    bootstrap: bool
    priority: int
    name: str | None


class StreamsBuilder(Generic[KDefault, VDefault]):
    """Builds a ``Topology``. ``key`` and ``value`` are the default serdes of topics (anything that ``serde_of`` takes).
    ``emission`` is the default of aggregations. ``combine``: whether aggregations that do not emit every update combine
    before their repartition topics (see ``KGroupedStream``). If a topology is wrong, the call that is wrong, or ``build``,
    raises ``TopologyError``.

    Type checkers take the key and value types of a source from its serdes, or else from the builder's."""

    @overload
    def __init__(
        self: StreamsBuilder[str, dict[str, Any]],
        name: str = "topology",
        *,
        emission: Emission = "every_update",
        combine: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self: StreamsBuilder[K, dict[str, Any]],
        name: str = "topology",
        *,
        key: SerdeLike[K],
        emission: Emission = "every_update",
        combine: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self: StreamsBuilder[str, V],
        name: str = "topology",
        *,
        value: SerdeLike[V],
        emission: Emission = "every_update",
        combine: bool = True,
    ) -> None: ...

    @overload
    def __init__(
        self: StreamsBuilder[K, V],
        name: str = "topology",
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        emission: Emission = "every_update",
        combine: bool = True,
    ) -> None: ...

    def __init__(
        self,
        name: str = "topology",
        *,
        key: Any = str,
        value: Any = dict,
        emission: Emission = "every_update",
        combine: bool = True,
    ) -> None:
        self._wiring = Wiring(name, key, value, emission, handles=HANDLES, combines=combine)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self._wiring.graph.name

    @overload
    def stream(
        self,
        topic: str,
        *,
        timestamp: Callable[[Record[KDefault, VDefault]], int] | None = None,
        **how: Unpack[StreamOptions],
    ) -> KStream[KDefault, VDefault]: ...

    @overload
    def stream(
        self,
        topic: str,
        *,
        key: SerdeLike[K],
        timestamp: Callable[[Record[K, VDefault]], int] | None = None,
        **how: Unpack[StreamOptions],
    ) -> KStream[K, VDefault]: ...

    @overload
    def stream(
        self,
        topic: str,
        *,
        value: SerdeLike[V],
        timestamp: Callable[[Record[KDefault, V]], int] | None = None,
        **how: Unpack[StreamOptions],
    ) -> KStream[KDefault, V]: ...

    @overload
    def stream(
        self,
        topic: str,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        timestamp: Callable[[Record[K, V]], int] | None = None,
        **how: Unpack[StreamOptions],
    ) -> KStream[K, V]: ...

    def stream(
        self,
        topic: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        timestamp: Callable[[Record[K, V]], int] | None = None,
        watermark: WatermarkStrategy | None = None,
        bootstrap: bool = False,
        priority: int = 0,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read a topic as a stream. ``timestamp`` computes the event time of a record (milliseconds); ``None``: the
        log's timestamp. ``watermark``: the strategy by which this source tracks event time
        (``bounded_out_of_orderness``, ``punctuated``). ``bootstrap``: each time a task starts, it reads this topic to
        its end before the others. ``priority``: while a topic of a higher priority has records, the others wait.
        ``name`` names the operator (``None``: the topic's name). If a topic is read again with the same options, the
        same operator is used, so it is read and decoded once."""
        flow = self._flow(topic, key, value, name)
        spec = SourceSpec(
            topic=topic,
            key_serde=flow.key,
            value_serde=flow.value,
            timestamp=timestamp,
            watermark=watermark,
            bootstrap=bootstrap,
            priority=priority,
        )
        flow = self._flow(topic, key, value, self._wiring.source(spec, name))
        return KStream(dataclasses.replace(flow, watermarked=watermark is not None))

    @overload
    def table(self, topic: str, **how: Unpack[TableOptions]) -> KTable[KDefault, VDefault]: ...

    @overload
    def table(self, topic: str, *, key: SerdeLike[K], **how: Unpack[TableOptions]) -> KTable[K, VDefault]: ...

    @overload
    def table(self, topic: str, *, value: SerdeLike[V], **how: Unpack[TableOptions]) -> KTable[KDefault, V]: ...

    @overload
    def table(
        self, topic: str, *, key: SerdeLike[K], value: SerdeLike[V], **how: Unpack[TableOptions]
    ) -> KTable[K, V]: ...

    def table(
        self,
        topic: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        history: Duration | None = None,
        ttl: Duration | None = None,
        bootstrap: bool = False,
        priority: int = 0,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: the last value per key. The topic is also the store's changelog. ``history``: the
        table is versioned and keeps its former rows for that time
        (``penstock.topologies.operators.tables.versioned_table``). ``ttl``: a row that was not updated for that much
        stream time is deleted, with a tombstone downstream; the store then has a changelog of its own, because the
        topic does not hold these deletions. ``bootstrap``, ``priority``: as for ``stream``. ``name`` names operator
        and store (``None``: the topic's name)."""
        flow = self._flow(topic, key, value, name)
        first: dict[str, Any] = {"bootstrap": bootstrap, "priority": priority}
        if history is not None:
            if ttl is not None:
                raise TopologyError(f"table {flow.operator!r} has history= and ttl=; a history expires by itself")
            return self._versioned(topic, flow, duration_ms(history), first)
        if ttl is not None:
            return self._for_a_time(topic, flow, ttl, first)
        store = StoreSpec(flow.operator, "key_value", flow.key, flow.value, source_topic=topic)
        spec = TableSourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, stores=(store,), **first)
        self._wiring.add_source(flow.operator, spec)
        return KTable(TableFlow(flow, store, named=name is not None))

    def _for_a_time(self, topic: str, flow: Flow, ttl: Duration, first: dict[str, Any]) -> KTable[Any, Any]:
        source = SourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, emits="upsert", **first)
        self._wiring.add_source(flow.operator, source)
        store = StoreSpec(flow.operator, "key_value", flow.key, flow.value)
        rows = f"{flow.operator}-rows"
        self._wiring.add(rows, keep_rows(store, ttl), flow)
        return KTable(TableFlow(dataclasses.replace(flow, operator=rows), store))

    def _versioned(self, topic: str, flow: Flow, history_ms: int, first: dict[str, Any]) -> KTable[Any, Any]:
        if history_ms < 1:
            raise TopologyError(f"table {flow.operator!r}: history={history_ms} ms keeps nothing; give at least 1 ms")
        store = StoreSpec(
            flow.operator, "versioned", flow.key, optional(flow.value), source_topic=topic, retention_ms=history_ms
        )
        spec = VersionedTableSourceSpec(
            topic=topic, key_serde=flow.key, value_serde=flow.value, stores=(store,), **first
        )
        self._wiring.add_source(flow.operator, spec)
        return KTable(TableFlow(flow, store, named=False))

    @overload
    def global_table(self, topic: str, *, name: str | None = None) -> GlobalKTable[KDefault, VDefault]: ...

    @overload
    def global_table(self, topic: str, *, key: SerdeLike[K], name: str | None = None) -> GlobalKTable[K, VDefault]: ...

    @overload
    def global_table(
        self, topic: str, *, value: SerdeLike[V], name: str | None = None
    ) -> GlobalKTable[KDefault, V]: ...

    @overload
    def global_table(
        self, topic: str, *, key: SerdeLike[K], value: SerdeLike[V], name: str | None = None
    ) -> GlobalKTable[K, V]: ...

    def global_table(
        self, topic: str, *, key: SerdeLike[K] | None = None, value: SerdeLike[V] | None = None, name: str | None = None
    ) -> GlobalKTable[Any, Any]:
        """Read a topic as a table whose rows every task has: see ``penstock.topologies.dsl.global_ktable``."""
        flow = self._flow(topic, key, value, name)
        self._wiring.add_source(flow.operator, SourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value))
        return GlobalKTable(flow)

    @overload
    def changelog_table(self, topic: str, *, name: str | None = None) -> KTable[KDefault, VDefault]: ...

    @overload
    def changelog_table(self, topic: str, *, key: SerdeLike[K], name: str | None = None) -> KTable[K, VDefault]: ...

    @overload
    def changelog_table(self, topic: str, *, value: SerdeLike[V], name: str | None = None) -> KTable[KDefault, V]: ...

    @overload
    def changelog_table(
        self, topic: str, *, key: SerdeLike[K], value: SerdeLike[V], name: str | None = None
    ) -> KTable[K, V]: ...

    def changelog_table(
        self, topic: str, *, key: SerdeLike[K] | None = None, value: SerdeLike[V] | None = None, name: str | None = None
    ) -> KTable[Any, Any]:
        """Read a topic of updates as a table without a store: each record is passed on as a change of its key's row.
        Use it for a topic that another application's table writes. If an operator must look rows up, the table gets a
        store with a changelog of its own. Null keys are dropped and counted."""
        flow = self._flow(topic, key, value, name)
        source = SourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value, emits="upsert")
        self._wiring.add_source(flow.operator, source)
        rows = f"{flow.operator}-rows"
        self._wiring.add(rows, MaterializeSpec(), flow)
        return KTable(TableFlow(dataclasses.replace(flow, operator=rows)))

    def _flow(self, topic: str, key: Any, value: Any, name: str | None) -> Flow:
        if not topic:
            raise TopologyError("a source has no topic; name one")
        operator = topic if name is None else name
        wiring = self._wiring
        return Flow(
            wiring,
            operator,
            operator,
            None,
            wiring.key if key is None else as_serde(key, f"the key of source {operator!r}"),
            wiring.value if value is None else as_serde(value, f"the value of source {operator!r}"),
        )

    def add_operator(self, name: str, op: OperatorSpec) -> str:
        """Add a custom operator, as ``GraphBuilder.add_operator``."""
        return self._wiring.graph.add_operator(name, op)

    def add_stream(self, name: str, out: str, *ins: str) -> str:
        """Connect ports, as ``GraphBuilder.add_stream``. ``KStream.out`` and ``KTable.out`` give these names."""
        return self._wiring.graph.add_stream(name, out, *ins)

    @overload
    def stream_of(self, operator: str, port: str | None = None) -> KStream[KDefault, VDefault]: ...

    @overload
    def stream_of(self, operator: str, port: str | None = None, *, key: SerdeLike[K]) -> KStream[K, VDefault]: ...

    @overload
    def stream_of(self, operator: str, port: str | None = None, *, value: SerdeLike[V]) -> KStream[KDefault, V]: ...

    @overload
    def stream_of(
        self, operator: str, port: str | None = None, *, key: SerdeLike[K], value: SerdeLike[V]
    ) -> KStream[K, V]: ...

    def stream_of(
        self,
        operator: str,
        port: str | None = None,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
    ) -> KStream[Any, Any]:
        """Return a stream on an out port of a custom operator. ``port`` may be ``None`` if there is only one. Its keys
        count as changed: a grouping or join inserts a repartition topic."""
        flow = self._flow(operator, key, value, None)
        return KStream(Flow(flow.wiring, operator, operator, port, flow.key, flow.value, rekeyed=True))

    def sql(
        self,
        text: str,
        *,
        grace: Duration = 0,
        unbounded: bool = False,
        **inputs: KStream | KTable,
    ) -> KStream | KTable:
        """Run a SELECT over the inputs. Returns a stream, or a table for a grouping without a window.
        ``penstock.topologies.sql`` lists what is supported; anything else raises ``TopologyError`` with its line and
        column. ``grace``: how long windows and stream–stream joins wait for late records. ``unbounded``: allow patterns
        that may wait forever."""
        try:
            statement = import_module("penstock.topologies.sql.statement")
        except ModuleNotFoundError as exc:
            if exc.name != "sqlglot":
                raise
            raise TopologyError(
                "SQL needs the package sqlglot, which is not installed: pip install 'penstock[sql]'"
            ) from exc
        found: KStream | KTable = statement.sql(text, inputs, grace=grace, unbounded=unbounded)
        return found

    def build(self) -> Topology:
        """Validate the graph and freeze it."""
        return self._wiring.graph.build()

"""Streams in the DSL.

Functions see ``(key, value)``, those of the ``values`` forms the value alone. ``key=`` and ``value=`` name
the serde of what a function returns (anything that ``serde_of`` takes); without them the serde stays what it
was. ``name=`` names the operator (else see ``penstock.topologies.wiring``).

Operators that may change the key mark their stream. Grouping or joining a marked stream first sends it
through a repartition topic, as Kafka Streams does; ``keeps_key=True`` promises that a processor or batch
function kept the keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from penstock.state.errors import TopologyError
from penstock.state.serde import Serde
from penstock.state.store import StoreSpec
from penstock.state.window_keys import WindowedSerde
from penstock.topologies.batch import Batch
from penstock.topologies.grouped_dsl import KGroupedStream
from penstock.topologies.operator import OperatorSpec
from penstock.topologies.operators import stateless
from penstock.topologies.operators.endpoints import Sink
from penstock.topologies.operators.join import StreamTableJoin
from penstock.topologies.operators.processor import Processor, processor_spec
from penstock.topologies.tables_dsl import KTable
from penstock.topologies.wiring import Flow, as_serde, check_function

Function = Callable[[Any, Any], Any]
"""Of key and value."""


class KStream:
    """A handle on a stream of records. Every method leaves it as it is, and it may be used any number of
    times."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    @property
    def name(self) -> str:
        """The name of the operator that it comes from."""
        return self._flow.operator

    @property
    def out(self) -> str:
        """The out port that it comes from, as ``add_stream`` takes it."""
        return self._flow.out

    @property
    def key_serde(self) -> Serde[Any]:
        """The serde of its keys."""
        return self._flow.key

    @property
    def value_serde(self) -> Serde[Any]:
        """The serde of its values."""
        return self._flow.value

    def _then(
        self,
        kind: str,
        name: str | None,
        make: Callable[[Callable[..., Any]], OperatorSpec],
        fn: Any,
        *,
        key: Any = None,
        value: Any = None,
        rekeyed: bool = False,
    ) -> KStream:
        """The stream behind a new operator, which ``make`` makes of the checked function."""
        name = self._flow.wiring.name(self._flow, kind, name)
        self._flow.wiring.add(name, make(check_function(fn, name)), self._flow)
        return KStream(self._behind(name, key=key, value=value, rekeyed=rekeyed))

    def _behind(
        self, name: str, *, port: str | None = None, key: Any = None, value: Any = None, rekeyed: bool = False
    ) -> Flow:
        flow = self._flow
        return Flow(
            flow.wiring,
            flow.root,
            name,
            port,
            flow.key if key is None else as_serde(key, f"the key of operator {name!r}"),
            flow.value if value is None else as_serde(value, f"the value of operator {name!r}"),
            flow.rekeyed or rekeyed,
        )

    # -- keys stay -------------------------------------------------------------------------------------------

    def filter(self, fn: Function, *, name: str | None = None) -> KStream:
        """The records for which ``fn(key, value)`` is true."""
        return self._then("filter", name, lambda f: stateless.Filter(fn=f), fn)

    def filter_not(self, fn: Function, *, name: str | None = None) -> KStream:
        """The records for which ``fn(key, value)`` is false."""
        return self._then("filter-not", name, lambda f: stateless.Filter(fn=f, negate=True), fn)

    def filter_values(self, fn: Callable[[Any], Any], *, name: str | None = None) -> KStream:
        """The records for which ``fn(value)`` is true."""
        return self._then("filter-values", name, lambda f: stateless.Filter(fn=f, values_only=True), fn)

    def map_values(self, fn: Callable[[Any], Any], *, value: Any = None, name: str | None = None) -> KStream:
        """The values ``fn(value)``."""
        return self._then("map-values", name, lambda f: stateless.MapValues(fn=f), fn, value=value)

    def map_values_with_key(self, fn: Function, *, value: Any = None, name: str | None = None) -> KStream:
        """The values ``fn(key, value)``."""
        return self._then(
            "map-values-with-key", name, lambda f: stateless.MapValues(fn=f, with_key=True), fn, value=value
        )

    def flat_map_values(
        self, fn: Callable[[Any], Iterable[Any]], *, value: Any = None, name: str | None = None
    ) -> KStream:
        """Each value of ``fn(value)``, under the same key."""
        return self._then("flat-map-values", name, lambda f: stateless.FlatMap(fn=f, values_only=True), fn, value=value)

    def peek(self, fn: Function, *, name: str | None = None) -> KStream:
        """The same records; ``fn(key, value)`` is called for its effect, which may repeat after a restart."""
        return self._then("peek", name, lambda f: stateless.Peek(fn=f), fn)

    def foreach(self, fn: Function, *, name: str | None = None) -> None:
        """Call ``fn(key, value)`` for its effect, which may repeat after a restart."""
        self._then("foreach", name, lambda f: stateless.Peek(fn=f), fn)

    # -- keys change -----------------------------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """The records ``fn(key, value)``, pairs of key and value."""
        return self._then("map", name, lambda f: stateless.Map(fn=f), fn, key=key, value=value, rekeyed=True)

    def flat_map(
        self,
        fn: Callable[[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """Each pair of key and value of ``fn(key, value)``."""
        return self._then("flat-map", name, lambda f: stateless.FlatMap(fn=f), fn, key=key, value=value, rekeyed=True)

    def select_key(self, fn: Function, *, key: Any = None, name: str | None = None) -> KStream:
        """The same values under ``fn(key, value)``."""
        return self._then("select-key", name, lambda f: stateless.SelectKey(fn=f), fn, key=key, rekeyed=True)

    def map_batch(
        self,
        fn: Callable[[Batch], Batch | None],
        *,
        key: Any = None,
        value: Any = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> KStream:
        """``fn(batch)`` of whole runs of records: see ``MapBatch`` for what it must keep to."""
        return self._then(
            "map-batch",
            name,
            lambda f: stateless.MapBatch(fn=f),
            fn,
            key=key,
            value=value,
            rekeyed=not keeps_key,
        )

    def process(
        self,
        factory: Callable[[], Processor],
        *,
        stores: tuple[StoreSpec, ...] = (),
        key: Any = None,
        value: Any = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> ProcessedStream:
        """What a ``Processor`` (the class, or a factory of instances) forwards. ``stores``: beside those that
        it declares. The result is its first out port; ``port(name)`` gives the others."""
        name = self._flow.wiring.name(self._flow, "process", name)
        spec = processor_spec(check_function(factory, name), stores=stores)
        self._flow.wiring.add(name, spec, self._flow)
        flow = self._behind(name, key=key, value=value, rekeyed=not keeps_key)
        return ProcessedStream(flow, spec.out_ports)

    # -- several streams -------------------------------------------------------------------------------------

    @overload
    def branch(self, *predicates: Function, default: bool = False, name: str | None = None) -> tuple[KStream, ...]: ...

    @overload
    def branch(
        self, predicates: Mapping[str, Function], /, *, default: bool = False, name: str | None = None
    ) -> dict[str, KStream]: ...

    def branch(
        self, *predicates: Any, default: bool = False, name: str | None = None
    ) -> tuple[KStream, ...] | dict[str, KStream]:
        """One stream per predicate ``fn(key, value)``, each record going to the first that is true; with
        ``default`` one more for the rest, which is dropped otherwise. Given a mapping, its keys name the
        branches (and ``default`` the rest) and a dict comes back."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "branch", name)
        mapped = len(predicates) == 1 and isinstance(predicates[0], Mapping)
        named = dict(predicates[0]) if mapped else {str(i): p for i, p in enumerate(predicates, 1)}
        ports = (*named, "default") if default else tuple(named)
        if not named or len(set(ports)) < len(ports) or any(not p.isidentifier() for p in ports if mapped):
            raise TopologyError(
                f"operator {name!r}: branches {', '.join(ports) or 'none'}; give at least one predicate, and "
                "each branch a name of its own of letters, digits and '_'"
            )
        checked = tuple(check_function(p, name) for p in named.values())
        wiring.add(name, stateless.Branch(predicates=checked, out_ports=ports), self._flow)
        streams = {p: KStream(self._behind(name, port=p)) for p in ports}
        return streams if mapped else tuple(streams.values())

    def merge(self, *others: KStream, name: str | None = None) -> KStream:
        """One stream of several, in the task's order. Serdes must agree."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "merge", name)
        flows = (self._flow, *(o._flow for o in others))
        for i, flow in enumerate(flows[1:], 1):
            wiring.check_own(flow, name)
            for what, mine, theirs in (
                ("key", self.key_serde, flow.key),
                ("value", self.value_serde, flow.value),
            ):
                if mine.name != theirs.name:
                    raise TopologyError(
                        f"operator {name!r} merges streams with different {what} serdes: {self.out!r} has "
                        f"{mine.name}, {flow.out!r} has {theirs.name}; map one to the other's type first"
                    )
            if flow.out in {f.out for f in flows[:i]}:
                raise TopologyError(
                    f"operator {name!r} merges {flow.out!r} with itself, which would double its records; merge it once"
                )
        wiring.add(name, stateless.Merge(), *flows)
        return KStream(self._behind(name, rekeyed=any(f.rekeyed for f in flows)))

    def join(self, table: KTable, joiner: Function, *, value: Any = None, name: str | None = None) -> KStream:
        """``joiner(left, right)`` for each record that meets a row of the table when it is processed. The
        table's own updates emit nothing. Null keys and values are dropped and counted."""
        return self._join("join", table, joiner, value, name, left=False)

    def left_join(self, table: KTable, joiner: Function, *, value: Any = None, name: str | None = None) -> KStream:
        """As ``join``, and ``joiner(left, None)`` for records that meet no row or have no key."""
        return self._join("left-join", table, joiner, value, name, left=True)

    def _join(self, kind: str, table: KTable, joiner: Function, value: Any, name: str | None, *, left: bool) -> KStream:
        wiring = self._flow.wiring
        name = wiring.name(self._flow, kind, name)
        if not isinstance(table, KTable):
            raise TopologyError(f"operator {name!r} joins {table!r:.100}; the right side must be a KTable")
        wiring.check_own(table._flow, name)
        if table.windowed:
            raise TopologyError(
                f"operator {name!r} joins the windowed table {table.name!r}, whose rows no stream key can "
                "name; join a table per key, or read the store in a processor"
            )
        if self.key_serde.name != table.key_serde.name:
            raise TopologyError(
                f"operator {name!r}: keys of {self.out!r} are {self.key_serde.name}, those of table "
                f"{table.name!r} are {table.key_serde.name}, and would never meet; bring the stream to the "
                "table's with select_key(…, key=…)"
            )
        flow = wiring.by_key(self._flow)
        spec = StreamTableJoin(stores=(table.store,), joiner=check_function(joiner, name), left=left)
        wiring.add(name, spec, flow)
        return KStream(KStream(flow)._behind(name, value=value))

    # -- partitions and groups -------------------------------------------------------------------------------

    def repartition(
        self, *, key: Any = None, value: Any = None, partitions: int | None = None, name: str | None = None
    ) -> KStream:
        """The same records through the topic ``<name>-repartition``, partitioned by key. ``partitions``: how
        many it gets (``None``: as many as the inputs it is used with)."""
        flow = self._behind(self._flow.operator, port=self._flow.port, key=key, value=value)
        return KStream(flow.wiring.repartition(flow, partitions=partitions, name=name))

    def group_by(
        self, fn: Function, *, key: Any = None, partitions: int | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Group by ``fn(key, value)``, always through a repartition topic."""
        keyed = self._then("group-by", name, lambda f: stateless.SelectKey(fn=f), fn, key=key, rekeyed=True)
        return KGroupedStream(keyed._flow.wiring.repartition(keyed._flow, partitions=partitions))

    def group_by_key(self) -> KGroupedStream:
        """Group by the key, through a repartition topic only where keys may have changed."""
        return KGroupedStream(self._flow.wiring.by_key(self._flow))

    # -- out -------------------------------------------------------------------------------------------------

    def to(self, topic: str, *, key: Any = None, value: Any = None, name: str | None = None) -> None:
        """Write the records to a topic. Windowed keys are partitioned by their inner key."""
        name = self._flow.wiring.name(self._flow, "to", name)
        flow = self._behind(self._flow.operator, port=self._flow.port, key=key, value=value)
        inner = flow.key.inner if isinstance(flow.key, WindowedSerde) else None
        flow.wiring.add(name, Sink(topic=topic, key_serde=flow.key, value_serde=flow.value, inner_key=inner), flow)


class ProcessedStream(KStream):
    """What a processor forwards: itself the first out port."""

    def __init__(self, flow: Flow, ports: tuple[str, ...]) -> None:
        super().__init__(dataclasses.replace(flow, port=ports[0]) if len(ports) > 1 else flow)
        self._ports = ports

    def port(self, name: str, *, key: Any = None, value: Any = None) -> KStream:
        """What is forwarded to this out port, under its own serdes if given. Raises ``TopologyError`` for a
        port that the processor does not declare."""
        if name not in self._ports:
            raise TopologyError(
                f"operator {self.name!r} has no out port {name!r}; it declares: {', '.join(self._ports) or 'none'}"
            )
        port = name if len(self._ports) > 1 else None
        return KStream(self._behind(self.name, port=port, key=key, value=value))

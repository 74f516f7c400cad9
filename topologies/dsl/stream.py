"""Streams in the DSL: ``KStream`` puts together the methods that the files beside this one hold by theme, and those that
partition, group and write.

Operators that may change the key mark their stream. Grouping or joining a marked stream first sends it through a
repartition topic, as Kafka Streams does; ``keeps_key=True`` promises that a processor or batch function kept the keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.errors import TopologyError
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.combining import Grouping
from penstock.topologies.dsl.expressions import ExpressionMethods
from penstock.topologies.dsl.global_table import GlobalTableJoinMethods
from penstock.topologies.dsl.grouped import KGroupedStream
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.loops import LoopMethods
from penstock.topologies.dsl.micro_batches import MicroBatchMethods
from penstock.topologies.dsl.patterns import PatternMethods
from penstock.topologies.dsl.records import RecordMethods
from penstock.topologies.dsl.sampling import SamplingMethods
from penstock.topologies.dsl.shedding import SheddingMethods
from penstock.topologies.dsl.stateless import StatelessMethods
from penstock.topologies.dsl.stream_joins import StreamJoinMethods
from penstock.topologies.dsl.to_table import ToTableMethods
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind
from penstock.topologies.operators.processors.processor import Processor, ProcessorSpec, processor_spec
from penstock.topologies.operators.records import stateless
from penstock.topologies.operators.records.source_sink import Route, SinkSpec

OF_GROUPED = {
    "windowed_by": "windowed_by(…)",
    "count": "count()",
    "reduce": "reduce(fn)",
    "aggregate": "aggregate(init, adder, value=…)",
    "agg": "agg(total=…)",
}
"""Methods that Kafka Streams' users look for on a stream, and how grouped streams are asked for them."""


class KStream(
    StatelessMethods,
    ExpressionMethods,
    StreamJoinMethods,
    SamplingMethods,
    MicroBatchMethods,
    ToTableMethods,
    PatternMethods,
    GlobalTableJoinMethods,
    RecordMethods,
    LoopMethods,
    SheddingMethods,
):
    """A handle on a stream of records."""

    if not TYPE_CHECKING:  # a checker is to see that there are no such methods

        def __getattr__(self, name: str) -> Any:
            """What is looked for here, as grouped streams have it, is told where it is."""
            if name in OF_GROUPED:
                raise AttributeError(
                    f"a stream has no {name}: what is counted or windowed is of a key. Group it first: "
                    f"stream.group_by_key().{OF_GROUPED[name]}, or stream.group_by(fn)"
                )
            if name == "to_stream":
                raise AttributeError(
                    "this is a stream already; leave to_stream() out (panes of triggered(…) come as a stream, under Windowed "
                    "keys: name others by select_key(fn, key=…))"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

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
        """What a ``Processor`` (the class, or a factory of instances) forwards. ``stores``: beside those that it
        declares, such as a table's, which stay the table's to expire. The result is its first out port; ``port(name)``
        gives the others."""
        name = self._flow.wiring.name(self._flow, "process", name)
        spec = processor_spec(check_function(factory, name), stores=stores, name=name)
        graph = self._flow.wiring.graph
        lent = {
            s.name
            for s in spec.stores
            if any(not isinstance(graph.operator(n), ProcessorSpec) for n in graph.users(s.name))
        }
        self._flow.wiring.add(name, dataclasses.replace(spec, lent=frozenset(lent)), self._flow)
        flow = self._behind(name, key=key, value=value, rekeyed=not keeps_key)
        return ProcessedStream(flow, spec.out_ports)

    # -- partitions and groups -------------------------------------------------------------------------------

    def repartition(
        self,
        *,
        by: Route | Literal["one"] = "key",
        key: Any = None,
        value: Any = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KStream:
        """The same records through the topic ``<name>-repartition``. ``by``: the key (Kafka's murmur2); ``"shuffle"``: a
        partition that follows from the whole record, for even load; ``"broadcast"``: every partition, so that every task
        gets every record at a fixed place of its order; ``"one"``: a single partition; or ``fn(key, value, partitions)``.
        ``partitions``: how many it gets (``None``: as many as the inputs it is used with)."""
        flow = self._behind(self._flow.operator, port=self._flow.port, key=key, value=value)
        if not (by in ("key", "shuffle", "broadcast", "one") or callable(by)):
            raise TopologyError(
                f"repartition of {self.out!r}: by={by!r:.60} is unknown; use key, shuffle, broadcast, one or a function"
            )
        if by == "one":
            by, partitions = "key", 1
        return KStream(flow.wiring.repartition(flow, partitions=partitions, name=name, route=by))

    def group_by(
        self, fn: Function | Expression, *, key: Any = None, partitions: int | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Group by ``fn(key, value)``, always through a repartition topic."""
        keyed = self._then(
            "group-by", name, lambda f: stateless.SelectKeySpec(fn=f), fn, key=key, rekeyed=True, gives="key"
        )
        flow = keyed._flow
        wiring = flow.wiring
        send = partial(wiring.repartition, flow, partitions=partitions)
        return KGroupedStream(Grouping(flow, send, partitions=partitions, sends=True))

    def group_by_key(self) -> KGroupedStream:
        """Group by the key, through a repartition topic only where keys may have changed."""
        flow = self._flow
        return KGroupedStream(Grouping(flow, partial(flow.wiring.by_key, flow), partitions=None, sends=flow.rekeyed))

    # -- out -------------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | Callable[[Any, Any], str],
        *,
        topics: Sequence[str] = (),
        key: Any = None,
        value: Any = None,
        append_only: bool = False,
        retractions: bool = False,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic. Windowed keys are partitioned by their inner key. ``append_only``: the topic's
        readers take every record as a fact, so that a table's changes are refused. ``retractions``: they understand
        records that take back former ones (header ``penstock.retract``), which are refused otherwise.
        ``topic`` may be a function of key and value that chooses among ``topics``; choosing another is the row's
        error."""
        name = self._flow.wiring.name(self._flow, "to", name)
        if callable(topic) != bool(topics):
            raise TopologyError(
                f"operator {name!r}: a function that chooses the topic needs topics=, all that it may choose, and only "
                "such a function does"
            )
        flow = self._behind(self._flow.operator, port=self._flow.port, key=key, value=value)
        inner = flow.key.inner if isinstance(flow.key, WindowedSerde) else None
        accepts: frozenset[EdgeKind] = frozenset({"insert"}) if append_only else NO_RETRACTIONS
        spec = SinkSpec(
            topic=topics[0] if callable(topic) else topic,
            topic_of=topic if callable(topic) else None,
            topics=tuple(topics),
            key_serde=flow.key,
            value_serde=flow.value,
            inner_key=inner,
            accepts=accepts | {"retract"} if retractions else accepts,
        )
        flow.wiring.add(name, spec, flow)


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

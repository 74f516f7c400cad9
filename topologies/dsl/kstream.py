"""Streams in the DSL. ``KStream`` has the methods of Kafka Streams; its base ``KStreamExtras``
(``penstock.topologies.dsl.kstream_extras``) has those that Kafka Streams lacks.

Every method adds operators to the graph and returns a handle on their output; the functions that do it are in
``internals``, one module per theme. Operators that may change the key mark their stream. Grouping or joining a marked
stream first sends it through a repartition topic, as Kafka Streams does; ``keeps_key=True`` promises that a processor
or batch function keeps the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.state.serdes.serde import SerdeLike
from penstock.state.stores.store import StoreSpec
from penstock.state.type_parameters import K2, KR, V2, VR, K, V
from penstock.topologies.dsl.global_ktable import GlobalKTable
from penstock.topologies.dsl.internals import partitions as partitioning
from penstock.topologies.dsl.internals import stateless
from penstock.topologies.dsl.internals.external_sinks import written_outside
from penstock.topologies.dsl.internals.global_tables import joined_with_global
from penstock.topologies.dsl.internals.stream_joins import INNER, LEFT, OUTER, RIGHT, JoinWindow, joined
from penstock.topologies.dsl.internals.table_flow import table_of_stream
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.dsl.kstream_extras import KStreamExtras
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.external_sinks import Sink
from penstock.topologies.operator_api.on_error import OnError
from penstock.topologies.operators.joins.stream_stream_join import ResultTime
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.windows.durations import Duration

OF_GROUPED = {
    "windowed_by": "windowed_by(…)",
    "count": "count()",
    "reduce": "reduce(fn)",
    "aggregate": "aggregate(init, adder, value=…)",
    "agg": "agg(total=…)",
}
"""Methods that Kafka Streams users look for on a stream → how to call them on a grouped stream."""


class KStream(KStreamExtras[K, V]):
    """A handle on a stream of records with keys of type ``K`` and values of type ``V``."""

    if not TYPE_CHECKING:  # type checkers see that these methods do not exist

        def __getattr__(self, name: str) -> Any:
            """For methods of grouped streams, raise an error that says where they are."""
            if name in OF_GROUPED:
                raise AttributeError(
                    f"a stream has no {name}(): it needs a key. Group the stream first: "
                    f"stream.group_by_key().{OF_GROUPED[name]}, or stream.group_by(fn)"
                )
            if name == "to_stream":
                raise AttributeError(
                    "this is a stream already; leave to_stream() out (panes of triggered(…) are a stream with Windowed "
                    "keys: set others with select_key(fn, key=…))"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    # -- record by record, under the same key ----------------------------------------------------------------

    def filter(self, fn: Callable[[K, V], object] | Expression, *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``fn(key, value)`` is true."""
        return KStream(stateless.filtered(self._flow, fn, name))

    def filter_not(self, fn: Callable[[K, V], object] | Expression, *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``fn(key, value)`` is false. If an expression is null, the record is dropped
        too."""
        return KStream(stateless.filtered_not(self._flow, fn, name))

    def filter_values(self, fn: Callable[[V], object] | Expression, *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``fn(value)`` is true."""
        return KStream(stateless.filtered_by_value(self._flow, fn, name))

    @overload
    def map_values(
        self, fn: Callable[[V], VR] | Expression, *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def map_values(
        self, fn: Callable[[K, V], VR], *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]: ...

    def map_values(
        self,
        fn: Callable[[V], VR] | Callable[[K, V], VR] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Map values to ``fn(value)``, or to ``fn(key, value)`` if the function requires two arguments. A ``struct(…)``
        becomes an instance of the Struct or dataclass that ``value`` names, and leaves null values null."""
        return KStream(stateless.mapped_values(self._flow, fn, value, name))

    def map_values_with_key(
        self, fn: Callable[[K, V], VR] | Expression, *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """Map values to ``fn(key, value)``."""
        return KStream(stateless.mapped_values_with_key(self._flow, fn, value, name))

    def flat_map_values(
        self, fn: Callable[[V], Iterable[VR]], *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """Replace each value by the values of ``fn(value)``, under the same key."""
        return KStream(stateless.flat_mapped_values(self._flow, fn, value, name))

    def flat_map_values_with_key(
        self, fn: Callable[[K, V], Iterable[VR]], *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> KStream[K, VR]:
        """Replace each value by the values of ``fn(key, value)``, under the same key."""
        return KStream(stateless.flat_mapped_values_with_key(self._flow, fn, value, name))

    def peek(self, fn: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call ``fn(key, value)`` for its effect, which may repeat after a restart, and pass the records on."""
        return KStream(stateless.peeked(self._flow, "peek", fn, name))

    def foreach(
        self, fn: Callable[[K, V], object], *, on_error: OnError | None = None, name: str | None = None
    ) -> None:
        """Call ``fn(key, value)`` for its effect, which may repeat after a restart. ``on_error``: see
        ``Handle.on_error``."""
        called = KStream[K, V](stateless.peeked(self._flow, "foreach", fn, name))
        if on_error is not None:
            called.on_error(on_error)

    # -- record by record, under a new key -------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[K, V], tuple[KR, VR]],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Map records to ``fn(key, value)``, a pair of key and value."""
        return KStream(stateless.mapped(self._flow, fn, key, value, name))

    def flat_map(
        self,
        fn: Callable[[K, V], Iterable[tuple[KR, VR]]],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by the pairs of key and value in ``fn(key, value)``."""
        return KStream(stateless.flat_mapped(self._flow, fn, key, value, name))

    def select_key(
        self, fn: Callable[[K, V], KR] | Expression, *, key: SerdeLike[KR] | None = None, name: str | None = None
    ) -> KStream[KR, V]:
        """Set the key to ``fn(key, value)``."""
        return KStream(stateless.with_selected_key(self._flow, "select-key", fn, key, name))

    def map_batch(
        self,
        fn: Callable[[Batch], Batch | None],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Apply ``fn(batch)`` to whole batches of records: see ``MapBatch`` for the rules."""
        return KStream(stateless.mapped_batches(self._flow, fn, key, value, name, keeps_key=keeps_key))

    # -- processors ------------------------------------------------------------------------------------------

    def process(
        self,
        factory: Callable[[], Processor[K, V, KR, VR]],
        *,
        stores: tuple[StoreSpec, ...] = (),
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> ProcessedStream[KR, VR]:
        """Run a ``Processor`` (the class, or a factory of instances). ``stores``: stores besides those that it
        declares, such as a table's; a table still expires its own rows. Returns its first out port; ``port(name)``
        gives the others."""
        flow, ports = partitioning.processed(
            self._flow, factory, stores=stores, key=key, value=value, keeps_key=keeps_key, name=name
        )
        return ProcessedStream(flow, ports)

    # -- several streams -------------------------------------------------------------------------------------

    @overload
    def branch(
        self, *predicates: Callable[[K, V], object] | Expression, default: bool = False, name: str | None = None
    ) -> tuple[KStream[K, V], ...]: ...

    @overload
    def branch(
        self,
        predicates: Mapping[str, Callable[[K, V], object] | Expression],
        /,
        *,
        default: bool = False,
        name: str | None = None,
    ) -> dict[str, KStream[K, V]]: ...

    def branch(
        self,
        *predicates: Callable[[K, V], object] | Expression | Mapping[str, Callable[[K, V], object] | Expression],
        default: bool = False,
        name: str | None = None,
    ) -> tuple[KStream[K, V], ...] | dict[str, KStream[K, V]]:
        """Split into one stream per predicate ``fn(key, value)``. Each record goes to the first predicate that is true;
        ``default`` adds a stream for the rest, which is dropped otherwise. Given a mapping, its keys name the branches
        (``default`` names the rest), and the result is a dict."""
        flows = stateless.branched(self._flow, predicates, name, default=default)
        streams: dict[str, KStream[K, V]] = {port: KStream(flow) for port, flow in flows.items()}
        return streams if stateless.are_named(predicates) else tuple(streams.values())

    def merge(self, *others: KStream[K, V], name: str | None = None) -> KStream[K, V]:
        """Merge streams into one, in the task's order. The serdes must be equal."""
        return KStream(stateless.merged((self._flow, *(o._flow for o in others)), name))

    # -- joins: time options are for two streams -------------------------------------------------

    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2],
        joiner: Callable[[V, V2], VR] | Expression,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        within: Duration | None = None,
        grace: Duration | None = None,
        condition: Callable[[V, V2], object] | Expression | None = None,
        result_time: ResultTime = "latest",
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """With a stream: emit ``joiner(left, right)`` for each pair with equal keys whose right timestamp lies between
        the left one's - ``before`` and + ``after``. ``within`` sets both to the same value. Negative bounds are allowed
        if the window is not empty: ``before=-1, after=3`` takes partners that come 1 to 3 ms later. ``grace``: how long
        after its window a record may still come. ``condition(left, right)``: pairs for which it is false do not match.
        ``result_time``: whose timestamp the result has: the later one's (``latest``), or that of ``left`` or ``right``.

        With a table: emit ``joiner(left, row)`` for each record that finds a row when it is processed. If the table has
        a history, the row is that of the record's time, and ``grace`` is how long the stream waits for late updates."""
        bounds = JoinWindow(before, after, within, grace)
        flow = joined(
            self._flow,
            other,
            INNER,
            joiner,
            bounds,
            condition=condition,
            result_time=result_time,
            value=value,
            name=name,
        )
        return KStream(flow)

    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2],
        joiner: Callable[[V, V2 | None], VR] | Expression,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        within: Duration | None = None,
        grace: Duration | None = None,
        condition: Callable[[V, V2], object] | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """As ``join``, and emit ``joiner(left, None)`` for left records without a partner: with a stream, once no
        partner can come any more (``eager``: at once, and again with each partner); with a table, at once."""
        flow = joined(
            self._flow,
            other,
            LEFT,
            joiner,
            JoinWindow(before, after, within, grace),
            condition=condition,
            result_time=result_time,
            value=value,
            name=name,
            eager=eager,
        )
        return KStream(flow)

    def right_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2], VR] | Expression,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        within: Duration | None = None,
        grace: Duration | None = None,
        condition: Callable[[V, V2], object] | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """As ``join``, and emit ``joiner(None, right)`` for right records without a partner, when ``left_join`` would
        emit left ones."""
        flow = joined(
            self._flow,
            other,
            RIGHT,
            joiner,
            JoinWindow(before, after, within, grace),
            condition=condition,
            result_time=result_time,
            value=value,
            name=name,
            eager=eager,
        )
        return KStream(flow)

    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], VR] | Expression,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        within: Duration | None = None,
        grace: Duration | None = None,
        condition: Callable[[V, V2], object] | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """As ``left_join``, and emit ``joiner(None, right)`` for right records without a partner."""
        flow = joined(
            self._flow,
            other,
            OUTER,
            joiner,
            JoinWindow(before, after, within, grace),
            condition=condition,
            result_time=result_time,
            value=value,
            name=name,
            eager=eager,
        )
        return KStream(flow)

    def join_global(
        self,
        table: GlobalKTable[K2, V2],
        key_fn: Callable[[K, V], K2 | None] | Expression,
        joiner: Callable[[V, V2], VR] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Emit ``joiner(left, row)`` for each record that finds the row whose key is ``key_fn(key, value)``. Records
        with a null key there, and null values, are dropped and counted."""
        return KStream(joined_with_global(self._flow, "join-global", table, key_fn, joiner, value, name, left=False))

    def left_join_global(
        self,
        table: GlobalKTable[K2, V2],
        key_fn: Callable[[K, V], K2 | None] | Expression,
        joiner: Callable[[V, V2 | None], VR] | Expression,
        *,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """As ``join_global``, and emit ``joiner(left, None)`` for records that name no key or find no row."""
        return KStream(
            joined_with_global(self._flow, "left-join-global", table, key_fn, joiner, value, name, left=True)
        )

    # -- partitions, groups and tables -----------------------------------------------------------------------

    def repartition(
        self,
        *,
        by: Literal["key", "shuffle", "broadcast", "one"] | Callable[[K, V, int], int] = "key",
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Send the records through the topic ``<name>-repartition``. ``by``: the key (Kafka's murmur2); ``"shuffle"``:
        a partition computed from the whole record, for even load; ``"broadcast"``: every partition, so every task gets
        every record at a fixed place in its order; ``"one"``: a single partition; or ``fn(key, value, partitions)``.
        ``partitions``: the topic's number of partitions (``None``: as many as the inputs that it is used with)."""
        return KStream(
            partitioning.repartitioned(self._flow, by, key=key, value=value, partitions=partitions, name=name)
        )

    def group_by(
        self,
        fn: Callable[[K, V], KR | None] | Expression,
        *,
        key: SerdeLike[KR] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group by ``fn(key, value)``, always through a repartition topic."""
        return KGroupedStream(partitioning.grouped_by(self._flow, fn, key=key, partitions=partitions, name=name))

    def group_by_key(self) -> KGroupedStream[K, V]:
        """Group by the key, through a repartition topic only if keys may have changed."""
        return KGroupedStream(partitioning.grouped_by_key(self._flow))

    def to_table(
        self,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Turn the stream into a table, the last value per key, in a store called ``name``. A null value deletes; null
        keys are dropped and counted. Goes through a repartition topic if keys may have changed. ``ttl``: a row that was
        not updated for that much stream time is deleted: a tombstone goes downstream and to the changelog."""
        return KTable(table_of_stream(self._flow.with_serdes(key, value), ttl, name))

    # -- out -------------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | Callable[[K, V], str],
        *,
        topics: Sequence[str] = (),
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        append_only: bool = False,
        retractions: bool = False,
        on_error: OnError | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic. Windowed keys are partitioned by their inner key. ``append_only``: readers of
        the topic take every record as a fact, so a table's changes are refused. ``retractions``: readers understand
        records that retract earlier ones (header ``penstock.retract``), which are refused otherwise. ``topic`` may be a
        function of key and value that chooses among ``topics``; if it chooses another topic, that is an error of the
        record. ``on_error``: see ``Handle.on_error``."""
        partitioning.written(
            self._flow,
            topic,
            topics,
            key=key,
            value=value,
            append_only=append_only,
            retractions=retractions,
            on_error=on_error,
            name=name,
        )

    def sink(self, sink: Sink, *, on_error: OnError | None = None, name: str | None = None) -> None:
        """Give the records to an external sink, such as those of ``penstock.connectors``: a database, files, a service. Rows
        arrive in the order of their partition, exactly once if the sink keeps positions. The sink keeps them under ``name``,
        so that a renamed sink starts again. ``on_error``: for records that make no row; see ``Handle.on_error``."""
        written_outside(self._flow, sink, on_error, name)


class ProcessedStream(KStream[K, V]):
    """The output of a processor; as a stream it is the first out port."""

    def __init__(self, flow: Flow, ports: tuple[str, ...]) -> None:
        super().__init__(flow)
        self._ports = ports

    def port(
        self, name: str, *, key: SerdeLike[KR] | None = None, value: SerdeLike[VR] | None = None
    ) -> KStream[KR, VR]:
        """Return the stream of this out port, with its own serdes if given. Raises ``TopologyError`` if the processor
        does not declare the port."""
        return KStream(partitioning.port_of(self._flow, self._ports, name, key, value))

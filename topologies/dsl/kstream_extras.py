"""Methods of ``KStream`` beyond Kafka Streams: columns, whole records, external calls, joins of several streams,
patterns, samples, micro-batches and loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, overload

from penstock.state.log import Headers, Record, Windowed
from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import KR, V2, VR, A, K, T, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.global_ktable import GlobalKTable
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.internals import columns as of_columns
from penstock.topologies.dsl.internals import records, sampling, shedding, stream_joins
from penstock.topologies.dsl.internals.aggregate_all import aggregated_all
from penstock.topologies.dsl.internals.loops import looped
from penstock.topologies.dsl.internals.micro_batches import cut_into_batches
from penstock.topologies.dsl.internals.patterns import EventOrder, matched
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.dsl.micro_batches import MicroBatches
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.joins.as_of_join import Direction
from penstock.topologies.operators.patterns.pattern_match import MatchWhenFull
from penstock.topologies.patterns.pattern import Pattern
from penstock.topologies.windows import TumblingWindows, Windows
from penstock.topologies.windows.durations import Duration

if TYPE_CHECKING:
    from penstock.topologies.dsl.kstream import KStream

P = ParamSpec("P")


@dataclasses.dataclass(frozen=True)
class PatternMatches(Generic[K, V, A]):
    """The result of ``match``: streams keyed like the events.

    ``matches``: the matches. ``timeouts``: partial matches that were not completed in time, as events by stage.
    ``late``: records that arrived after the watermark had passed them, unchanged.
    """

    matches: KStream[K, A]
    timeouts: KStream[K, dict[str, list[V]]]
    late: KStream[K, V]


@dataclasses.dataclass(frozen=True)
class Loop(Generic[K, V, KR, VR]):
    """The result of a loop. ``done``: what the body returned as done. ``exhausted``: records that exceeded the bound on
    rounds."""

    done: KStream[KR, VR]
    exhausted: KStream[K, V]


class KStreamExtras(Handle[K, V]):
    """The extra methods of ``KStream``."""

    def _stream(self, flow: Flow) -> KStream[Any, Any]:
        """Wrap a flow in a stream handle."""
        return flow.wiring.handles.stream(flow)

    # -- columns ---------------------------------------------------------------------------------------------

    @overload
    def select(
        self, *positional: Expression, value: None = None, name: str | Expression | None = None, **columns: object
    ) -> KStream[K, dict[str, Any]]: ...

    @overload
    def select(
        self,
        *positional: Expression,
        value: SerdeLike[VR] | Expression,
        name: str | Expression | None = None,
        **columns: object,
    ) -> KStream[K, VR]: ...

    def select(
        self,
        *positional: Expression,
        value: SerdeLike[VR] | Expression | None = None,
        name: str | Expression | None = None,
        **columns: object,
    ) -> KStream[K, VR] | KStream[K, dict[str, Any]]:
        """Keep only these columns: as dicts, or as instances of the Struct or dataclass that ``value`` names. A null
        value stays null. Columns are expressions: positional ones keep their own names, the others take the keywords'::

            bids.select(col("auction"), euros=col("price") * 0.908)

        If an expression is given for ``name`` or ``value``, it is a column of that name."""
        return self._stream(of_columns.selected(self._flow, positional, value, name, columns))

    @overload
    def with_columns(
        self, *positional: Expression, value: None = None, name: str | Expression | None = None, **columns: object
    ) -> KStream[K, dict[str, Any]]: ...

    @overload
    def with_columns(
        self,
        *positional: Expression,
        value: SerdeLike[VR] | Expression,
        name: str | Expression | None = None,
        **columns: object,
    ) -> KStream[K, VR]: ...

    def with_columns(
        self,
        *positional: Expression,
        value: SerdeLike[VR] | Expression | None = None,
        name: str | Expression | None = None,
        **columns: object,
    ) -> KStream[K, VR] | KStream[K, dict[str, Any]]:
        """Add or replace columns, named as in ``select``. Values are dicts, or instances of the Struct or dataclass
        that ``value`` names; then the present columns must be declared. A null value stays null."""
        return self._stream(of_columns.extended(self._flow, positional, value, name, columns))

    # -- whole records ---------------------------------------------------------------------------------------

    def map_records(
        self,
        fn: Callable[[Record[K, V]], Record[KR, VR] | None],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by ``fn(record)``, with timestamp and headers; ``None`` drops it."""
        return self._stream(records.mapped_records(self._flow, fn, key, value, name, keeps_key=keeps_key))

    def with_headers(self, fn: Callable[[Record[K, V]], Headers], *, name: str | None = None) -> KStream[K, V]:
        """Set the headers of each record to ``fn(record)``: pairs of a name and bytes."""
        return self._stream(records.with_headers(self._flow, fn, name))

    def with_timestamp(
        self, fn: Callable[[Record[K, V]], int] | Expression, *, name: str | None = None
    ) -> KStream[K, V]:
        """Set the event time of each record to ``fn(record)``, in milliseconds, or to an expression. Times may go back;
        records may then be late for windows downstream."""
        return self._stream(records.with_timestamp(self._flow, fn, name))

    def map_with_side(
        self,
        fn: Callable[..., VR],
        *sides: GlobalKTable,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Map to ``fn(key, value, side, …)``, where each side is a view of a whole table: see ``SideView``. The stream
        begins when the tables are loaded."""
        return self._stream(records.mapped_with_side(self._flow, fn, sides, value, name))

    @overload
    def lookup(
        self,
        fn: Callable[[K, V], Awaitable[A]] | Callable[[K, V], A],
        *,
        answer: SerdeLike[A],
        concurrency: int = 16,
        timeout: Duration = "10s",
        name: str | None = None,
    ) -> KStream[K, A]: ...

    @overload
    def lookup(
        self,
        fn: Callable[[K, V], Awaitable[A]] | Callable[[K, V], A],
        joiner: Callable[[V, A], VR] | None = None,
        *,
        answer: SerdeLike[A],
        value: SerdeLike[VR] | None = None,
        concurrency: int = 16,
        timeout: Duration = "10s",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def lookup(
        self,
        fn: Callable[[K, V], Awaitable[A]] | Callable[[K, V], A],
        joiner: Callable[[V, A], VR] | None = None,
        *,
        answer: SerdeLike[A],
        value: SerdeLike[VR] | None = None,
        concurrency: int = 16,
        timeout: Duration = "10s",
        name: str | None = None,
    ) -> KStream[K, VR] | KStream[K, A]:
        """Call an external service for each record: ``fn(key, value)``, a plain function or ``async def``, at most
        ``concurrency`` at a time, each for at most ``timeout``. The value becomes the answer, or ``joiner(value, answer)``.
        ``answer`` is the serde for journaling answers, so a replay makes no calls. See
        ``penstock.topologies.operators.records.external_lookup``."""
        flow = records.looked_up(
            self._flow,
            fn,
            joiner,
            answer=answer,
            value=value,
            concurrency=concurrency,
            timeout=timeout,
            name=name,
        )
        return self._stream(flow)

    def as_global(self) -> GlobalKTable[K, V]:
        """Turn the stream into a table whose rows every task has: the last value per key; null deletes."""
        return GlobalKTable(self._flow)

    def through(self, topic: str, *, name: str | None = None) -> KStream[K, V]:
        """Send the records through an existing topic: ``to(topic)`` and ``stream(topic)`` in one. They
        are partitioned by key."""
        self._stream(self._flow).to(topic, name=None if name is None else f"{name}-sink")
        return self._stream(records.read_back(self._flow, topic, name))

    def apply(
        self, name: str, transform: Callable[Concatenate[KStream[K, V], P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Apply ``transform(stream, …)`` as a named part of the graph. Operators that it adds without a name, and their
        stores and topics, are called ``<name>-<kind>``, so the part can be used many times."""
        check_function(transform, name)
        with self._flow.wiring.part(name):
            return transform(self._stream(self._flow), *args, **kwargs)

    # -- joins of several streams ----------------------------------------------------------------------------

    def join_as_of(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        tolerance: Duration,
        grace: Duration,
        direction: Direction = "backward",
        left: bool = False,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Join each record with the record of ``other`` that is nearest in time, at most ``tolerance`` away
        (``penstock.topologies.operators.joins.as_of_join``). ``left``: emit ``joiner(left, None)`` if there is none."""
        flow = stream_joins.joined_as_of(
            self._flow,
            other,
            joiner,
            tolerance=tolerance,
            grace=grace,
            direction=direction,
            left=left,
            value=value,
            name=name,
        )
        return self._stream(flow)

    def join_all(
        self,
        *others: KStream[K, Any],
        joiner: Callable[..., VR],
        within: Duration,
        grace: Duration,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Emit ``joiner(value, value, …)`` for every combination of one record of this stream and of each other, with
        equal keys and all within ``within`` of each other."""
        flow = stream_joins.joined_all(self._flow, others, joiner, within=within, grace=grace, value=value, name=name)
        return self._stream(flow)

    def late_of(self, joined: KStream[K, Any], *, name: str | None = None) -> KStream[K, V]:
        """Return the records of either side that the stream–stream join of ``joined`` dropped as late (under
        watermarks), with their input values."""
        return self._stream(dataclasses.replace(joined._flow, port="late", value=self._flow.value))

    # -- patterns --------------------------------------------------------------------------------------------

    @overload
    def match(
        self,
        pattern: Pattern,
        *,
        order_by: Callable[[V], object] | Expression | None = None,
        event_order: EventOrder = "time",
        unbounded: bool = False,
        max_partial_matches: int | None = None,
        when_full: MatchWhenFull = "shut_down",
        name: str | None = None,
    ) -> PatternMatches[K, V, dict[str, list[V]]]: ...

    @overload
    def match(
        self,
        pattern: Pattern,
        *,
        select: Callable[[dict[str, list[V]]], A] | None = None,
        value: SerdeLike[A] | None = None,
        order_by: Callable[[V], object] | Expression | None = None,
        event_order: EventOrder = "time",
        unbounded: bool = False,
        max_partial_matches: int | None = None,
        when_full: MatchWhenFull = "shut_down",
        name: str | None = None,
    ) -> PatternMatches[K, V, A]: ...

    def match(
        self,
        pattern: Pattern,
        *,
        select: Callable[[dict[str, list[V]]], A] | None = None,
        value: SerdeLike[A] | None = None,
        order_by: Callable[[V], object] | Expression | None = None,
        event_order: EventOrder = "time",
        unbounded: bool = False,
        max_partial_matches: int | None = None,
        when_full: MatchWhenFull = "shut_down",
        name: str | None = None,
    ) -> PatternMatches[K, V, A] | PatternMatches[K, V, dict[str, list[V]]]:
        """Look for a pattern among the records of each key, as FlinkCEP does.

        The value of a match is ``select(events)``, where events is a dict from stage to events; without ``select`` it
        is the dict. ``value`` is its serde (default: JSON with ``select``, events by stage without).

        ``event_order``: ``"time"`` takes the records of a key by timestamp (equal ones by ``order_by(value)``, then
        arrival), each when the watermark has reached it; ``"arrival"`` takes them as they arrive. If the source has no
        watermark strategy, the watermark is the task's stream time - 1.

        If partial matches may wait forever, the pattern is refused unless ``unbounded=True`` accepts that its state
        grows; ``within`` bounds it.

        ``max_partial_matches``: how many partial matches a key may have, so that one busy key cannot block a task. One
        more stops the application (``when_full="shut_down"``), or drops and counts the oldest ones
        (``"drop_oldest"``)."""
        found = matched(
            self._flow,
            pattern,
            select=select,
            value=value,
            order_by=order_by,
            event_order=event_order,
            unbounded=unbounded,
            max_partial_matches=max_partial_matches,
            when_full=when_full,
            name=name,
        )
        return PatternMatches(
            matches=self._stream(found.matches),
            timeouts=self._stream(found.timeouts),
            late=self._stream(found.late),
        )

    # -- fewer records ---------------------------------------------------------------------------------------

    def deduplicate(
        self,
        within: Duration,
        key: Callable[[K, V], A] | Expression | None = None,
        *,
        grace: Duration | None = None,
        id_serde: SerdeLike[A] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Drop a record if one with the same key, processed before, is less than ``within`` away in event time, to
        either side. With ``key``, a function of key and value or an expression, its result replaces the key for this:
        records are repartitioned by it (``id_serde`` is its serde; ``None``: strings) and keep their own key. Records
        with a null key, or a null result, pass.

        A record is remembered until stream time has advanced by ``within + grace`` (``grace``: by default ``within``).
        A duplicate later than that passes."""
        ids = str if id_serde is None else id_serde
        return self._stream(sampling.deduplicated(self._flow, within, key, grace=grace, id_serde=ids, name=name))

    def throttle(
        self, n: int, per: Duration, *, grace: Duration | None = None, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the first ``n`` records of each key in each interval of event time of length ``per``, aligned to 0; drop
        and count the others (``throttled``). Records with a null key pass.

        An interval is open until stream time is more than ``grace`` (by default ``per``) past its end. Records that come
        later are dropped and counted as ``late``, so that no interval ever has more than ``n`` records of a key."""
        return self._stream(sampling.throttled(self._flow, n, per, grace=grace, name=name))

    def sample(self, fraction: float, *, seed: int = 0, name: str | None = None) -> KStream[K, V]:
        """Keep all records of the share ``fraction`` of the keys, chosen by a stable hash: a larger fraction keeps the
        same keys and more. Another ``seed`` chooses others. Records without a key are dropped and counted."""
        return self._stream(sampling.sampled(self._flow, fraction, seed=seed, name=name))

    def sample_reservoir(
        self, n: int, window: TumblingWindows | Duration, *, name: str | None = None
    ) -> KStream[Windowed[K], list[V]]:
        """Emit per key and tumbling window a list of ``n`` random values (all, if there are fewer), in order of
        arrival, under a ``Windowed`` key when the watermark passes the window's end and grace. The choice depends only
        on key, window and the order of its records. ``window``: ``tumbling(…)``, or a size without grace."""
        return self._stream(sampling.sampled_by_reservoir(self._flow, n, window, name=name))

    def shed(self, max_latency: Duration, *, settle: Duration = "1s", name: str | None = None) -> KStream[K, V]:
        """Keep all records while event time is at most ``max_latency`` behind the clock. Beyond that, keep a sample, at
        a rate that is halved while the lag lasts and doubled when it is over, at most once per ``settle``. Each record
        carries its rate (``rate_of(headers)``) and stands for 1 / rate records. See
        ``penstock.topologies.operators.records.load_shedding``."""
        return self._stream(shedding.shed(self._flow, max_latency, settle, name))

    # -- the whole stream ------------------------------------------------------------------------------------

    @overload
    def aggregate_all(
        self,
        aggregator: Aggregator[A, V],
        *,
        approximate: bool = False,
        emission: Emission | None = None,
        name: str | None = None,
    ) -> KTable[str, A]: ...

    @overload
    def aggregate_all(
        self,
        aggregator: Aggregator[A, V],
        windows: Windows,
        *,
        approximate: bool = False,
        emission: Emission | None = None,
        retention: Duration | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[str], A]: ...

    def aggregate_all(
        self,
        aggregator: Aggregator[A, V],
        windows: Windows | None = None,
        *,
        approximate: bool = False,
        emission: Emission | None = None,
        retention: Duration | None = None,
        name: str | None = None,
    ) -> KTable[str, A] | KTable[Windowed[str], A]:
        """Aggregate the whole stream, or each window of it, whatever the keys, into a table with the key ``"all"``
        (``Windowed`` with windows). Every task sends its partial through a repartition topic to one task, at every
        record, or at commits with ``emission="per_commit"``. That task merges the last partial of each.

        The aggregate must merge exactly (declare ``number=int`` or ``Decimal``), unless ``approximate``: the last
        digits of floats then depend on which partition a record is in. ``retention``: how long after its start a window
        accepts partials (default: one day longer than it takes records)."""
        made = aggregated_all(
            self._flow,
            aggregator,
            windows,
            approximate=approximate,
            emission=emission,
            retention=retention,
            name=name,
        )
        table: KTable[Any, A] = KTable(made)
        return table

    def micro_batches(
        self, interval: Duration, *, time: Literal["event", "processing"] = "event", grace: Duration = 0
    ) -> MicroBatches[K, V]:
        """Cut the stream into batches of an interval, as Spark's DStreams do. A batch runs when the watermark (of event
        time; without a strategy, stream time) or the clock has passed its end by ``grace``; records later than that in
        event time are dropped and counted. If the source has several partitions, give it a watermark strategy: then no
        task runs a batch while another still has records of it."""
        return MicroBatches(self._stream(self._flow), cut_into_batches(self._flow, interval, time, grace))

    # -- feedback --------------------------------------------------------------------------------------------

    def loop(
        self,
        body: Callable[[KStream[K, V]], tuple[KStream[K, V], KStream[KR, VR]]],
        *,
        max_iterations: int,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Loop[K, V, KR, VR]:
        """Run a loop. ``body(records)`` returns ``(again, done)``: ``again`` comes back among ``records``, by its key,
        at most ``max_iterations`` times per record; its serdes must be the stream's. ``iteration_of(headers)`` gives
        the round of a record. If operators in the body hold records back until the watermark, they delay the loop
        further: records should keep their timestamps and go around at once."""
        done, exhausted = looped(self._flow, body, max_iterations=max_iterations, partitions=partitions, name=name)
        return Loop(done, self._stream(exhausted))

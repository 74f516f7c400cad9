"""Micro-batches in the DSL: ``KStream.micro_batches``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, INT, JSON, STRING, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.keeping import reduce_
from penstock.topologies.aggregators.numeric import count as counting
from penstock.topologies.dsl.aggregate_all import DAY_MS, AggregateAllMethods
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function
from penstock.topologies.operators.base.record_pairs import either_serde, pair_serde
from penstock.topologies.operators.micro_batches.batch_aggregates import (
    PARTIAL,
    BatchAggregateSpec,
    BatchPartialSpec,
    BatchTotalSpec,
    aggregate_stores,
    total_stores,
)
from penstock.topologies.operators.micro_batches.micro_batches import (
    BatchJoinSpec,
    BatchSeedsSpec,
    BatchSpec,
    BatchStateSpec,
    BatchTransformSpec,
    Intervals,
    KeyValuePair,
    buffer_store,
)
from penstock.topologies.operators.records.stateless import MapSpec, SelectKeySpec
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream

Sides = Literal["inner", "left", "right", "outer"]
_OUTER: Mapping[str, frozenset[str]] = {
    "inner": frozenset(),
    "left": frozenset({"left"}),
    "right": frozenset({"right"}),
    "outer": frozenset({"left", "right"}),
}


class MicroBatchMethods(AggregateAllMethods):
    """Methods of ``KStream``."""

    def micro_batches(
        self, interval: int | str, *, time: Literal["event", "processing"] = "event", grace: int | str = 0
    ) -> MicroBatches:
        """The stream cut into batches of an interval, with what Spark's DStreams do with them. A batch is run when the
        watermark (of event time; for a source without a strategy, stream time) or the clock has passed its end by
        ``grace``; what comes later in event time is dropped and counted. With several partitions give the source a
        watermark strategy: then no task runs a batch that another one still has records of."""
        what = f"micro_batches on {self._flow.out!r}"
        pane_ms = duration_ms(interval)
        if pane_ms < 1:
            raise TopologyError(f"{what}: the interval is {interval!r}; give at least 1 ms")
        if time not in ("event", "processing"):
            raise TopologyError(f"{what}: time={time!r} is unknown; use 'event' or 'processing'")
        cut = Intervals(pane_ms, pane_ms, pane_ms, duration_ms(grace), time == "processing")
        return MicroBatches(self._stream(self._flow), cut)


class MicroBatches:
    """A stream in batches: see ``KStream.micro_batches`` and
    ``penstock.topologies.operators.micro_batches.micro_batches``. Methods that work on batches return batches of their
    results, at the interval's pace; those that work record by record (``map``…) keep the batches as they are.
    ``stream`` is the stream behind it."""

    def __init__(self, stream: KStream, intervals: Intervals) -> None:
        self.stream = stream
        self.intervals = intervals

    # -- record by record ------------------------------------------------------------------------------------------

    def map(
        self, fn: Callable[[Any, Any], KeyValuePair], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> MicroBatches:
        """As ``KStream.map``."""
        return MicroBatches(self.stream.map(fn, key=key, value=value, name=name), self.intervals)

    def flat_map(
        self,
        fn: Callable[[Any, Any], Iterable[KeyValuePair]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> MicroBatches:
        """As ``KStream.flat_map``."""
        return MicroBatches(self.stream.flat_map(fn, key=key, value=value, name=name), self.intervals)

    def map_values(self, fn: Callable[[Any], Any], *, value: Any = None, name: str | None = None) -> MicroBatches:
        """As ``KStream.map_values``."""
        return MicroBatches(self.stream.map_values(fn, value=value, name=name), self.intervals)

    def filter(self, fn: Function, *, name: str | None = None) -> MicroBatches:
        """As ``KStream.filter``."""
        return MicroBatches(self.stream.filter(fn, name=name), self.intervals)

    def to_stream(self) -> KStream:
        """The records as a stream."""
        return self.stream

    def to(self, topic: str, **how: Any) -> None:
        """As ``KStream.to``."""
        self.stream.to(topic, **how)

    # -- windows ---------------------------------------------------------------------------------------------------

    def window(self, length: int | str, slide: int | str | None = None) -> MicroBatches:
        """Batches of the last ``length``, every ``slide`` (``None``: every interval); both multiples of the interval."""
        cut = self.intervals
        size_ms, slide_ms = duration_ms(length), cut.slide_ms if slide is None else duration_ms(slide)
        what = f"window({length!r}, {slide!r}) on {self.stream.out!r}"
        if cut.size_ms != cut.pane_ms or cut.slide_ms != cut.pane_ms:
            raise TopologyError(f"{what}: the batches are windows already; window the result of an operation instead")
        if size_ms < 1 or slide_ms < 1 or size_ms % cut.pane_ms or slide_ms % cut.pane_ms:
            raise TopologyError(f"{what}: length and slide must be multiples of the interval of {cut.pane_ms} ms")
        return MicroBatches(self.stream, dataclasses.replace(cut, size_ms=size_ms, slide_ms=slide_ms))

    # -- whole batches ---------------------------------------------------------------------------------------------

    def transform(
        self,
        fn: Callable[[list[KeyValuePair]], Iterable[KeyValuePair]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> MicroBatches:
        """The pairs ``fn(pairs)`` of all pairs of key and value of a batch, in order of arrival in one task, to which
        they go through a repartition topic."""
        flow, name = self._gathered("transform", name)
        check_function(fn, name)
        return self._batches(name, self._transforming(flow, name, lambda end, pairs: fn(pairs)), flow, key, value)

    def foreach(self, fn: Callable[[list[KeyValuePair]], Any], *, name: str | None = None) -> None:
        """Call ``fn(pairs)`` with every batch for its effect, which may repeat after a restart."""
        flow, name = self._gathered("foreach", name)
        check_function(fn, name)

        def call(end_ms: int, pairs: list[KeyValuePair]) -> None:
            fn(pairs)

        flow.wiring.add(name, self._transforming(flow, name, call), flow)

    def print(self, n: int = 10, *, write: Callable[[str], Any] | None = None, name: str | None = None) -> None:
        """Print the time of every batch and its first ``n`` pairs (``write``: instead of to the standard output)."""
        flow, name = self._gathered("print", name)
        flow.wiring.add(name, self._transforming(flow, name, functools.partial(_show, write or print, n)), flow)

    def join(
        self,
        other: MicroBatches,
        joiner: Callable[[Any, Any], Any] | None = None,
        *,
        how: Sides = "inner",
        value: Any = None,
        name: str | None = None,
    ) -> MicroBatches:
        """``joiner(left, right)`` (by default both in a list) of all pairs with equal keys in batches of the same time.
        With ``how`` left, right or outer, what has no partner is joined with ``None``."""
        wiring = self.stream._flow.wiring
        name = wiring.name(self.stream._flow, "batch-join", name)
        if not isinstance(other, MicroBatches):
            raise TopologyError(
                f"operator {name!r} joins {other!r:.60}; cut it into micro_batches of the same interval"
            )
        mine, theirs = self.intervals, other.intervals
        if dataclasses.replace(mine, by_timestamp=False) != dataclasses.replace(theirs, by_timestamp=False):
            raise TopologyError(
                f"operator {name!r} joins batches {mine.shown} with batches {theirs.shown}; give both the same interval, "
                "window and grace"
            )
        if how not in _OUTER:
            raise TopologyError(f"operator {name!r}: how={how!r} is unknown; use {', '.join(_OUTER)}")
        if self.stream.key_serde.name != other.stream.key_serde.name:
            raise TopologyError(
                f"operator {name!r}: keys are {self.stream.key_serde.name} and {other.stream.key_serde.name}, and would "
                "never meet; map one to the other's type"
            )
        wiring.check_own(other.stream._flow, name)
        left, right = wiring.by_key(self.stream._flow), wiring.by_key(other.stream._flow)
        spec = BatchJoinSpec(
            stores=(buffer_store(name, left.key),),
            intervals=self._cut(left),
            joiner=_both if joiner is None else check_function(joiner, name),
            outer=_OUTER[how],
            key_serde=left.key,
            value_serdes=(left.value, right.value),
        )
        wiring.add_ports(name, spec, {"left": left, "right": right})
        return self._after(name, left, None, JSON if value is None else value)

    # -- aggregates ------------------------------------------------------------------------------------------------

    def count(self, *, name: str | None = None) -> MicroBatches:
        """The number of records of each batch that has any, under the batch's start in milliseconds."""
        return self.aggregate(counting(), name=name, kind="batch-count")

    def reduce(self, fn: Callable[[Any, Any], Any], *, name: str | None = None) -> MicroBatches:
        """``fn(a, b)`` over the values of each batch, under its start; ``fn`` must be associative and commutative."""
        return self.aggregate(self._reducing(fn, None, name), name=name, kind="batch-reduce")

    def reduce_by_window(
        self,
        fn: Callable[[Any, Any], Any],
        inv: Callable[[Any, Any], Any] | None,
        window: int | str,
        slide: int | str | None = None,
        *,
        name: str | None = None,
    ) -> MicroBatches:
        """``window(window, slide).reduce(fn)``. With ``inv(total, x)``, which takes out what ``fn`` put in, each window is
        made of the one before."""
        return self.window(window, slide).aggregate(self._reducing(fn, inv, name), name=name, kind="batch-reduce")

    def aggregate(
        self, aggregator: Aggregator, *, name: str | None = None, kind: str = "batch-aggregate"
    ) -> MicroBatches:
        """A ready aggregate of each batch, whatever the keys, under the batch's start: partials of every task, merged by
        one. Without a watermark strategy a task that is behind the others makes a result come again, more complete."""
        flow = self.stream._flow
        wiring, cut = flow.wiring, self._cut(flow)
        name = wiring.name(flow, kind, name)
        if not isinstance(aggregator, Aggregator) or aggregator.merge is None:
            raise TopologyError(f"operator {name!r} needs a ready aggregate that can be merged, not {aggregator!r:.60}")
        panes = dataclasses.replace(cut, size_ms=cut.pane_ms, slide_ms=cut.pane_ms)
        stores = aggregate_stores(f"{name}-partial", STRING, aggregator, totals=False)
        wiring.add(f"{name}-partial", BatchPartialSpec(stores=stores, intervals=panes, aggregator=aggregator), flow)
        sent = self.stream._behind(f"{name}-partial", key=STRING, value=PARTIAL)
        sent = wiring.repartition(sent, partitions=1, name=f"{name}-partial")
        subtracts = cut.size_ms > cut.slide_ms and _subtracts(aggregator)
        spec = BatchTotalSpec(
            stores=total_stores(name, aggregator, totals=subtracts),
            intervals=cut,
            aggregator=aggregator,
            retain_ms=max(DAY_MS, cut.size_ms),
        )
        wiring.add(name, spec, sent)
        return self._after(name, sent, INT, aggregator.result_serde, rekeyed=True)

    def reduce_by_key(self, fn: Callable[[Any, Any], Any], *, name: str | None = None) -> MicroBatches:
        """``fn(a, b)`` over the values of each key of a batch; ``fn`` must be associative."""
        return self.aggregate_by_key(self._reducing(fn, None, name), name=name, kind="batch-reduce-by-key")

    def reduce_by_key_and_window(
        self,
        fn: Callable[[Any, Any], Any],
        inv: Callable[[Any, Any], Any] | None,
        window: int | str,
        slide: int | str | None = None,
        *,
        name: str | None = None,
    ) -> MicroBatches:
        """``window(window, slide).reduce_by_key(fn)``. With ``inv(total, x)``, which takes out what ``fn`` put in, each
        window is made of the one before by what came and what left."""
        reducing = self._reducing(fn, inv, name)
        return self.window(window, slide).aggregate_by_key(reducing, name=name, kind="batch-reduce-by-key")

    def count_by_key(self, *, name: str | None = None) -> MicroBatches:
        """The number of records of each key of a batch."""
        return self.aggregate_by_key(counting(), name=name, kind="batch-count-by-key")

    def count_by_value(self, *, name: str | None = None) -> MicroBatches:
        """How often each value is in a batch, under the value."""
        flow = self.stream._flow
        name = flow.wiring.name(flow, "batch-count-by-value", name)
        flow.wiring.add(f"{name}-value", SelectKeySpec(fn=lambda _, v: v), flow)
        keyed = self.stream._stream(self.stream._behind(f"{name}-value", key=flow.value, rekeyed=True))
        return MicroBatches(keyed, self.intervals).count_by_key(name=name)

    def aggregate_by_key(
        self, aggregator: Aggregator, *, name: str | None = None, kind: str = "batch-aggregate-by-key"
    ) -> MicroBatches:
        """A ready aggregate of each key of a batch. One that can be subtracted exactly, or a reduce with an inverse, goes
        from window to window by what came and what left."""
        wiring = self.stream._flow.wiring
        name = wiring.name(self.stream._flow, kind, name)
        if not isinstance(aggregator, Aggregator):
            raise TopologyError(f"operator {name!r} needs a ready aggregate, such as count(), not {aggregator!r:.60}")
        flow = wiring.by_key(self.stream._flow)
        cut = self._cut(flow)
        if cut.size_ms > cut.pane_ms and aggregator.merge is None:
            raise TopologyError(
                f"operator {name!r}: {aggregator.name} cannot be merged, as windows of several intervals need"
            )
        subtracts = cut.size_ms > cut.slide_ms and _subtracts(aggregator)
        stores = aggregate_stores(name, flow.key, aggregator, totals=subtracts)
        spec = BatchAggregateSpec(stores=stores, intervals=cut, aggregator=aggregator, key_serde=flow.key)
        wiring.add(name, spec, flow)
        return self._after(name, flow, None, aggregator.result_serde)

    def update_state_by_key(
        self,
        fn: Callable[[list[Any], Any], Any],
        initial_state: Mapping[Any, Any] | None = None,
        timeout: int | str | None = None,
        *,
        state: Any = None,
        name: str | None = None,
    ) -> MicroBatches:
        """Per batch and key that has a state or new values: the state ``fn(values, state)``, ``None`` standing for no
        state, before as after. It is called also for keys without new values. ``initial_state``: states of keys before
        the first batch; the stream then goes through a repartition topic. ``timeout``: keys without values for so long
        are dropped. ``state``: the serde of states (``None``: the stream's of values)."""
        wiring = self.stream._flow.wiring
        name = wiring.name(self.stream._flow, "batch-state", name)
        check_function(fn, name)
        mine = self.stream._flow
        serde = mine.value if state is None else as_serde(state, f"the states of operator {name!r}")
        stores = [buffer_store(f"{name}-values", mine.key), StoreSpec(name, "key_value", mine.key, serde)]
        if initial_state is None:
            flow = wiring.by_key(mine)
        else:
            stores.append(StoreSpec(f"{name}-begun", "key_value", mine.key, BYTES))
            flow = self._seeded(name, initial_state, serde)
        spec = BatchStateSpec(
            stores=tuple(stores),
            intervals=self._cut(flow),
            fn=fn,
            key_serde=mine.key,
            value_serde=mine.value,
            seeded=initial_state is not None,
            timeout_ms=None if timeout is None else duration_ms(timeout),
        )
        wiring.add(name, spec, flow)
        return self._after(name, flow, None, serde)

    def _seeded(self, name: str, states: Mapping[Any, Any], serde: Serde[Any]) -> Flow:
        """The stream behind first states, through a repartition topic that takes each to its key's task."""
        flow = self.stream._flow
        # as bytes, so that what one task changes in place no other one sees
        given = {flow.key.serialize(k): serde.serialize(v) for k, v in states.items()}

        def seeds() -> Iterable[KeyValuePair]:
            return [(flow.key.deserialize(k), serde.deserialize(v)) for k, v in given.items()]

        sent = StoreSpec(f"{name}-seeded", "key_value", BYTES, BYTES)
        flow.wiring.add(f"{name}-seeds", BatchSeedsSpec(stores=(sent,), seeds=seeds), flow)
        made = self.stream._behind(f"{name}-seeds", value=either_serde(flow.value, serde))
        return flow.wiring.repartition(made, name=f"{name}-seeds")

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _reducing(self, fn: Any, inv: Any, name: str | None) -> Aggregator:
        what = name or f"reduce on {self.stream.out}"
        check_function(fn, what)
        return reduce_(fn, inverse=None if inv is None else check_function(inv, what), value=self.stream.value_serde)

    def _cut(self, flow: Flow) -> Intervals:
        """The intervals of an operator that is fed by ``flow``. Results of batches that travel through a topic arrive, by
        the clock, after the end of their batch: they are waited for."""
        cut = self.intervals
        travelled = flow.operator != self.stream._flow.operator
        return dataclasses.replace(cut, grace_ms=cut.pane_ms) if cut.wall and cut.by_timestamp and travelled else cut

    def _gathered(self, kind: str, name: str | None) -> tuple[Flow, str]:
        """All records in one task, as pairs under one key."""
        flow = self.stream._flow
        name = flow.wiring.name(flow, f"batch-{kind}", name)
        flow.wiring.add(f"{name}-gather", MapSpec(fn=_as_pair), flow)
        pairs = self.stream._behind(f"{name}-gather", key=STRING, value=pair_serde(flow.key, flow.value))
        return flow.wiring.repartition(pairs, partitions=1, name=f"{name}-gather"), name

    def _transforming(
        self, flow: Flow, name: str, fn: Callable[[int, list[KeyValuePair]], Iterable[KeyValuePair] | None]
    ) -> BatchTransformSpec:
        def of_pairs(end_ms: int, gathered: list[KeyValuePair]) -> Iterable[KeyValuePair] | None:
            return fn(end_ms, [pair for _, pair in gathered])

        return BatchTransformSpec(
            stores=(buffer_store(name, flow.key),),
            intervals=self._cut(flow),
            fn=of_pairs,
            key_serde=flow.key,
            value_serde=flow.value,
        )

    def _batches(self, name: str, spec: BatchSpec, flow: Flow, key: Any, value: Any) -> MicroBatches:
        flow.wiring.add(name, spec, flow)
        mine = self.stream._flow
        key, value = mine.key if key is None else key, mine.value if value is None else value
        return self._after(name, flow, key, value, rekeyed=True)

    def _after(self, name: str, flow: Flow, key: Any, value: Any, *, rekeyed: bool = False) -> MicroBatches:
        """Batches of the results of operator ``name``, which is fed by ``flow``."""
        cut = self.intervals
        made = self.stream._stream(self.stream._stream(flow)._behind(name, key=key, value=value, rekeyed=rekeyed))
        slide = cut.slide_ms
        return MicroBatches(made, Intervals(slide, slide, slide, cut.grace_ms, cut.wall, by_timestamp=True))


def _subtracts(aggregator: Aggregator) -> bool:
    """Whether windows are made of the ones before: exactly, or because the user gave an inverse."""
    return aggregator.subtract is not None and (aggregator.exact_merge or aggregator.name == "reduce")


def _both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _as_pair(key: Any, value: Any) -> KeyValuePair:
    return "", (key, value)


def _show(write: Callable[[str], Any], n: int, end_ms: int, pairs: list[KeyValuePair]) -> None:
    more = ["..."] if len(pairs) > n else []
    write("\n".join([f"--- {end_ms} ms ---", *(str(p) for p in pairs[:n]), *more]))

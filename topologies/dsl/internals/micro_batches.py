"""Micro-batches: the operators that work on whole batches. See
``penstock.topologies.operators.micro_batches.micro_batches``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, INT, JSON, STRING, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.keeping import reduce_
from penstock.topologies.aggregators.numeric import count as counting
from penstock.topologies.dsl.internals.aggregate_all import DAY_MS
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
from penstock.topologies.windows import Duration, duration_ms

KeptSides = Literal["inner", "left", "right", "outer"]
_OUTER: Mapping[str, frozenset[str]] = {
    "inner": frozenset(),
    "left": frozenset({"left"}),
    "right": frozenset({"right"}),
    "outer": frozenset({"left", "right"}),
}


class Batches(NamedTuple):
    """A flow cut into batches."""

    flow: Flow
    intervals: Intervals


def cut_into_batches(flow: Flow, interval: Duration, time: str, grace: Duration) -> Intervals:
    """Return the intervals for ``KStream.micro_batches``. Raises ``TopologyError``."""
    what = f"micro_batches on {flow.out!r}"
    pane_ms = duration_ms(interval)
    if pane_ms < 1:
        raise TopologyError(f"{what}: the interval is {interval!r}; give at least 1 ms")
    if time not in ("event", "processing"):
        raise TopologyError(f"{what}: time={time!r} is unknown; use 'event' or 'processing'")
    return Intervals(pane_ms, pane_ms, pane_ms, duration_ms(grace), time == "processing")


def windowed(batches: Batches, length: Duration, slide: Duration | None) -> Intervals:
    """Return intervals of the last ``length``, every ``slide``."""
    cut = batches.intervals
    size_ms, slide_ms = duration_ms(length), cut.slide_ms if slide is None else duration_ms(slide)
    what = f"window({length!r}, {slide!r}) on {batches.flow.out!r}"
    if cut.size_ms != cut.pane_ms or cut.slide_ms != cut.pane_ms:
        raise TopologyError(f"{what}: the batches are windows already; window the result of an operation instead")
    if size_ms < 1 or slide_ms < 1 or size_ms % cut.pane_ms or slide_ms % cut.pane_ms:
        raise TopologyError(f"{what}: length and slide must be multiples of the interval of {cut.pane_ms} ms")
    return dataclasses.replace(cut, size_ms=size_ms, slide_ms=slide_ms)


# -- whole batches -------------------------------------------------------------------------------------------


def transformed(batches: Batches, fn: Any, key: Any, value: Any, name: str | None) -> Batches:
    """Replace all pairs of a batch by ``fn(pairs)``."""
    flow, name = _gathered(batches, "transform", name)
    check_function(fn, name)
    flow.wiring.add(name, _transforming(batches, flow, name, lambda end, pairs: fn(pairs)), flow)
    mine = batches.flow
    key, value = mine.key if key is None else key, mine.value if value is None else value
    return _after(batches, name, flow, key, value, rekeyed=True)


def called(batches: Batches, fn: Any, name: str | None) -> None:
    """Call ``fn(pairs)`` with every batch."""
    flow, name = _gathered(batches, "foreach", name)
    check_function(fn, name)

    def call(end_ms: int, pairs: list[KeyValuePair]) -> None:
        fn(pairs)

    flow.wiring.add(name, _transforming(batches, flow, name, call), flow)


def printed(batches: Batches, n: int, write: Callable[[str], object], name: str | None) -> None:
    """Write the time of every batch and its first ``n`` pairs."""
    flow, name = _gathered(batches, "print", name)
    flow.wiring.add(name, _transforming(batches, flow, name, functools.partial(_show, write, n)), flow)


def joined(batches: Batches, other: object, joiner: Any, *, how: str, value: Any, name: str | None) -> Batches:
    """Join all pairs with equal keys in batches of the same time. ``other``: a ``MicroBatches``."""
    mine, wiring = batches.flow, batches.flow.wiring
    name = wiring.name(mine, "batch-join", name)
    found = getattr(other, "_batches", None)
    if not isinstance(found, Batches):
        raise TopologyError(f"operator {name!r} joins {other!r:.60}; cut it into micro_batches of the same interval")
    theirs = found.flow
    one, two = batches.intervals, found.intervals
    if dataclasses.replace(one, by_timestamp=False) != dataclasses.replace(two, by_timestamp=False):
        raise TopologyError(
            f"operator {name!r} joins batches {one.shown} with batches {two.shown}; give both the same interval, "
            "window and grace"
        )
    if how not in _OUTER:
        raise TopologyError(f"operator {name!r}: how={how!r} is unknown; use {', '.join(_OUTER)}")
    if mine.key.name != theirs.key.name:
        raise TopologyError(
            f"operator {name!r}: keys are {mine.key.name} and {theirs.key.name}, so they would "
            "never match; map one to the type of the other"
        )
    wiring.check_own(theirs, name)
    left, right = wiring.by_key(mine), wiring.by_key(theirs)
    spec = BatchJoinSpec(
        stores=(buffer_store(name, left.key),),
        intervals=_cut(batches, left),
        joiner=_both if joiner is None else check_function(joiner, name),
        outer=_OUTER[how],
        key_serde=left.key,
        value_serdes=(left.value, right.value),
    )
    wiring.add_ports(name, spec, {"left": left, "right": right})
    return _after(batches, name, left, None, JSON if value is None else value)


# -- aggregates ----------------------------------------------------------------------------------------------


def aggregated(batches: Batches, aggregator: Aggregator, name: str | None, kind: str) -> Batches:
    """Aggregate each batch as a whole."""
    flow = batches.flow
    wiring, cut = flow.wiring, _cut(batches, flow)
    name = wiring.name(flow, kind, name)
    if not isinstance(aggregator, Aggregator) or aggregator.merge is None:
        raise TopologyError(f"operator {name!r} needs a ready aggregate that can be merged, not {aggregator!r:.60}")
    panes = dataclasses.replace(cut, size_ms=cut.pane_ms, slide_ms=cut.pane_ms)
    stores = aggregate_stores(f"{name}-partial", STRING, aggregator, totals=False)
    wiring.add(f"{name}-partial", BatchPartialSpec(stores=stores, intervals=panes, aggregator=aggregator), flow)
    sent = flow.behind(f"{name}-partial", key=STRING, value=PARTIAL)
    sent = wiring.repartition(sent, partitions=1, name=f"{name}-partial")
    subtracts = cut.size_ms > cut.slide_ms and _subtracts(aggregator)
    spec = BatchTotalSpec(
        stores=total_stores(name, aggregator, totals=subtracts),
        intervals=cut,
        aggregator=aggregator,
        retain_ms=max(DAY_MS, cut.size_ms),
    )
    wiring.add(name, spec, sent)
    return _after(batches, name, sent, INT, aggregator.result_serde, rekeyed=True)


def aggregated_by_key(batches: Batches, aggregator: Aggregator, name: str | None, kind: str) -> Batches:
    """Aggregate each key of a batch."""
    wiring = batches.flow.wiring
    name = wiring.name(batches.flow, kind, name)
    if not isinstance(aggregator, Aggregator):
        raise TopologyError(f"operator {name!r} needs a ready aggregate, such as count(), not {aggregator!r:.60}")
    flow = wiring.by_key(batches.flow)
    cut = _cut(batches, flow)
    if cut.size_ms > cut.pane_ms and aggregator.merge is None:
        raise TopologyError(
            f"operator {name!r}: {aggregator.name} cannot be merged, as windows of several intervals need"
        )
    subtracts = cut.size_ms > cut.slide_ms and _subtracts(aggregator)
    stores = aggregate_stores(name, flow.key, aggregator, totals=subtracts)
    spec = BatchAggregateSpec(stores=stores, intervals=cut, aggregator=aggregator, key_serde=flow.key)
    wiring.add(name, spec, flow)
    return _after(batches, name, flow, None, aggregator.result_serde)


def counted_by_value(batches: Batches, name: str | None) -> Batches:
    """Count how often each value occurs in a batch, keyed by the value."""
    flow = batches.flow
    name = flow.wiring.name(flow, "batch-count-by-value", name)
    flow.wiring.add(f"{name}-value", SelectKeySpec(fn=lambda _, v: v), flow)
    keyed = batches._replace(flow=flow.behind(f"{name}-value", key=flow.value, rekeyed=True))
    return aggregated_by_key(keyed, counting(), name, "batch-count-by-key")


def reducing(batches: Batches, fn: Any, inverse: Any, name: str | None) -> Aggregator:
    """Return ``fn(a, b)`` over the values as a ready aggregate."""
    what = name or f"reduce on {batches.flow.out}"
    check_function(fn, what)
    undo = None if inverse is None else check_function(inverse, what)
    return reduce_(fn, inverse=undo, value=batches.flow.value)


# -- states --------------------------------------------------------------------------------------------------


def with_states(
    batches: Batches,
    fn: Any,
    initial_state: Mapping[Any, Any] | None,
    timeout: Duration | None,
    *,
    state: Any,
    name: str | None,
) -> Batches:
    """Update the state of each key per batch with ``fn(values, state)``."""
    mine, wiring = batches.flow, batches.flow.wiring
    name = wiring.name(mine, "batch-state", name)
    check_function(fn, name)
    serde = mine.value if state is None else as_serde(state, f"the states of operator {name!r}")
    stores = [buffer_store(f"{name}-values", mine.key), StoreSpec(name, "key_value", mine.key, serde)]
    if initial_state is None:
        flow = wiring.by_key(mine)
    else:
        stores.append(StoreSpec(f"{name}-begun", "key_value", mine.key, BYTES))
        flow = _seeded(mine, name, initial_state, serde)
    spec = BatchStateSpec(
        stores=tuple(stores),
        intervals=_cut(batches, flow),
        fn=fn,
        key_serde=mine.key,
        value_serde=mine.value,
        seeded=initial_state is not None,
        timeout_ms=None if timeout is None else duration_ms(timeout),
    )
    wiring.add(name, spec, flow)
    return _after(batches, name, flow, None, serde)


def _seeded(flow: Flow, name: str, states: Mapping[Any, Any], serde: Serde[Any]) -> Flow:
    """Send initial states ahead of the stream, through a repartition topic that takes each to its key's task."""
    # as bytes, so a task that changes one in place changes nothing for the others
    given = {flow.key.serialize(k): serde.serialize(v) for k, v in states.items()}

    def seeds() -> Iterable[KeyValuePair]:
        return [(flow.key.deserialize(k), serde.deserialize(v)) for k, v in given.items()]

    sent = StoreSpec(f"{name}-seeded", "key_value", BYTES, BYTES)
    flow.wiring.add(f"{name}-seeds", BatchSeedsSpec(stores=(sent,), seeds=seeds), flow)
    made = flow.behind(f"{name}-seeds", value=either_serde(flow.value, serde))
    return flow.wiring.repartition(made, name=f"{name}-seeds")


# -- wiring --------------------------------------------------------------------------------------------------


def _cut(batches: Batches, flow: Flow) -> Intervals:
    """Return the intervals of an operator that reads ``flow``. If results of batches in processing time travel through
    a topic, they arrive after their batch's end, so the operator waits for them."""
    cut = batches.intervals
    travelled = flow.operator != batches.flow.operator
    return dataclasses.replace(cut, grace_ms=cut.pane_ms) if cut.wall and cut.by_timestamp and travelled else cut


def _gathered(batches: Batches, kind: str, name: str | None) -> tuple[Flow, str]:
    """Collect all records in one task, as pairs under one key."""
    flow = batches.flow
    name = flow.wiring.name(flow, f"batch-{kind}", name)
    flow.wiring.add(f"{name}-gather", MapSpec(fn=_as_pair), flow)
    pairs = flow.behind(f"{name}-gather", key=STRING, value=pair_serde(flow.key, flow.value))
    return flow.wiring.repartition(pairs, partitions=1, name=f"{name}-gather"), name


def _transforming(
    batches: Batches, flow: Flow, name: str, fn: Callable[[int, list[KeyValuePair]], Iterable[KeyValuePair] | None]
) -> BatchSpec:
    def of_pairs(end_ms: int, gathered: list[KeyValuePair]) -> Iterable[KeyValuePair] | None:
        return fn(end_ms, [pair for _, pair in gathered])

    return BatchTransformSpec(
        stores=(buffer_store(name, flow.key),),
        intervals=_cut(batches, flow),
        fn=of_pairs,
        key_serde=flow.key,
        value_serde=flow.value,
    )


def _after(batches: Batches, name: str, flow: Flow, key: Any, value: Any, *, rekeyed: bool = False) -> Batches:
    """Return batches of the results of operator ``name``, which reads ``flow``."""
    cut = batches.intervals
    slide = cut.slide_ms
    made = flow.behind(name, key=key, value=value, rekeyed=rekeyed)
    return Batches(made, Intervals(slide, slide, slide, cut.grace_ms, cut.wall, by_timestamp=True))


def _subtracts(aggregator: Aggregator) -> bool:
    """Whether a window is computed from the one before: exactly, or because the user gave an inverse."""
    return aggregator.subtract is not None and (aggregator.exact_merge or aggregator.name == "reduce")


def _both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _as_pair(key: Any, value: Any) -> KeyValuePair:
    return "", (key, value)


def _show(write: Callable[[str], object], n: int, end_ms: int, pairs: list[KeyValuePair]) -> None:
    more = ["..."] if len(pairs) > n else []
    write("\n".join([f"--- {end_ms} ms ---", *(str(p) for p in pairs[:n]), *more]))

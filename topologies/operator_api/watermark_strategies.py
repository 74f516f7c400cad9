"""Watermark strategies: how a source reports the progress of event time.

A watermark of T says that no more records with timestamps up to T are expected. A source of a topology may have a
strategy; a task's watermark is the lowest of its sources' (idle ones left out), and travels through repartition topics:
a source that reads one has the lowest watermark of all tasks that write it. Without any strategy, a task's watermark is
its stream time - 1. (Flink's WatermarkStrategy, with idleness decided by journaled readings of the clock.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.topologies.windows import Duration, duration_ms

if TYPE_CHECKING:
    from penstock.topologies.graph.topology import Subtopology, Topology

END_OF_TIME_MS = (1 << 63) - 1
"""The watermark after which nothing follows."""
INTERVAL_MS = 200
HOLD_MS = 60_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedOutOfOrderness:
    """The highest timestamp so far, less ``delay_ms``, less 1. It is sent through repartition topics when it passes a
    multiple of ``interval_ms``, and is held back for at most ``hold_ms`` of event time where records are few."""

    delay_ms: int
    idle_ms: int | None = None
    interval_ms: int = INTERVAL_MS
    hold_ms: int = HOLD_MS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Punctuated:
    """``fn(record)`` returns the watermark after the record, or ``None`` to leave it. It must be a pure function; a
    value below the current watermark changes nothing."""

    fn: Callable[[Record], int | None]
    idle_ms: int | None = None
    interval_ms: int = 1
    hold_ms: int = HOLD_MS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """The watermark that the writers of a repartition topic send in it."""

    idle_ms: int | None = None
    interval_ms: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looped:
    """The watermark that the writers of a feedback topic send in it: that of their other inputs, once it has gone
    around as often as a record may (``rounds``)."""

    rounds: int
    idle_ms: int | None = None
    interval_ms: int = 1


WatermarkStrategy = BoundedOutOfOrderness | Punctuated | Carried | Looped


def bounded_out_of_orderness(
    delay: Duration, *, idle: Duration | None = None, interval: Duration = INTERVAL_MS, hold: Duration = HOLD_MS
) -> BoundedOutOfOrderness:
    """Records are at most ``delay`` behind the newest. ``idle``: a partition without records for that time (by the
    clock) no longer holds the others back. ``interval``: the steps in which the watermark is sent through repartition
    topics. ``hold``: for how much event time it may be held back there, so that it takes few records."""
    return BoundedOutOfOrderness(
        delay_ms=duration_ms(delay),
        idle_ms=_positive(idle, "idle"),
        interval_ms=_positive(interval, "interval") or 1,
        hold_ms=_positive(hold, "hold") or 1,
    )


def punctuated(
    fn: Callable[[Record], int | None], *, idle: Duration | None = None, hold: Duration = HOLD_MS
) -> Punctuated:
    """Records carry the watermark: see ``Punctuated``; ``hold`` as for ``bounded_out_of_orderness``."""
    if not callable(fn):
        raise TopologyError(f"punctuated needs a function of the record, not {fn!r:.100}")
    return Punctuated(fn=fn, idle_ms=_positive(idle, "idle"), hold_ms=_positive(hold, "hold") or 1)


def _positive(value: Duration | None, what: str) -> int | None:
    if value is None:
        return None
    ms = duration_ms(value)
    if ms < 1:
        raise TopologyError(f"{what}={value!r} of a watermark must be at least 1 ms")
    return ms


def hold_ms_of(topology: Topology) -> int:
    """For how much event time tasks may hold back the watermark: the least that any source allows."""
    strategies = [topology.source(name).watermark for sub in topology.subtopologies for name in sub.sources]
    return min((w.hold_ms for w in strategies if isinstance(w, (BoundedOutOfOrderness, Punctuated))), default=HOLD_MS)


def carried_topics(topology: Topology) -> frozenset[str]:
    """The repartition topics (without the application's id) through which watermarks travel: their writers have
    watermarks, and a reader or an operator downstream of it uses them."""
    writers: dict[str, set[int]] = {}
    readers: dict[str, int] = {}
    for sub in topology.subtopologies:
        for name in sub.sinks:
            if topology.sink(name).internal:
                writers.setdefault(topology.sink(name).topic, set()).add(sub.number)
        for name in sub.sources:
            if topology.source(name).internal and topology.source(name).carries_watermarks:
                readers[topology.source(name).topic] = sub.number
    has = {s.number for s in topology.subtopologies if _has_strategy(topology, s)}
    wants = {s.number for s in topology.subtopologies if any(topology.operators[n].uses_watermark for n in s.operators)}
    links = [(w, readers[t]) for t, some in writers.items() if t in readers for w in some]
    while True:
        more_has = has | {r for w, r in links if w in has}
        more_wants = wants | {w for w, r in links if r in wants}
        if (more_has, more_wants) == (has, wants):
            break
        has, wants = more_has, more_wants
    return frozenset(t for t, some in writers.items() if t in readers and some & has and readers[t] in wants)


def check_loops(topology: Topology) -> None:
    """Check that watermarks can go around each loop: the sub-topology that reads its topic must also write it. Raises
    ``TopologyError`` if they should and cannot: event time would stop forever."""
    carried = carried_topics(topology)
    for sub in topology.subtopologies:
        for source in map(topology.source, sub.sources):
            if source.loop_rounds and source.topic in carried:
                others = [
                    s for s in topology.subtopologies if s is not sub and source.topic in _written_topics(topology, s)
                ]
                if others:
                    raise TopologyError(
                        f"the loop through topic {source.topic!r} has a repartition in its body, so watermarks cannot go "
                        "around and event time would stop; repartition before or after the loop, or leave "
                        "the watermark strategy out"
                    )


def _written_topics(topology: Topology, sub: Subtopology) -> set[str]:
    return {topology.sink(n).topic for n in sub.sinks if topology.sink(n).internal}


def check_circles(topology: Topology) -> None:
    """Refuse sub-topologies whose watermarks wait for each other: each would hold back the next forever. Feedback by
    ``loop`` is allowed, since its watermarks go around a bounded number of times. Raises ``TopologyError``."""
    carried = carried_topics(topology)
    readers = {
        topology.source(n).topic: s.number
        for s in topology.subtopologies
        for n in s.sources
        if topology.source(n).topic in carried and not topology.source(n).loop_rounds
    }
    ahead: dict[int, list[tuple[str, int]]] = {s.number: [] for s in topology.subtopologies}
    for sub in topology.subtopologies:
        for name in sub.sinks:
            topic = topology.sink(name).topic
            if topology.sink(name).internal and topic in readers:
                ahead[sub.number].append((topic, readers[topic]))
    for start in ahead:
        path = _way_back(ahead, start, start, ())
        if path:
            raise TopologyError(
                f"watermarks deadlock in a cycle through the repartition topics {', '.join(path)}; break the "
                "cycle with a separate repartition(), so that its tasks need not wait for their own results, or make "
                "intended feedback a loop(…)"
            )


def _way_back(ahead: dict[int, list[tuple[str, int]]], at: int, goal: int, seen: tuple[int, ...]) -> tuple[str, ...]:
    """The topics of a path from one sub-topology to another; empty if there is no path."""
    for topic, reader in ahead[at]:
        if reader == goal:
            return (topic,)
        if reader not in seen:
            rest = _way_back(ahead, reader, goal, (*seen, reader))
            if rest:
                return (topic, *rest)
    return ()


def _has_strategy(topology: Topology, sub: Subtopology) -> bool:
    return any(topology.source(n).watermark is not None for n in sub.sources)

"""Watermarks: how far event time has come, as a source says it.

A watermark of T says that no more records with timestamps up to T are expected. A source of a topology may have a
strategy; a task's watermark is the lowest of its sources' (idle ones left out), and travels through repartition topics,
so that a task's source behind one has the lowest of all tasks that write it. A task without any strategy takes its
stream time - 1. (Flink's WatermarkStrategy, with idleness decided by journaled readings of the clock.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.graph.topology import Subtopology, Topology

END_OF_TIME_MS = (1 << 63) - 1
"""The watermark behind which nothing is left."""
INTERVAL_MS = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedOutOfOrderness:
    """The highest timestamp so far, less ``delay_ms``, less 1. Through repartition topics it goes when it has passed a
    multiple of ``interval_ms``."""

    delay_ms: int
    idle_ms: int | None = None
    interval_ms: int = INTERVAL_MS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Punctuated:
    """``fn(record)`` names the watermark that holds after the record, or ``None`` to leave it. It must be a pure
    function; what lies below the present watermark changes nothing."""

    fn: Callable[[Record], int | None]
    idle_ms: int | None = None
    interval_ms: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """What the tasks that write a repartition topic say in it."""

    idle_ms: int | None = None
    interval_ms: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looped:
    """What the tasks that write a feedback topic say in it: the watermark of their other inputs, once it has gone around
    as often as a record may (``rounds``)."""

    rounds: int
    idle_ms: int | None = None
    interval_ms: int = 1


WatermarkStrategy = BoundedOutOfOrderness | Punctuated | Carried | Looped


def bounded_out_of_orderness(
    delay: int | str, *, idle: int | str | None = None, interval: int | str = INTERVAL_MS
) -> BoundedOutOfOrderness:
    """Records are at most ``delay`` behind the newest. ``idle``: a partition without records for so long (by the clock)
    no longer holds the others back. ``interval``: how finely it is told to tasks behind a repartition topic."""
    return BoundedOutOfOrderness(
        delay_ms=duration_ms(delay), idle_ms=_positive(idle, "idle"), interval_ms=_positive(interval, "interval") or 1
    )


def punctuated(fn: Callable[[Record], int | None], *, idle: int | str | None = None) -> Punctuated:
    """Records carry the watermark: see ``Punctuated``."""
    if not callable(fn):
        raise TopologyError(f"punctuated needs a function of the record, not {fn!r:.100}")
    return Punctuated(fn=fn, idle_ms=_positive(idle, "idle"))


def _positive(value: int | str | None, what: str) -> int | None:
    if value is None:
        return None
    ms = duration_ms(value)
    if ms < 1:
        raise TopologyError(f"{what}={value!r} of a watermark must be at least 1 ms")
    return ms


def carried_topics(topology: Topology) -> frozenset[str]:
    """The repartition topics (without the application's id) through which watermarks travel: their writers have some,
    and a reader, or who comes after it, makes use of them."""
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
    """Watermarks go around a loop only if the sub-topology that reads its topic writes it too. Raises ``TopologyError``
    where they should and cannot: event time would stand still for ever."""
    carried = carried_topics(topology)
    for sub in topology.subtopologies:
        for source in map(topology.source, sub.sources):
            if source.loop_rounds and source.topic in carried:
                others = [
                    s for s in topology.subtopologies if s is not sub and source.topic in _written_topics(topology, s)
                ]
                if others:
                    raise TopologyError(
                        f"the loop through topic {source.topic!r} has a repartition in its body, so that watermarks cannot "
                        "go around, and event time would stand still; repartition before the loop or behind it, or leave "
                        "the watermark strategy out"
                    )


def _written_topics(topology: Topology, sub: Subtopology) -> set[str]:
    return {topology.sink(n).topic for n in sub.sinks if topology.sink(n).internal}


def check_circles(topology: Topology) -> None:
    """Refuse sub-topologies whose watermarks wait for each other: each would hold back the next for ever. Feedback by
    ``loop`` is no such circle, since its watermarks go around a bounded number of times. Raises ``TopologyError``."""
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
                f"watermarks would go in a circle through the repartition topics {', '.join(path)}, and wait for "
                "themselves for ever; bring what closes the circle in by a repartition() of its own, so that its tasks "
                "need not wait for their own results, or make feedback that is meant a loop(…)"
            )


def _way_back(ahead: dict[int, list[tuple[str, int]]], at: int, goal: int, seen: tuple[int, ...]) -> tuple[str, ...]:
    """The topics of a way from one sub-topology to another; empty when there is none."""
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

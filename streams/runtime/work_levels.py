"""The order in which a backlog can be worked off sub-topology by sub-topology."""

from __future__ import annotations

from penstock.topologies.graph.topology import Topology


def writers_of(topology: Topology) -> dict[int, set[int]]:
    """For each sub-topology, those that write its repartition topics."""
    writing: dict[str, set[int]] = {}
    for sub in topology.subtopologies:
        for name in sub.sinks:
            if topology.sink(name).internal:
                writing.setdefault(topology.sink(name).topic, set()).add(sub.number)
    return {
        sub.number: {
            writer
            for name in sub.sources
            if topology.source(name).internal
            for writer in writing.get(topology.source(name).topic, ())
        }
        for sub in topology.subtopologies
    }


def work_levels(topology: Topology) -> list[tuple[int, ...]]:
    """Sub-topologies so that each comes after those that write to it. Those that write to each other, and what comes after
    them, form one last level, which is run again until nothing new is written."""
    writers = writers_of(topology)
    levels: list[tuple[int, ...]] = []
    done: set[int] = set()
    while len(done) < len(writers):
        ready = [n for n in writers if n not in done and writers[n] <= done]
        level = tuple(ready or [n for n in writers if n not in done])
        levels.append(level)
        done.update(level)
    return levels

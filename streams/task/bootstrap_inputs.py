"""Bootstrap inputs that other tasks write: their end is where every writer has said that it has caught up.

A global table, for one, is a topic that is copied to every partition of a repartition topic; a task that reads the copy
begins with its other inputs when the copy holds all that the topic held when the copying tasks started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.streams.ports.chunk import Chunk
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.records.source_sink import SourceSpec


def bootstrap_topics(topology: Topology) -> frozenset[str]:
    """The repartition topics (without the application's id) whose writers must say when they have caught up."""
    sources = (topology.source(n) for sub in topology.subtopologies for n in sub.sources)
    return frozenset(s.topic for s in sources if s.waits_for_writers)


class Bootstrap:
    """What a task has heard from the writers of its bootstrap inputs. ``done``: topics of which that is known; ``heard``:
    the writers that were heard so far, of the others. A writer may say it once and never again, so both are committed."""

    def __init__(
        self, sources: Mapping[str, SourceSpec], done: Iterable[str], heard: Mapping[str, Iterable[int]] | None = None
    ) -> None:
        self.done = sorted(set(done))
        self.waiting = {t for t, s in sources.items() if s.waits_for_writers} - set(self.done)
        self._heard: dict[str, set[int]] = {t: set((heard or {}).get(t, ())) for t in self.waiting}

    @property
    def partly(self) -> dict[str, list[int]]:
        """The writers that were heard, of topics of which not all were."""
        return {t: sorted(self._heard[t]) for t in sorted(self.waiting) if self._heard[t]}

    def heard(self, chunk: Chunk) -> bool:
        """Take note of what the chunk's records say; whether all writers of its topic have been heard by now."""
        topic = chunk.topic
        if topic not in self.waiting or chunk.marks is None:
            return False
        for mark in chunk.marks:
            if mark is not None and mark.caught_up:
                self._heard[topic].add(mark.writer)
                if len(self._heard[topic]) == mark.writers:
                    self.waiting.discard(topic)
                    self.done = sorted({*self.done, topic})
                    return True
        return False

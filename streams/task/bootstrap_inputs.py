"""Bootstrap inputs that other tasks write: they end where every writer has announced that it has caught up.

Example: a global table is a topic that is copied to every partition of a repartition topic. A task that reads the copy
begins its other inputs when the copy holds all that the topic held when the copying tasks started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.streams.ports.chunk import Chunk
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.records.source_sink import SourceSpec


def bootstrap_topics(topology: Topology) -> frozenset[str]:
    """The repartition topics (without the application's id) whose writers must announce when they have caught up."""
    sources = (topology.source(n) for sub in topology.subtopologies for n in sub.sources)
    return frozenset(s.topic for s in sources if s.waits_for_writers)


class Bootstrap:
    """Announcements by the writers of a task's bootstrap inputs. ``done``: the topics whose writers have all caught
    up. ``caught_up_writers``: of the other topics, the writers that have. A writer may announce it only once, so both
    are committed."""

    def __init__(
        self,
        sources: Mapping[str, SourceSpec],
        done: Iterable[str],
        caught_up_writers: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        self.done = sorted(set(done))
        self.waiting = {t for t, s in sources.items() if s.waits_for_writers} - set(self.done)
        self._caught_up: dict[str, set[int]] = {t: set((caught_up_writers or {}).get(t, ())) for t in self.waiting}

    @property
    def caught_up_writers(self) -> dict[str, list[int]]:
        """The writers that have announced it, for topics that still wait for others."""
        return {t: sorted(self._caught_up[t]) for t in sorted(self.waiting) if self._caught_up[t]}

    def note_announcements(self, chunk: Chunk) -> bool:
        """Note the announcements in a chunk. Returns whether all writers of its topic have announced by now."""
        topic = chunk.topic
        if topic not in self.waiting or chunk.marks is None:
            return False
        for mark in chunk.marks:
            if mark is not None and mark.caught_up:
                self._caught_up[topic].add(mark.writer)
                if len(self._caught_up[topic]) == mark.writers:
                    self.waiting.discard(topic)
                    self.done = sorted({*self.done, topic})
                    return True
        return False

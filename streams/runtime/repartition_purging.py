"""Delete what the application has consumed of its own repartition topics, which brokers would keep forever.

As in Kafka Streams: every interval, up to the committed positions, one request at a time; a failure is reported and
retried, and does not stop the worker. Only the application's own internal topics are touched.

A replay or a comparison from the start reads these records again, so nothing is deleted by default; ``penstock replay
--recompute`` does not need them.

Pure: the caller has the clock, and a port deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import Deletion
from penstock.topologies.graph.topology import Topology


def purgeable_topics(topology: Topology, application_id: str) -> frozenset[str]:
    """The internal topics, except those that a store is restored from."""
    restored_from = {s.source_topic for s in topology.stores}
    sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
    names = {s.topic_name(application_id) for s in sources if s.internal}
    return frozenset(names - restored_from)


class Purger:
    """``delete`` starts deleting the records before offsets; ``report`` is called with each partition for which that
    failed."""

    def __init__(
        self,
        topics: Iterable[str],
        interval_ms: int,
        delete: Callable[[Mapping[TopicPartition, int]], Deletion],
        report: Callable[[TopicPartition, str], None],
    ) -> None:
        self._topics = frozenset(topics)
        self._interval_s = interval_ms / 1000
        self._delete = delete
        self._report = report
        self._last_s: float | None = None
        self._asked: dict[TopicPartition, int] = {}
        self._deletion: Deletion | None = None
        self._purged: dict[TopicPartition, int] = {}

    def turn(self, now_s: float, committed: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Start or finish a deletion. Call it regularly. ``committed``: positions that are known to be committed."""
        if self._deletion is not None and not self._finished(self._deletion):
            return
        if self._last_s is None:
            self._last_s = now_s
        if now_s - self._last_s < self._interval_s:
            return
        self._last_s = now_s
        self._asked = {
            tp: offset
            for tp, offset in committed().items()
            if tp.topic in self._topics and offset > self._purged.get(tp, 0)
        }
        if self._asked:
            self._deletion = self._delete(self._asked)

    def _finished(self, deletion: Deletion) -> bool:
        failed = deletion()
        if failed is None:
            return False
        self._deletion = None
        for tp, offset in self._asked.items():
            if tp in failed:
                self._report(tp, failed[tp])
            else:
                self._purged[tp] = offset
        return True

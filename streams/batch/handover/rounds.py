"""Choose the pieces of a backlog that must be worked off next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, Ends
from penstock.streams.batch.handover.piece import Piece
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.runtime.work_levels import work_levels
from penstock.streams.task.bootstrap_inputs import bootstrap_topics
from penstock.topologies.graph.topology import Topology

MARKERS_WAIT_S = 30.0
"""Records that were committed to repartition topics are waited for, but not much longer what a frozen process left open."""


class Rounds:
    """The backlog of an application up to ``until``, which names external inputs; a partition that it does not name goes no
    further. Repartition topics are read to their ends, as they are when those that write them are done."""

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        layout: TopicLayout,
        cluster: Cluster,
        until: Mapping[TopicPartition, int],
    ) -> None:
        self.levels = work_levels(topology)
        self.reached: dict[TopicPartition, int] = {}
        """How far the inputs were worked off here. What is committed may be less, by records that only mark
        transactions."""
        self._topology = topology
        self._application_id = application_id
        self._layout = layout
        self._cluster = cluster
        self._until = until
        self._announced: set[int] = set()

    def advance(self, until: Mapping[TopicPartition, int]) -> None:
        """Go on up to here."""
        self._until = until

    def pieces(self, level: tuple[int, ...], *, everybody: bool = False) -> list[Piece]:
        """The pieces of work of this level, the largest first. ``everybody``: also those that have nothing to read, for
        what is due by the clock."""
        inputs = {n: self.inputs(n) for n in level}
        asked = [tp for mine in inputs.values() for tp in mine]
        ends, _ = self._cluster.settled_ends(self._internal(asked), MARKERS_WAIT_S)
        starts = self._starts(asked)
        stops = self._stops(starts, ends)
        everybody = self._must_announce(level) or everybody
        out: list[Piece] = []
        for partition in range(max(self._layout.tasks[n] for n in level)):
            subs = tuple(n for n in level if partition < self._layout.tasks[n])
            mine = {tp: stops[tp] for n in subs for tp in inputs[n] if tp.partition == partition}
            records = sum(stop - starts[tp] for tp, stop in mine.items())
            if subs and (records or everybody):
                out.append(Piece(partition, subs, mine, records))
        return sorted(out, key=lambda piece: (-piece.records, piece.partition))

    def done(self, pieces: Sequence[Piece]) -> None:
        """These were worked off."""
        for piece in pieces:
            self.reached |= piece.stops
            self._announced.update(piece.subtopologies)

    def inputs(self, subtopology: int) -> list[TopicPartition]:
        """All input partitions of a sub-topology."""
        sub = self._topology.subtopologies[subtopology]
        topics = [self._topology.source(n).topic_name(self._application_id) for n in sub.sources]
        return [TopicPartition(t, p) for t in topics for p in range(self._layout.tasks[subtopology])]

    def left(self) -> int:
        """How many offsets lie before the ends known now."""
        asked = [tp for sub in self._topology.subtopologies for tp in self.inputs(sub.number)]
        starts = self._starts(asked)
        stops = self._stops(starts, self._cluster.ends(self._internal(asked)))
        return sum(stops[tp] - starts[tp] for tp in asked)

    def _starts(self, asked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self._cluster.committed(asked)
        begins = self._cluster.ends(tp for tp in asked if tp not in committed)
        found = {tp: committed[tp].offset if tp in committed else begins[tp][0] for tp in asked}
        return {tp: max(offset, self.reached.get(tp, 0)) for tp, offset in found.items()}

    def _stops(self, starts: Mapping[TopicPartition, int], ends: Ends) -> dict[TopicPartition, int]:
        """``ends``: of the repartition topics."""
        wanted = {tp: ends[tp][1] if tp in ends else self._until.get(tp, 0) for tp in starts}
        return {tp: max(stop, starts[tp]) for tp, stop in wanted.items()}

    def _internal(self, asked: Sequence[TopicPartition]) -> list[TopicPartition]:
        sources = self._topology.source_topics(self._application_id)
        internal = {t for t, (_, name) in sources.items() if self._topology.source(name).internal}
        return [tp for tp in asked if tp.topic in internal]

    def _must_announce(self, level: tuple[int, ...]) -> bool:
        """Whether tasks of this level are to run although they have nothing to read: others wait until each of them has
        said once that it has caught up."""
        if self._announced.issuperset(level):
            return False
        waited_for = bootstrap_topics(self._topology)
        sinks = (self._topology.sink(name) for n in level for name in self._topology.subtopologies[n].sinks)
        return any(sink.topic in waited_for for sink in sinks)

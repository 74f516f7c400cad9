"""A backlog is worked off level by level, each up to what the others have written by then."""

from __future__ import annotations

import pytest

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.handover import rounds as rounds_module
from penstock.streams.batch.handover.rounds import Rounds
from penstock.streams.ports.log import OffsetAndMetadata, TopicSpec
from penstock.streams.runtime.topic_setup import prepare_topics
from penstock.streams.spark.handover.job import line_of
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology

APP = "app"
IN = [TopicPartition("in", p) for p in range(2)]


def two_levels() -> Topology:
    b = StreamsBuilder("levels", key=bytes, value=bytes)
    b.stream("in").select_key(lambda k, v: v).group_by_key().count(name="counts")
    return b.build()


def a_log(topology: Topology, records: int) -> MemoryLog:
    log = MemoryLog()
    for topic in sorted({topology.source(n).topic for s in topology.subtopologies for n in s.sources}):
        if topic in ("in", "rows"):
            log.create(TopicSpec(topic, 2))
    for tp in IN:
        for i in range(records * (tp.partition + 1)):
            log.append(tp, LogEntry(b"k", b"v", i))
    return log


def rounds_of(log: MemoryLog, topology: Topology, until: dict[TopicPartition, int]) -> Rounds:
    layout = prepare_topics(topology, APP, MemoryAdmin(log))
    return Rounds(topology, APP, layout, Cluster(MemoryConsumer(log, APP), MemoryAdmin(log)), until)


def test_each_level_reads_what_is_there_when_it_begins_and_nothing_is_done_twice() -> None:
    topology = two_levels()
    log = a_log(topology, 10)
    (internal,) = (t for t in topology.source_topics(APP) if t != "in")
    MemoryConsumer(log, APP)
    MemoryAdmin(log).set_offsets(APP, {IN[0]: OffsetAndMetadata(4, "")})
    rounds = rounds_of(log, topology, {IN[0]: 10, IN[1]: 15})
    first, second = rounds.levels
    pieces = rounds.pieces(first)
    # The largest comes first, and nothing of the other level is there yet.
    assert [(p.partition, p.subtopologies, p.records) for p in pieces] == [(1, (0,), 15), (0, (0,), 6)]
    assert {tp: stop for p in pieces for tp, stop in p.stops.items()} == {IN[0]: 10, IN[1]: 15}
    assert rounds.pieces(second) == [] and rounds.left() == 21
    rounds.done(pieces)
    log.append(TopicPartition(internal, 1), LogEntry(b"v", b"v", 1))
    (piece,) = rounds.pieces(second)
    assert (piece.partition, piece.subtopologies, piece.stops) == (1, (1,), {TopicPartition(internal, 1): 1})
    rounds.done([piece])
    assert not rounds.pieces(first) and not rounds.pieces(second) and rounds.left() == 0


def test_an_input_that_is_behind_its_stop_already_goes_no_further() -> None:
    topology = two_levels()
    log = a_log(topology, 10)
    MemoryAdmin(log).set_offsets(APP, {IN[0]: OffsetAndMetadata(8, "")})
    rounds = rounds_of(log, topology, {IN[0]: 5})
    assert rounds.pieces(rounds.levels[0]) == []


def test_tasks_that_others_wait_for_are_run_once_although_they_have_nothing_to_read() -> None:
    b = StreamsBuilder("waits", key=bytes, value=bytes)
    b.stream("in").join_global(b.global_table("rows"), lambda k, v: v, lambda v, row: v).to("out")
    topology = b.build()
    log = a_log(topology, 3)
    log.create(TopicSpec("out", 2))
    rounds = rounds_of(log, topology, {})
    announcing = [rounds.pieces(level) for level in rounds.levels]
    # A job that failed meanwhile begins them again.
    assert any(announcing) and [rounds.pieces(level) for level in rounds.levels] == announcing
    for pieces in announcing:
        rounds.done(pieces)
    assert all(rounds.pieces(level) == [] for level in rounds.levels)


def test_it_goes_on_further_and_runs_everybody_if_the_clock_asks() -> None:
    topology = two_levels()
    log = a_log(topology, 10)
    rounds = rounds_of(log, topology, {IN[0]: 5})
    first, second = rounds.levels
    (piece,) = rounds.pieces(first)
    rounds.done([piece])
    rounds.advance({IN[0]: 10, IN[1]: 20})
    assert [(p.partition, p.records) for p in rounds.pieces(first)] == [(1, 20), (0, 5)]
    assert rounds.pieces(second) == []
    assert [(p.partition, p.records) for p in rounds.pieces(second, everybody=True)] == [(0, 0), (1, 0)]


class LateConsumer(MemoryConsumer):
    """Sees a transaction open a few times more, as readers do whose broker has not got its markers yet."""

    late = 3

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        first, end = super().watermarks(partition)
        if partition.topic not in ("in", "rows") and self.late:
            self.late -= 1
            return first, end - 1
        return first, end


def test_records_whose_markers_come_late_are_waited_for() -> None:
    topology = two_levels()
    log = a_log(topology, 1)
    layout = prepare_topics(topology, APP, MemoryAdmin(log))
    (internal,) = (TopicPartition(t, 0) for t in topology.source_topics(APP) if t != "in")
    log.append(internal, LogEntry(b"v", b"v", 1))
    cluster = Cluster(LateConsumer(log, APP), MemoryAdmin(log), MemoryConsumer(log, APP))
    rounds = Rounds(topology, APP, layout, cluster, {})
    assert [p.stops for p in rounds.pieces(rounds.levels[1])] == [{internal: 1}]


def test_progress_says_how_long_it_takes() -> None:
    assert line_of(1_000, 1_000, 5.0) == "the handover: 0 of 1,000 records committed, 5 s"
    assert line_of(1_000, 250, 5.0).endswith("750 of 1,000 records committed, 5 s, 150 records/s; about 2 s left")


def test_what_stays_open_is_not_waited_for_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "MARKERS_WAIT_S", 0.0)
    monkeypatch.setattr(LateConsumer, "late", 1_000)
    topology = two_levels()
    log = a_log(topology, 1)
    layout = prepare_topics(topology, APP, MemoryAdmin(log))
    (internal,) = (TopicPartition(t, 0) for t in topology.source_topics(APP) if t != "in")
    for _ in range(2):
        log.append(internal, LogEntry(b"v", b"v", 1))
    cluster = Cluster(LateConsumer(log, APP), MemoryAdmin(log), MemoryConsumer(log, APP))
    assert cluster.settled_ends([internal], 0.0) == ({internal: (0, 1)}, False)
    rounds = Rounds(topology, APP, layout, cluster, {})
    assert [p.stops for p in rounds.pieces(rounds.levels[1])] == [{internal: 1}]

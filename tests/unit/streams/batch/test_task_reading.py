"""What an executor reads of a task's inputs, in whatever chunks, is the order in which a live feed took the records."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.journals import GivenJournals
from penstock.streams.batch.replay_rows import Ordering
from penstock.streams.batch.task_reading import task_pieces
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.shipping import ship
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.feed import Feed
from penstock.streams.task.journal import Cut
from penstock.topologies.graph.topology import GraphBuilder, Topology
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec
from tests.unit.streams.batch.test_replay_rows import TOPICS, live_order, logs, taken

TASK = TaskId(0, 0)
Log = dict[str, list[int]]


def merged(priorities: tuple[int, ...]) -> Topology:
    """Topics into one, each of a priority."""
    graph = GraphBuilder()
    graph.add_operator("out", SinkSpec(topic="out"))
    for topic, priority in zip(TOPICS, priorities, strict=False):
        graph.add_operator(topic, SourceSpec(topic=topic, priority=priority))
        graph.add_stream(f"{topic}-out", topic, "out")
    return graph.build()


def pieces(log: Log, cuts: list[Cut], priorities: tuple[int, ...], rng: random.Random) -> list[tuple[int, list[Chunk]]]:
    """The pieces of a task that reads these topics, each in chunks of any size."""

    def read(tp: TopicPartition, start: int, stop: int) -> Iterator[Chunk]:
        at = start
        while at < stop:
            end = min(stop, at + rng.randint(1, 5))
            nothing: list[bytes | None] = [None] * (end - at)
            chunk = Chunk(tp.topic, 0, range(at, end), nothing, nothing, log[tp.topic][at:end])
            yield chunk.in_columns() if rng.random() < 0.5 else chunk
            at = end

    topology = merged(priorities)
    ordering = Ordering(
        topology=ship(lambda: topology),
        application_id="app",
        policies=Policies(),
        subtopologies=dict.fromkeys(log, 0),
        journals=GivenJournals({TASK: tuple(cuts)}),
        partition_times_ms={},
    )
    ranges = {TopicPartition(topic, 0): (0, len(times)) for topic, times in log.items()}
    return list(task_pieces(ordering, topology, TASK, ranges, read))


def fed(log: Log, given_: list[tuple[int, list[Chunk]]], priorities: tuple[int, ...]) -> list[tuple[str, int]]:
    """The pieces through a feed, each to its end."""
    feed = Feed(tuple(log), dict.fromkeys(log, 0), priorities=dict(zip(TOPICS, priorities, strict=False)))
    for topic in log:
        feed.set_end(topic, 0)
    out: list[tuple[str, int]] = []
    at = 0
    for number, chunks in given_:
        assert number >= at and all(map(len, chunks))
        if number != at:
            at = number
            feed.note_start()
            feed.cuts.clear()
        for chunk in chunks:
            feed.add(chunk, chunk.offsets[-1] + 1)
            feed.set_end(chunk.topic, chunk.offsets[-1] + 1)
        out += taken(feed)
        assert not feed.cuts
    return out


@settings(max_examples=300)
@given(logs, st.integers(0, 1 << 30))
def test_merged_inputs_are_the_live_order(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    feed = Feed(TOPICS, dict.fromkeys(TOPICS, 0))
    live = live_order(feed, log, rng)
    cuts = [entry for entry in feed.cuts if isinstance(entry, Cut)]
    assert fed(log, pieces(log, cuts, (0, 0, 0), rng), (0, 0, 0)) == live


@settings(max_examples=200)
@given(logs, st.integers(0, 1 << 30), st.tuples(*[st.integers(0, 1)] * 3))
def test_inputs_of_a_higher_priority_come_first(log: Log, seed: int, priorities: tuple[int, ...]) -> None:
    """Without cuts: whatever is there of one is taken before anything of the other."""
    rng = random.Random(seed)
    feed = Feed(TOPICS, dict.fromkeys(TOPICS, 0), priorities=dict(zip(TOPICS, priorities, strict=True)))
    for topic in TOPICS:
        nothing: list[bytes | None] = [None] * len(log[topic])
        if nothing:
            feed.add(Chunk(topic, 0, range(len(nothing)), nothing, nothing, log[topic]), len(nothing))
        feed.set_end(topic, len(nothing))
    assert fed(log, pieces(log, [], priorities, rng), priorities) == taken(feed)


@given(st.lists(st.integers(0, 12), max_size=20), st.lists(st.integers(0, 20), max_size=4), st.integers(0, 1 << 30))
def test_a_single_input_is_parted_where_ranges_end(times: list[int], at: list[int], seed: int) -> None:
    cuts = sorted(at)
    found = pieces({"a": times}, [Cut({"a": offset}) for offset in cuts], (0,), random.Random(seed))
    placed = [(number, offset) for number, (chunk,) in found for offset in chunk.offsets]
    assert placed == [(sum(offset >= cut for cut in cuts), offset) for offset in range(len(times))]

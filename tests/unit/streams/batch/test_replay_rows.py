"""The order that Spark sorts by is the order in which a live feed takes records, cuts and all, in whatever pieces the
sorted rows then come."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.journals import GivenJournals
from penstock.streams.batch.replay_rows import Ordering, placed_rows
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.shipping import ship
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.feed import Feed, in_turns
from penstock.streams.task.journal import JournalEntry
from penstock.topologies.graph.topology import GraphBuilder, Topology
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec

TOPICS = ("a", "b", "c")


def merged() -> Topology:
    """Three topics into one."""
    graph = GraphBuilder()
    graph.add_operator("out", SinkSpec(topic="out"))
    for topic in TOPICS:
        graph.add_operator(topic, SourceSpec(topic=topic))
        graph.add_stream(f"{topic}-out", topic, "out")
    return graph.build()


def chunk(topic: str, first: int, times: list[int]) -> Chunk:
    count = len(times)
    return Chunk(topic, 0, list(range(first, first + count)), [None] * count, [None] * count, times)


def live_order(feed: Feed, log: dict[str, list[int]], rng: random.Random) -> list[tuple[str, int]]:
    """What a live feed takes when its inputs arrive piece by piece."""
    at = dict.fromkeys(TOPICS, 0)
    out: list[tuple[str, int]] = []
    for topic in TOPICS:
        feed.set_end(topic, 0)
    while any(at[t] < len(log[t]) for t in TOPICS):
        topic = rng.choice([t for t in TOPICS if at[t] < len(log[t])])
        stop = min(len(log[topic]), at[topic] + rng.randint(1, 5))
        feed.add(chunk(topic, at[topic], log[topic][at[topic] : stop]), stop)
        feed.set_end(topic, stop)
        at[topic] = stop
        if rng.random() < 0.6:
            out += taken(feed)
    return out + taken(feed)


def taken(feed: Feed) -> list[tuple[str, int]]:
    out: list[tuple[str, int]] = []
    while runs := feed.take(7):
        out += [(r.chunk.topic, o) for r in in_turns(runs) for o in r.chunk.offsets[r.start : r.stop]]
    return out


Placed = list[tuple[int, int, str, int]]


def spark_order(
    log: dict[str, list[int]],
    cuts: Sequence[JournalEntry],
    policies: Policies | None = None,
    began_ms: dict[TopicPartition, int] | None = None,
    made: Callable[[], Topology] | None = None,
) -> Placed:
    """Range, running maximum, topic and offset of every record, sorted."""
    ordering = Ordering(
        topology=ship(made or merged),
        application_id="app",
        policies=policies or Policies(),
        subtopologies=dict.fromkeys(TOPICS, 0),
        journals=GivenJournals({TaskId(0, 0): tuple(cuts)}),
        partition_times_ms={TopicPartition("a", 0): -1},
        began_ms=began_ms or {},
    )
    batches = [
        pa.record_batch(
            {
                "topic": pa.array([topic] * len(times)),
                "partition": pa.array([0] * len(times), pa.int32()),
                "offset": pa.array(range(len(times)), pa.int64()),
                "timestamp_ms": pa.array(times, pa.int64()),
                "key": pa.array([None] * len(times), pa.binary()),
                "value": pa.array([None] * len(times), pa.binary()),
                "headers": pa.nulls(len(times), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            }
        )
        for topic, times in log.items()
        if times
    ]
    rows: Placed = []
    for batch in placed_rows(ordering, batches):
        columns = (batch.column(c).to_pylist() for c in ("range", "running_max_ms", "topic", "offset"))
        rows += zip(*columns, strict=True)
    return sorted(rows)


def test_first_records_are_judged_by_the_clock_that_the_application_noted() -> None:
    first = TOPICS[0]
    log = {t: [2**62, 5_000] if t == first else [] for t in TOPICS}
    noted = {TopicPartition(first, 0): 4_000}
    assert [ms for _, ms, _, _ in spark_order(log, [], Policies(timestamp="clamp"), noted)] == [0, 5_000]
    assert [ms for _, ms, _, _ in spark_order(log, [], Policies(timestamp="clamp"))] == [2**62, 2**62]


def lenient_first() -> Topology:
    """The same, where the first topic skips."""
    graph = GraphBuilder()
    graph.add_operator("out", SinkSpec(topic="out"))
    for topic in TOPICS:
        graph.add_operator(topic, SourceSpec(topic=topic))
        graph.add_stream(f"{topic}-out", topic, "out")
    graph.set_on_error(TOPICS[0], "skip")
    return graph.build()


def test_rows_are_placed_by_the_policy_of_their_source() -> None:
    """A skipped record far ahead does not move the others of its partition; under ``fail`` a replay keeps its time."""
    first, second = TOPICS[:2]
    log = {t: [1_000, 2**62, 2_000] if t in (first, second) else [] for t in TOPICS}
    rows = spark_order(log, [], made=lenient_first)
    assert [ms for _, ms, topic, _ in rows if topic == first] == [1_000, 1_000, 2_000]
    assert [ms for _, ms, topic, _ in rows if topic == second] == [1_000, 2**62, 2**62]


logs = st.fixed_dictionaries({t: st.lists(st.integers(0, 12), max_size=15) for t in TOPICS})


@settings(max_examples=300)
@given(logs, st.integers(0, 1 << 30))
def test_sorted_rows_are_the_live_order(log: dict[str, list[int]], seed: int) -> None:
    rng = random.Random(seed)
    feed = Feed(TOPICS, dict.fromkeys(TOPICS, 0))
    live = live_order(feed, log, rng)
    rows = spark_order(log, feed.cuts)
    assert [(topic, offset) for _, _, topic, offset in rows] == live
    assert fed_in_pieces(log, rows, rng) == live


def fed_in_pieces(log: dict[str, list[int]], rows: Placed, rng: random.Random) -> list[tuple[str, int]]:
    """The sorted rows through a feed again, in pieces of any length that do not cross a range, each to its end."""
    feed = Feed(TOPICS, dict.fromkeys(TOPICS, 0))
    for topic in TOPICS:
        feed.set_end(topic, 0)
    out: list[tuple[str, int]] = []
    start, at = 0, 0
    while start < len(rows):
        stop = start + rng.randint(1, 6)
        stop = next(
            (i for i in range(start, min(stop, len(rows))) if rows[i][0] != rows[start][0]), min(stop, len(rows))
        )
        if rows[start][0] != at:
            at = rows[start][0]
            feed.note_start()
            feed.cuts.clear()
        for topic in TOPICS:
            offsets = [o for _, _, t, o in rows[start:stop] if t == topic]
            if offsets:
                feed.add(chunk(topic, offsets[0], [log[topic][o] for o in offsets]), offsets[-1] + 1)
                feed.set_end(topic, offsets[-1] + 1)
        out += taken(feed)
        assert not feed.cuts
        start = stop
    return out

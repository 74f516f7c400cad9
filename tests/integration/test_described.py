"""Topologies that are compared with Kafka Streams, as one application on real workers and on Spark: exactly once, in several
partitions, with a stop in the middle. What each partition puts out is what the test driver does with its records."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from penstock.state.log import Record
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.replay_job import replay
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology
from tests.conformance.compare import plain
from tests.conformance.live import decoded
from tests.conformance.scenario import KEY, VALUE, Scenario
from tests.differential.functions import in_words
from tests.differential.inputs import Entry, random_input
from tests.differential.kafka_streams_side import KAFKA_STREAMS
from tests.differential.kinds.kind import KINDS, Node
from tests.differential.penstock_side import Described, play
from tests.integration.worker.application import NOW_MS, SESSION_TIMEOUT_MS, Cluster, Written, until

assert KAFKA_STREAMS.kinds  # its import adds the kinds

SAMPLE = (
    "keyed_reduce",
    "tumbling_count_on_update",
    "hopping_reduce_on_close",
    "sliding_count_on_update",
    "session_reduce_on_update",
    "tumbling_suppressed",
    "processor_counting",
    "table_filter_of_a_count",
    "streams_inner_with_itself",
    "table_left_of_the_same_stream",
    "tables_outer_with_its_own_filter",
)
"""Kinds that read one topic as it is partitioned, so that the order of what they read is known."""
PARTITIONS = 2
SEEDS = 4
"""Random inputs of a kind, one after the other in time."""
Outputs = dict[str, list[str]]
"""What was put out for each key of each sink, in order."""


def nodes_of(kind: str) -> list[Node]:
    """A kind's description, with names of its own beside those of others."""
    nodes = KINDS[kind].draw(Random(kind))
    ids = {node["id"] for node in nodes if "id" in node}

    def named(value: Any) -> Any:
        return f"{kind}-{value}" if isinstance(value, str) and value in ids else value

    changed = [{**n, **{f: named(n[f]) for f in ("id", "in", "left", "right") if f in n}} for n in nodes]
    return [{**n, **{f: f"{kind}-{n[f]}" for f in ("topic", "name", "store") if f in n}} for n in changed]


def topic_of(kind: str) -> str:
    """The one topic that a kind reads."""
    [topic] = {node["topic"] for node in nodes_of(kind) if "topic" in node}
    return str(topic)


def described(prefix: str) -> Described:
    """All of the sample as one topology."""
    return Described(in_words([node for kind in SAMPLE for node in nodes_of(kind)]), prefix)


def topology_of(prefix: str) -> Topology:
    """The same where it is run."""
    return described(prefix).build()


def entries_of(kind: str) -> list[Entry]:
    """Random records of the present."""
    found: list[Entry] = []
    for seed in range(SEEDS):
        rng = Random(f"{kind} {seed}")
        entries = random_input(KINDS[kind], [topic_of(kind)], rng)
        found += [{**e, "ts": NOW_MS + 1_000 * seed + e["ts"]} for e in entries]
    return found


def gathered(scenario: Scenario, sink: str, rows: list[Record], found: Outputs) -> None:
    """Add a partition's records to what was put out."""
    for row in rows:
        shown = {name: plain(value) for name, value in scenario.row(sink, row).items()}
        found[f"{sink} {json.dumps([shown['k'], shown.get('w')])}"].append(json.dumps([shown["v"], shown["ts"]]))


def expected_of(kind: str, written: list[Written], topic: str) -> Outputs:
    """What the test driver puts out for the records of each partition."""
    found: Outputs = defaultdict(list)
    for partition in range(PARTITIONS):
        entries = [
            {
                "topic": topic,
                "k": None if w.key is None else KEY.deserialize(w.key),
                "v": None if w.value is None else VALUE.deserialize(w.value),
                "ts": w.timestamp_ms,
            }
            for w in written
            if w.partition == partition
        ]
        outcome = play(nodes_of(kind), entries)
        assert outcome.error is None
        for sink, row in outcome.flat():
            found[f"{sink} {json.dumps([row['k'], row.get('w')])}"].append(json.dumps([row["v"], row["ts"]]))
    return found


def told(found: Outputs) -> Outputs:
    """What readers can rely on: records without a key go to any partition, so they come in any order."""
    return {name: sorted(rows) if " [null, " in name else rows for name, rows in found.items()}


class Running:
    """The application: its topics, its input, and what came out."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.prefix = f"{cluster.name}-"
        self.flow = described(self.prefix)
        self.topology = self.flow.build()
        self.scenario = Scenario(self.topology, (), (), self.flow.sinks, window_end=self.flow.window_end)
        for topic in (*self.flow.inputs.values(), *self.flow.sinks.values()):
            cluster.create(topic.removeprefix(self.prefix), PARTITIONS)
        self.settings = load_settings(
            env={},
            application_id=cluster.name,
            bootstrap_servers=cluster.bootstrap_servers,
            state_dir=str(folder),
            guarantee="exactly_once",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            commit_interval_ms=50,
            batch_max_records=20,
        )

    def write(self, entries: list[Entry]) -> None:
        """Write records of one topic."""
        self.cluster.write(
            self.flow.inputs[entries[0]["topic"]],
            [None if e["v"] is None else VALUE.serialize(e["v"]) for e in entries],
            keys=[None if e["k"] is None else KEY.serialize(e["k"]) for e in entries],
            timestamps=[e["ts"] for e in entries],
        )

    def outputs(self) -> Outputs:
        """What readers of committed records see."""
        found: Outputs = defaultdict(list)
        for sink, topic in self.flow.sinks.items():
            written = self.cluster.read(topic, PARTITIONS)
            rows = [Record(w.key, w.value, w.timestamp_ms, w.headers) for w in written]
            gathered(self.scenario, sink, decoded(self.scenario, topic, rows), found)
        return found

    def work_until(self, condition: Any) -> None:
        """A worker that is stopped when the condition holds."""
        worker = Worker(self.topology, self.settings).start()
        try:
            until("the output", condition, every_s=0.3)
        finally:
            worker.stop()


def test_described_topologies_on_workers_and_on_spark(kafka: str, spark: SparkSession, tmp_path: Path) -> None:
    running = Running(Cluster(kafka, "described"), tmp_path / "state")
    halves = [(e[: len(e) // 2], e[len(e) // 2 :]) for e in map(entries_of, SAMPLE)]
    for first, _ in halves:
        running.write(first)
    running.work_until(running.outputs)
    for _, second in halves:
        running.write(second)
    expected: Outputs = {}
    for kind in SAMPLE:
        topic = topic_of(kind)
        expected |= expected_of(kind, running.cluster.read(running.flow.inputs[topic], PARTITIONS), topic)
    assert {key.split("-")[0] for key in expected} == set(SAMPLE)
    wanted = sum(map(len, expected.values()))
    running.work_until(lambda: sum(map(len, running.outputs().values())) >= wanted)
    assert told(running.outputs()) == told(expected)

    output = str(tmp_path / "replay")
    done = replay(
        partial(topology_of, running.prefix),
        application_id=running.cluster.name,
        connection=Connection(kafka),
        output=output,
    ).replay
    replayed: Outputs = defaultdict(list)
    for sink, topic in running.flow.sinks.items():
        for file in done.output_files(topic):
            rows = spark.read.parquet(f"{output}/{file.path}").orderBy("seq").collect()
            pairs = [[None if r[c] is None else bytes(r[c]) for c in ("key", "value")] for r in rows]
            records = [Record(k, v, r["timestamp_ms"]) for (k, v), r in zip(pairs, rows, strict=True)]
            gathered(running.scenario, sink, decoded(running.scenario, topic, records), replayed)
    assert told(replayed) == told(expected)

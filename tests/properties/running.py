"""Random input, and the engine run on it: whole programs over a fixed log, and single tasks with random arrival."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import from_changelog_columns
from penstock.state.serdes.partitioner import partition_for
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreWrites
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata, journal
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.output import Output
from penstock.streams.task.sink_operator import BY_KEY
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology
from tests.properties import programs as p
from tests.properties.oracle import Input, Written

APP = "app"
LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)
Log = dict[TopicPartition, list[Input]]


def random_inputs(rng: random.Random, topic: str, count: int, *, bad_bytes: bool) -> list[Input]:
    """Records of one partition: times that wander forward with late ones, nulls, headers, undecodable bytes."""
    rows, now = [], rng.randint(0, 30)
    for offset in range(count):
        now += rng.choice((0, 0, 1, 2, 3, 9))
        ts = max(now - rng.choice((0, 0, 0, 2, 7, 30)), 0)
        key = None if rng.random() < 0.06 else rng.choice(p.KEYS).encode()
        value: bytes | None = orjson.dumps({"n": rng.randint(0, 40)})
        if rng.random() < 0.08:
            value = None
        elif bad_bytes and rng.random() < 0.04:
            value = b"{"
        headers = (("h", b"%d" % offset),) if rng.random() < 0.2 else ()
        rows.append(Input(topic, offset, key, value, ts, headers))
    return rows


def random_log(rng: random.Random, program: p.Program, partitions: int) -> Log:
    """Input of the program's own topics."""
    sources = [n for n in program.nodes if n.kind in ("stream", "table") and "base" not in n.args]
    return {
        TopicPartition(n.args["topic"], at): random_inputs(
            rng, n.args["topic"], rng.randint(0, 40), bad_bytes=rng.random() < 0.5
        )
        for n in sources
        for at in range(partitions)
    }


def chunk_of(rows: Sequence[Input], partition: int) -> Chunk:
    return Chunk(
        rows[0].topic,
        partition,
        [r.offset for r in rows],
        [r.key for r in rows],
        [r.value for r in rows],
        [r.timestamp_ms for r in rows],
        [r.headers for r in rows] if any(r.headers for r in rows) else None,
    )


def cut_up(rng: random.Random, rows: Sequence[Input]) -> list[list[Input]]:
    """The rows in random pieces."""
    pieces, at = [], 0
    while at < len(rows):
        size = rng.choice((1, 2, 5, 40))
        pieces.append(list(rows[at : at + size]))
        at += size
    return pieces


@dataclasses.dataclass
class Result:
    """What a task did. ``outputs``: by topic, with the partition that was asked for."""

    outputs: dict[str, list[Written]] = dataclasses.field(default_factory=dict)
    partitions: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    stores: dict[str, dict[bytes, bytes]] = dataclasses.field(default_factory=dict)
    changelogs: dict[str, dict[bytes, bytes]] = dataclasses.field(default_factory=dict)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)

    def take(self, outputs: Sequence[Output]) -> None:
        for o in outputs:
            headers = o.headers if o.headers is not None else [()] * len(o.keys)
            rows = list(zip(o.keys, o.values, o.timestamps, headers, strict=True))
            assert {type(ts) for ts in o.timestamps} <= {int}, "a number of numpy's got out"
            self.outputs.setdefault(o.topic, []).extend(rows)
            places = o.partition if isinstance(o.partition, list) else [o.partition] * len(rows)
            self.partitions.setdefault(o.topic, []).extend(BY_KEY if x is None else x for x in places)


class Runner:
    """One task with a backend, its commits and restarts."""

    def __init__(
        self,
        topology: Topology,
        part: int,
        *,
        partition: int = 0,
        partitions: int = 1,
        replay: Sequence[journal.JournalEntry] = (),
        cache_bytes: int = 1 << 26,
    ) -> None:
        self.topology = topology
        self.sub = topology.subtopologies[part]
        self.id = TaskId(part, partition)
        self.backend = MemoryBackend(self.sub.stores)
        self.result = Result()
        self.journal: list[journal.JournalEntry] = []
        self._options = TaskOptions(policies=POLICIES, state_cache_max_bytes=cache_bytes)
        self._replay = replay
        self._counts = {topology.sink(n).topic_name(APP): partitions for n in self.sub.sinks}
        topics = [topology.source(n).topic_name(APP) for n in self.sub.sources]
        self.committed = {t: OffsetAndMetadata(0, "") for t in topics}
        self._ends: Counter[str] = Counter()
        self.open()

    def open(self) -> None:
        """A new task, from what is committed; the backend stays."""
        start = {t: (c.offset, commit_metadata.decode(c.metadata)) for t, c in self.committed.items()}
        self.task = Task(
            self.id, APP, self.topology, self.sub, self.backend, start, self._options, self._counts, self._replay
        )

    def load(self, store: str, rows: dict[bytes, bytes]) -> None:
        """Put entries in a store, as a restore does."""
        self.backend.commit([StoreWrites(store, list(rows.items()), b"p")])

    def process(self, batch: int, now_ms: int = 0) -> int:
        done = self.task.process(now_ms, batch)
        self.result.take(self.task.take_outputs())
        return done

    def drain(self, batch: int) -> None:
        while self.process(batch):
            pass

    def commit(self) -> None:
        work = self.task.prepare_commit()
        self.result.take(self.task.take_outputs())
        ends = {}
        for spec, o in work.changelogs:
            self._ends[o.topic] += len(o.keys)
            ends[TopicPartition(o.topic, self.id.partition)] = self._ends[o.topic]
            fold = self.result.changelogs.setdefault(spec.name, {})
            for key, value in from_changelog_columns(spec, o.keys, o.values, o.timestamps):
                if value is None:
                    fold.pop(key, None)
                else:
                    fold[key] = value
        if work.journal is not None:
            data = work.journal.values[0]
            assert data is not None
            self.journal += journal.decode(data)
            self._ends[work.journal.topic] += 1
            ends[TopicPartition(work.journal.topic, self.id.partition)] = self._ends[work.journal.topic]
        offsets = self.task.offsets(work, ends)
        self.committed = {tp.topic: c for tp, c in offsets.items()}
        self.task.committed(work, dict.fromkeys(work.pending, b"p"))

    def finish(self) -> Result:
        """Commit, and take stores and counters."""
        self.commit()
        for spec in self.sub.stores:
            self.result.stores[spec.name] = dict(self.backend.range(spec.name, None, None))
        self.result.dropped += self.task.dropped
        self.result.failures += self.task.failures.counts
        return self.result


def resolved(result: Result, topic: str, partitions: int) -> list[int]:
    """The partitions where a topic's records go."""
    rows = zip(result.outputs[topic], result.partitions[topic], strict=True)
    return [at if at != BY_KEY else partition_for(row[0] or b"", partitions) for row, at in rows]


def as_inputs(topic: str, rows: Sequence[Any]) -> list[Input]:
    """Written records as the log's."""
    return [Input(topic, offset, *row) for offset, row in enumerate(rows)]

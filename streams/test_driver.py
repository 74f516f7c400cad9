"""A topology in process, without a broker: pipe records in, read outputs and stores, move the clock.

It runs the real tasks on the real engine, with in-memory stores (or the backends that ``open_backend`` makes). Every
topic has one partition unless ``partitions`` says otherwise. Repartition topics are carried from task to task.
Commits happen when ``commit()`` is called, on ``close()``, and after each ``pipe`` under ``auto_commit``, which makes
``per_commit`` emission visible record by record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.facade import store_facade
from penstock.state.log import Headers, Record, TaskId, TopicPartition
from penstock.state.memory import MemoryBackend
from penstock.state.partitioner import partition_for
from penstock.state.serde import Serde
from penstock.state.store import StateBackend, StoreSpec
from penstock.streams.metadata import CommitMetadata
from penstock.streams.ports import Chunk, Committed
from penstock.streams.sink import BY_KEY, Output
from penstock.streams.task import Task, TaskOptions
from penstock.topologies.graph import Topology

OpenBackend = Callable[[TaskId, Sequence[StoreSpec]], StateBackend]


class TopologyTestDriver:
    """See the module. ``topology`` may be a ``Topology`` or anything with ``build()``."""

    def __init__(
        self,
        topology: Any,
        *,
        application_id: str = "test",
        partitions: int = 1,
        options: TaskOptions | None = None,
        auto_commit: bool = True,
        open_backend: OpenBackend | None = None,
    ) -> None:
        self.topology: Topology = topology if isinstance(topology, Topology) else topology.build()
        self.application_id = application_id
        self.options = options or TaskOptions()
        self.changelogs: dict[str, list[Record]] = {}
        """What went to each changelog and journal topic, as bytes."""
        self._partitions = partitions
        self._auto_commit = auto_commit
        self._open_backend = open_backend or (lambda task, stores: MemoryBackend(stores))
        self._committed: dict[TopicPartition, Committed] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._outputs: dict[str, deque[tuple[int, Record]]] = {}
        self._wall_ms = 0
        self._sources = self.topology.source_topics(application_id)
        self.tasks: dict[TaskId, Task] = {}
        for sub in self.topology.subtopologies:
            for p in range(partitions):
                self._open(TaskId(sub.number, p))

    def _open(self, task_id: TaskId) -> None:
        sub = self.topology.subtopologies[task_id.subtopology]
        topics = [self.topology.source(n).topic_name(self.application_id) for n in sub.sources]
        internal = {
            self.topology.sink(n).topic_name(self.application_id): self._partitions
            for s in self.topology.subtopologies
            for n in s.sinks
        }
        self.tasks[task_id] = Task(
            task_id,
            self.application_id,
            self.topology,
            sub,
            self._open_backend(task_id, sub.stores),
            {t: (0, CommitMetadata()) for t in topics},
            self.options,
            internal,
        )
        for t in topics:
            self.tasks[task_id].feed.set_end(t, 0)

    # -- input ---------------------------------------------------------------------------------------------------

    def pipe(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp_ms: int = 0,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Write one record and run until nothing is left to do. Keys and values are written by the source's serdes."""
        self.pipe_all(topic, [Record(key, value, timestamp_ms, headers)], partition=partition)

    def pipe_all(self, topic: str, records: Sequence[Record], *, partition: int | None = None) -> None:
        """Write records of one topic, then run: they arrive together, so that batches may hold many of them."""
        source = self._source(topic)
        raw = [
            Record(
                _write(source.key_serde, r.key), _write(source.value_serde, r.value), r.timestamp_ms, tuple(r.headers)
            )
            for r in records
        ]
        self.pipe_raw({topic: raw}, partition=partition)

    def pipe_raw(self, records: Mapping[str, Sequence[Record]], *, partition: int | None = None) -> None:
        """Write records of several topics, keys and values as bytes, all at once; then run."""
        for topic, some in records.items():
            self._source(topic)
            by_partition: dict[int, list[Record]] = {}
            for r in some:
                p = partition if partition is not None else self._partition_of(r.key)
                by_partition.setdefault(p, []).append(r)
            for p, rows in by_partition.items():
                self._add(topic, p, rows)
        self._run()

    def _source(self, topic: str) -> Any:
        for name in (topic, f"{self.application_id}-{topic}"):
            if name in self._sources:
                return self.topology.source(self._sources[name][1])
        raise TopologyError(f"the topology does not read topic {topic!r}; it reads: {', '.join(self._sources)}")

    def _partition_of(self, key: bytes | None) -> int:
        return 0 if key is None or self._partitions == 1 else partition_for(key, self._partitions)

    def _add(self, topic: str, partition: int, rows: Sequence[Record]) -> None:
        task = self.tasks[TaskId(self._sources[topic][0], partition)]
        at = TopicPartition(topic, partition)
        first = self._offsets.get(at, 0)
        self._offsets[at] = first + len(rows)
        chunk = Chunk(
            topic,
            partition,
            list(range(first, first + len(rows))),
            [r.key for r in rows],
            [r.value for r in rows],
            [r.timestamp_ms for r in rows],
            [tuple(r.headers) for r in rows] if any(r.headers for r in rows) else None,
        )
        task.add(chunk, first + len(rows), self._wall_ms)
        task.feed.set_end(topic, first + len(rows))

    # -- running -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        again = True
        while again:
            self._drain()
            again = self.commit() if self._auto_commit else False

    def _drain(self) -> None:
        busy = True
        while busy:
            busy = False
            for task in self.tasks.values():
                while task.process(self._wall_ms):
                    busy = True
                    self._carry(task)
                    if task.requests.commit:
                        self._commit(task)

    def _carry(self, task: Task) -> bool:
        outputs = task.take_outputs()
        for o in outputs:
            if o.topic in self._sources:
                self._carry_on(o, task.id.partition)
            rows = self._outputs.setdefault(o.topic, deque())
            rows.extend((task.id.partition, r) for r in _records(o))
        return bool(outputs)

    def _carry_on(self, output: Output, producer: int) -> None:
        by_partition: dict[int, list[Record]] = {}
        explicit = output.partition
        for i, r in enumerate(_records(output)):
            p = explicit[i] if isinstance(explicit, list) else BY_KEY
            by_partition.setdefault(p if p != BY_KEY else self._partition_of(r.key), []).append(r)
        for p, rows in by_partition.items():
            self._add(output.topic, p, rows)

    def commit(self) -> bool:
        """Commit every task, in order of sub-topology; returns whether that gave records to other tasks."""
        carried = [self._commit(t) for t in self.tasks.values()]
        return any(carried)

    def _commit(self, task: Task) -> bool:
        work = task.prepare_commit()
        carried = self._carry(task)
        ends: dict[TopicPartition, int] = {}
        logged = [o for _, o in work.changelogs] + ([work.journal] if work.journal else [])
        for o in logged:
            rows = self.changelogs.setdefault(o.topic, [])
            rows.extend(_records(o))
            ends[TopicPartition(o.topic, task.id.partition)] = len(rows)
        self._committed.update(task.offsets(work, ends))
        task.committed(work, dict.fromkeys(work.pending, b""))
        return carried and bool(self._sources)

    def advance_wall_time(self, ms: int) -> None:
        """Move the clock on by ``ms`` and let wall-clock timers fire."""
        self._wall_ms += ms
        for task in self.tasks.values():
            if task.punctuate(self._wall_ms):
                self._carry(task)
        self._run()

    # -- output --------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> list[Record]:
        """What was written to an output topic since the last call, decoded by the sink's serdes."""
        serdes = self._sink_serdes(topic)
        return [
            Record(_read(serdes[0], r.key), _read(serdes[1], r.value), r.timestamp_ms, r.headers)
            for r in self.read_raw(topic)
        ]

    def read_raw(self, topic: str) -> list[Record]:
        """The same as bytes; any topic, the dead letter topic too."""
        rows = self._outputs.pop(topic, deque())
        return [r for _, r in rows]

    def _sink_serdes(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        for sub in self.topology.subtopologies:
            for n in sub.sinks:
                sink = self.topology.sink(n)
                if sink.topic == topic or sink.topic_name(self.application_id) == topic:
                    return sink.key_serde, sink.value_serde
        raise TopologyError(f"the topology does not write topic {topic!r}")

    def store(self, name: str, partition: int = 0) -> Any:
        """A store, as a ``KeyValueStore`` or ``WindowStore``, uncommitted writes included."""
        for task in self.tasks.values():
            if name in task.stores and task.id.partition == partition:
                return store_facade(task.stores[name])
        known = ", ".join(s.name for s in self.topology.stores) or "none"
        raise TopologyError(f"no store is named {name!r}; there are: {known}")

    def close(self) -> None:
        """Commit and release the stores."""
        self._drain()
        while self.commit():
            self._drain()
        self._release()

    def _release(self) -> None:
        for task in self.tasks.values():
            task.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._release()


def _records(output: Output) -> list[Record]:
    headers = output.headers if output.headers is not None else [()] * len(output.keys)
    return [Record(*row) for row in zip(output.keys, output.values, output.timestamps, headers, strict=True)]


def _write(serde: Serde[Any], value: Any) -> bytes | None:
    return None if value is None else serde.serialize(value)


def _read(serde: Serde[Any], data: bytes | None) -> Any:
    return None if data is None else serde.deserialize(data)

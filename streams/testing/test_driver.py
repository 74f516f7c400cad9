"""A topology in process, without a broker: pipe records in, read outputs and stores, move the clock.

It runs the real tasks on the real engine, with in-memory stores (or the backends that ``open_backend`` makes). Every
topic has one partition unless ``partitions`` says otherwise. Repartition topics are carried from task to task.
Commits happen when ``commit()`` is called, on ``close()``, and after each ``pipe`` under ``auto_commit``, which makes
``per_commit`` emission visible record by record.

Every piped record has a label: a number that grows. Outputs know the label of the record that caused them, also behind
repartition topics (``read_caused``). With ``arrival_order`` tasks process records by label instead of by the feed's
rule of timestamps: exactly as if each piped record had been carried to the end before the next came, in batches as
large as that allows.

With ``columns`` tasks get their records as a native reader gives them, in columns instead of lists; answers are the
same. With ``tracer_provider``, OpenTelemetry's, records and commits have spans, as in a worker.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, overload

from penstock.state.errors import TopologyError
from penstock.state.log import Headers, Record, TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, from_changelog_columns
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.serde import Serde
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec, StoreWrites
from penstock.state.stores.typed_stores import store_facade
from penstock.state.type_parameters import S
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task.commit_metadata import CommitMetadata, decode
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.output import Output
from penstock.streams.task.sink_operator import BY_KEY
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_state import TaskState
from penstock.streams.testing.arrival_order import ArrivalFeed, in_dependency_order
from penstock.streams.testing.driver_call_executor import DriverCallExecutor
from penstock.streams.testing.driver_events import DriverEvents
from penstock.streams.testing.driver_records import read, records_of, written
from penstock.streams.testing.driver_traces import DriverTraces
from penstock.topologies.graph.topology import GraphBuilder, Topology

if TYPE_CHECKING:
    from penstock.topologies.dsl.builder import StreamsBuilder

OpenTaskBackend = Callable[[TaskId, Sequence[StoreSpec]], StateBackend]


class TopologyTestDriver:
    """Runs a topology in process, without a broker: the real tasks, with in-memory stores. Topics have one partition
    unless ``partitions`` says otherwise. ``auto_commit``: after each ``pipe``. ``topology`` may also be a builder.
    ``policies``: those of the application, such as where dead letters go."""

    def __init__(
        self,
        topology: Topology | StreamsBuilder | GraphBuilder,
        *,
        application_id: str = "test",
        partitions: int = 1,
        options: TaskOptions | None = None,
        policies: Policies | None = None,
        auto_commit: bool = True,
        open_backend: OpenTaskBackend | None = None,
        arrival_order: bool = False,
        columns: bool = False,
        tracer_provider: Any = None,
    ) -> None:
        self.topology: Topology = topology if isinstance(topology, Topology) else topology.build()
        self.application_id = application_id
        self.options = options or TaskOptions()
        if policies is not None:
            self.options = dataclasses.replace(self.options, policies=policies)
        self._call_executor = DriverCallExecutor(self.options.call_executor)
        self._traces = DriverTraces(tracer_provider, application_id)
        self.options = dataclasses.replace(
            self.options,
            call_executor=self._call_executor,
            events=self._traces.watching(DriverEvents(self.options.events)),
        )
        self.changelogs: dict[str, list[Record]] = {}
        """The records of each changelog and journal topic, as bytes."""
        self._logged: dict[tuple[str, int], list[Record]] = {}
        """Those records by topic and partition."""
        self._partitions = partitions
        self._auto_commit = auto_commit
        self._open_backend = open_backend or (lambda task, stores: MemoryBackend(stores))
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._outputs: dict[str, deque[tuple[int, Record]]] = {}
        """By topic: label of the cause and the record."""
        self._arrival_order = arrival_order
        self._in_columns = columns
        self._label = -1
        """The highest label so far; also used for what timers and commits emit."""
        self._labels: dict[TopicPartition, list[int]] = {}
        """The labels of each input partition's records, by offset."""
        self._held: list[tuple[int, str, int, Record]] | None = None
        """Label, topic, partition and record of pending records; ``None``: there are none."""
        self._dropped: Counter[str] = Counter()
        self._wall_ms = 0
        self._sources = self.topology.source_topics(application_id)
        self.tasks: dict[TaskId, Task] = {}
        for sub in self.topology.subtopologies:
            for p in range(partitions):
                self._open(TaskId(sub.number, p), self._open_backend(TaskId(sub.number, p), sub.stores))
        self._stages = self._in_stages()

    def _open(self, task_id: TaskId, backend: StateBackend) -> None:
        """Open a task at its last commit."""
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
            backend,
            {t: self._start(TopicPartition(t, task_id.partition)) for t in topics},
            self.options,
            internal,
            task_count=self._partitions,
        )
        task = self.tasks[task_id]
        task.sinks.collect()
        if self._arrival_order:
            labels = {t: self._labels.setdefault(TopicPartition(t, task_id.partition), []) for t in topics}
            task.feed = ArrivalFeed(topics, task.feed.positions(), labels)
        for t in topics:
            task.feed.set_end(t, self._offsets.get(TopicPartition(t, task_id.partition), 0))

    def _start(self, partition: TopicPartition) -> tuple[int, CommitMetadata]:
        committed = self._committed.get(partition)
        return (0, CommitMetadata()) if committed is None else (committed.offset, decode(committed.metadata))

    def _in_stages(self) -> list[list[TaskId]]:
        """The tasks in groups, upstream groups first; those that feed each other, or themselves, are one."""
        readers = {topic: sub for topic, (sub, _) in self._sources.items()}
        edges = [
            (sub.number, readers[topic])
            for sub in self.topology.subtopologies
            for topic in (self.topology.sink(n).topic_name(self.application_id) for n in sub.sinks)
            if topic in readers
        ]
        self._looped = {a for a, b in edges if a == b}
        groups = in_dependency_order([s.number for s in self.topology.subtopologies], edges)
        self._looped |= {n for group in groups if len(group) > 1 for n in group}
        return [[t for t in self.tasks if t.subtopology in group] for group in groups]

    # -- input ---------------------------------------------------------------------------------------------------

    def pipe(
        self,
        topic: str,
        key: object,
        value: object,
        timestamp_ms: int = 0,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Write one record and run until nothing is left to do. Keys and values are written by the source's serdes;
        those of a Struct or a dataclass also take dicts, as another writer's JSON."""
        self.pipe_all(topic, [Record(key, value, timestamp_ms, headers)], partition=partition)

    def pipe_all(self, topic: str, records: Sequence[Record], *, partition: int | None = None) -> None:
        """Write records of one topic, then run: they arrive together, so that batches may hold many of them."""
        self.pipe_sequence([(topic, r) for r in records], partition=partition)

    def pipe_sequence(
        self,
        records: Sequence[tuple[str, Record]],
        *,
        labels: Sequence[int] | None = None,
        partition: int | None = None,
    ) -> None:
        """Write records of any topics in this order, all at once; then run. ``labels``: ascending numbers above those
        given before; ``None``: the next ones."""
        first = self._label + 1
        given = range(first, first + len(records)) if labels is None else labels
        raw = []
        for (topic, r), label in zip(records, given, strict=True):
            source = self._source(topic)
            key = written(source.key_serde, r.key, f"a key of topic {topic}")
            value = written(source.value_serde, r.value, f"a value of topic {topic}")
            p = partition if partition is not None else self._partition_of(key)
            raw.append((topic, p, Record(key, value, r.timestamp_ms, tuple(r.headers)), label))
        for (topic, p), run in groupby(raw, key=lambda row: row[:2]):
            rows = list(run)
            self._label = max(self._label, rows[-1][3])
            self._add(topic, p, [row[2] for row in rows], [row[3] for row in rows])
        self._run()

    def pipe_raw(self, records: Mapping[str, Sequence[Record]], *, partition: int | None = None) -> None:
        """Write records of several topics, keys and values as bytes, all at once; then run."""
        for topic, some in records.items():
            self._source(topic)
            by_partition: dict[int, list[Record]] = {}
            labels: dict[int, list[int]] = {}
            for r in some:
                p = partition if partition is not None else self._partition_of(r.key)
                by_partition.setdefault(p, []).append(r)
                self._label += 1
                labels.setdefault(p, []).append(self._label)
            for p, rows in by_partition.items():
                self._add(topic, p, rows, labels[p])
        self._run()

    def _source(self, topic: str) -> Any:
        for name in (topic, f"{self.application_id}-{topic}"):
            if name in self._sources:
                return self.topology.source(self._sources[name][1])
        raise TopologyError(f"the topology does not read topic {topic!r}; it reads: {', '.join(self._sources)}")

    def _partition_of(self, key: bytes | None) -> int:
        return 0 if key is None or self._partitions == 1 else partition_for(key, self._partitions)

    def _add(self, topic: str, partition: int, rows: Sequence[Record], labels: Sequence[int]) -> None:
        task = self.tasks[TaskId(self._sources[topic][0], partition)]
        at = TopicPartition(topic, partition)
        first = self._offsets.get(at, 0)
        self._labels.setdefault(at, []).extend(labels)
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
        self._traces.received(chunk)
        task.add(chunk.in_columns() if self._in_columns else chunk, first + len(rows), self._wall_ms)
        task.feed.set_end(topic, first + len(rows))

    # -- running -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        again = True
        while again:
            self._drain()
            again = self.commit() if self._auto_commit else False

    def _drain(self) -> None:
        if not self._arrival_order:
            while self._turn(list(self.tasks)):
                pass
            return
        for stage in self._stages:
            if any(t.subtopology in self._looped for t in stage):
                # in a loop every record must have gone around before the next one enters
                while (label := self._next_label(stage)) is not None:
                    self._turn_until(stage, label)
                self._turn_until(stage, None)
                continue
            # records of several tasks in one topic are ordered by label
            self._held = []
            self._turn_until(stage, None)
            self._carry_held()

    def _carry_held(self) -> None:
        held, self._held = self._held or [], None
        by_partition: dict[tuple[str, int], list[tuple[int, Record]]] = {}
        for label, topic, partition, record in held:
            by_partition.setdefault((topic, partition), []).append((label, record))
        for (topic, partition), rows in by_partition.items():
            rows.sort(key=lambda row: row[0])
            self._add(topic, partition, [r for _, r in rows], [label for label, _ in rows])

    def _turn_until(self, tasks: Sequence[TaskId], bound: int | None) -> None:
        for t in tasks:
            feed = self.tasks[t].feed
            assert isinstance(feed, ArrivalFeed)
            feed.bound = bound
        while self._turn(tasks):
            pass

    def _next_label(self, tasks: Sequence[TaskId]) -> int | None:
        feeds = [self.tasks[t].feed for t in tasks]
        waiting = [feed.next_label() for feed in feeds if isinstance(feed, ArrivalFeed)]
        return min((label for label in waiting if label is not None), default=None)

    def _turn(self, tasks: Sequence[TaskId]) -> bool:
        """Run each of the tasks as far as possible; returns whether any of them did something."""
        busy = False
        for t in tasks:
            task = self.tasks[t]
            while task.process(self._wall_ms):
                busy = True
                self._carry(task)
                if task.requests.commit:
                    self._commit(task)
        return busy

    def _carry(self, task: Task) -> bool:
        outputs = task.take_outputs()
        for o in outputs:
            o.headers = self._traces.sent(o)
            labels = [self._label_of(cause) for cause in task.causes(o)]
            if o.topic in self._sources:
                self._carry_on(o, labels)
            rows = self._outputs.setdefault(o.topic, deque())
            rows.extend(zip(labels, records_of(o), strict=True))
        return bool(outputs)

    def _label_of(self, cause: tuple[TopicPartition, int] | None) -> int:
        return self._label if cause is None else self._labels[cause[0]][cause[1]]

    def _carry_on(self, output: Output, labels: Sequence[int]) -> None:
        by_partition: dict[int, tuple[list[Record], list[int]]] = {}
        explicit = output.partition
        for i, (r, label) in enumerate(zip(records_of(output), labels, strict=True)):
            p = explicit[i] if isinstance(explicit, list) else BY_KEY
            p = self._partition_of(r.key) if p == BY_KEY else p
            if self._held is not None:
                self._held.append((label, output.topic, p, r))
                continue
            rows = by_partition.setdefault(p, ([], []))
            rows[0].append(r)
            rows[1].append(label)
        for p, (records, theirs) in by_partition.items():
            self._add(output.topic, p, records, theirs)

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
            rows = self._logged.setdefault((o.topic, task.id.partition), [])
            rows += records_of(o)
            self.changelogs.setdefault(o.topic, []).extend(records_of(o))
            ends[TopicPartition(o.topic, task.id.partition)] = len(rows)
        positions = task.offsets(work, ends)
        self._committed.update(positions)
        self._traces.committed(task.id, positions)
        task.committed(work, dict.fromkeys(work.pending, b""))
        return carried and bool(self._sources)

    def restart(self, *, restore: bool = False) -> None:
        """Commit, close every task, and reopen it from its stores and the committed positions: anything kept
        elsewhere is gone. Backends must outlive ``close`` or be found again by ``open_backend``; the default ones, in
        memory, are kept. ``restore``: the stores are gone too, and are restored, in memory, from the changelogs."""
        self._run()
        while self.commit():
            self._drain()
        for task_id, task in list(self.tasks.items()):
            task.close()
            self._dropped += task.dropped
            if restore:
                backend: StateBackend = self._restored(task)
            elif isinstance(task.backend, MemoryBackend):
                backend = task.backend
            else:
                backend = self._open_backend(task_id, self.topology.subtopologies[task_id.subtopology].stores)
            self._open(task_id, backend)

    def _restored(self, task: Task) -> MemoryBackend:
        """The task's stores as a machine without them would restore them. Tables of topics are copied: the driver does
        not keep what was piped."""
        specs = [state.spec for state in task.stores.values()]
        backend = MemoryBackend(specs)
        for spec in specs:
            logged = self._logged.get((changelog_topic(self.application_id, spec), task.id.partition), [])
            entries: list[tuple[bytes, bytes | None]] = []
            if spec.source_topic is not None:
                entries += task.backend.range(spec.name, None, None)
            elif spec.changelog:
                entries = from_changelog_columns(
                    spec, [r.key for r in logged], [r.value for r in logged], [r.timestamp_ms for r in logged]
                )
            backend.commit([StoreWrites(spec.name, entries, b"")])
        return backend

    @property
    def wall_ms(self) -> int:
        """The clock; it starts at 0."""
        return self._wall_ms

    def advance_wall_time(self, ms: int, *, label: int | None = None) -> None:
        """Advance the clock by ``ms`` and fire wall-clock timers. ``label``: for what they emit; ``None``: the last
        record's."""
        self._label = self._label if label is None else max(self._label, label)
        self._wall_ms += ms
        for task in self.tasks.values():
            if task.punctuate(self._wall_ms):
                self._carry(task)
        self._run()

    # -- output --------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> list[Record]:
        """The records of an output topic since the last call, decoded by the sink's serdes. Raises ``SerdeError`` if
        they cannot read one; then all records stay, for ``read_raw``."""
        return [r for _, r in self.read_caused(topic)]

    def read_caused(self, topic: str) -> list[tuple[int, Record]]:
        """The outputs, each with the label of the piped record, or of the clock's move, that each was caused by."""
        keys, values = self._sink_serdes(topic)
        key, value = f"a key of topic {topic}", f"a value of topic {topic}"
        out = [
            (label, Record(read(keys, r.key, key), read(values, r.value, value), r.timestamp_ms, r.headers))
            for label, r in self._outputs.get(topic, ())
        ]
        self._outputs.pop(topic, None)
        return out

    def read_raw(self, topic: str) -> list[Record]:
        """The outputs as bytes; of any topic, the dead letter topic too."""
        return [r for _, r in self._outputs.pop(topic, deque())]

    def read_sink(self, name: str) -> list[Any]:
        """The rows that the external sink of this name was given since the last call or restart. Nothing is opened."""
        return [row for task in self.tasks.values() if name in task.sinks for row in task.sinks.take(name).rows]

    def _sink_serdes(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        for sub in self.topology.subtopologies:
            for n in sub.sinks:
                sink = self.topology.sink(n)
                if topic in (sink.topic, sink.topic_name(self.application_id), *sink.topics):
                    return sink.key_serde, sink.value_serde
        written_topics = (self.topology.sink(n) for sub in self.topology.subtopologies for n in sub.sinks)
        names = sorted({t for s in written_topics for t in (s.topics or (s.topic_name(self.application_id),))})
        raise TopologyError(
            f"the topology does not write topic {topic!r}; it writes: {', '.join(names) or 'none'}. "
            "The bytes of any other topic, such as dead letters, are those of read_raw"
        )

    @property
    def dropped_records(self) -> Counter[str]:
        """How many records were dropped since the start, by ``operator.reason``."""
        return sum((task.dropped for task in self.tasks.values()), self._dropped)

    @property
    def shutdown_requested(self) -> bool:
        """Whether an operator requested a shutdown."""
        return any(task.requests.shutdown for task in self.tasks.values())

    @overload
    def store(self, store: StoreSpec[S], partition: int = 0) -> S: ...

    @overload
    def store(self, store: str, partition: int = 0) -> Any: ...

    def store(self, store: StoreSpec[S] | str, partition: int = 0) -> Any:
        """A store by its spec or name, as a ``KeyValueStore`` or ``WindowStore``, uncommitted writes included."""
        name = store if isinstance(store, str) else store.name
        for task in self.tasks.values():
            if name in task.stores and task.id.partition == partition:
                return store_facade(task.stores[name])
        known = ", ".join(s.name for s in self.topology.stores) or "none"
        raise TopologyError(f"no store is named {name!r}; there are: {known}")

    def close(self) -> None:
        """Commit and release the stores. A driver that was released stays as it is."""
        if all(task.state is TaskState.CLOSED for task in self.tasks.values()):
            return
        self._drain()
        while self.commit():
            self._drain()
        self.release()

    def release(self) -> None:
        """Release the stores without a commit."""
        self._call_executor.close()
        for task in self.tasks.values():
            task.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.release()

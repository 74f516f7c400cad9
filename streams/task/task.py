"""A task: one sub-topology on one partition, as a deterministic state machine with no I/O.

Its runner passes it chunks of records, the ends of partitions and readings of the clock, and takes outputs. For a
commit the runner calls, in this order: ``prepare_commit`` → send changelog and journal → ``offsets`` with the ends
that the log returned → commit them → ``committed``. If the commit is known not to have taken place,
``abandon_commit`` keeps the work for the next one. If anything else fails, ``discard`` drops everything since the
last commit, and the runner feeds the task again. ``penstock.streams.task.task_state`` has the allowed calls as a
table.

From the same start state, offsets and journal it gives the same outputs in the same order and the same stores, for
any chunks, batch size and runner.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.position import decode_position
from penstock.state.stores.count_store import state_of
from penstock.state.stores.store import StateBackend
from penstock.streams.events.facts import SourceIdle, TimestampsClamped
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata, journal
from penstock.streams.task.batch_input import BatchInput
from penstock.streams.task.bootstrap_inputs import Bootstrap, bootstrap_topics
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.commit_work import CommitWork, CommitWriter, store_writes
from penstock.streams.task.dead_letters import dead_letter_output
from penstock.streams.task.engine import BatchTime, Engine
from penstock.streams.task.event_time import with_event_times
from penstock.streams.task.external_calls import ExternalCalls
from penstock.streams.task.feed import Feed
from penstock.streams.task.heavy_keys import HeavyKeys
from penstock.streams.task.operator_context import NodeContext, RecordErrorHandler, TaskRequests
from penstock.streams.task.operator_times import restore_times, saved_times
from penstock.streams.task.output import Output, coalesced
from penstock.streams.task.own_positions import OwnPositions
from penstock.streams.task.sink_operator import SinkOperator
from penstock.streams.task.store_memory import StoreMemory
from penstock.streams.task.task_clock import TaskClock
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_sinks import TaskSinks
from penstock.streams.task.task_state import TaskLifecycle, TaskState
from penstock.streams.task.task_time import EventTimeTracker
from penstock.streams.task.task_watermarks import TaskWatermarks, WatermarkMark, with_marks
from penstock.streams.task.timestamp_checks import check_timestamps
from penstock.streams.task.watermark_emitter import WatermarkEmitter, emitter_kind, mark_output
from penstock.topologies.columnar import packing
from penstock.topologies.graph.lockstep_plan import plan_of
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import NO_TIME, Operator, OperatorSpec
from penstock.topologies.operator_api.watermark_strategies import Carried, Looped, hold_ms_of
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec


class Task:
    """See the module. ``start`` holds the committed position of every input; ``partition_counts`` those of the
    internal topics that it writes; ``replay`` the journal entries from ``start`` on; ``task_count`` how many tasks the
    sub-topology has; ``answers``: the results of external calls, instead of calling."""

    def __init__(
        self,
        task_id: TaskId,
        application_id: str,
        topology: Topology,
        subtopology: Subtopology,
        backend: StateBackend,
        start: Mapping[str, tuple[int, CommitMetadata]],
        options: TaskOptions,
        partition_counts: Mapping[str, int],
        replay: Sequence[journal.JournalEntry] = (),
        *,
        task_count: int = 1,
        answers: Iterable[journal.Answers] | None = None,
    ) -> None:
        self.id = task_id
        self.application_id = application_id
        self.backend = backend
        self.options = options
        self.cache_max_bytes = options.state_cache_max_bytes
        """The limit for uncommitted writes and cached entries: the option, or this task's part of it."""
        self._plan = plan_of(topology, subtopology)
        self._topology = topology
        self._sources = {
            topology.source(n).topic_name(application_id): self._plan.names.index(n) for n in subtopology.sources
        }
        self.topics = tuple(sorted(self._sources))
        self._source_specs = {t: self._source_spec(i) for t, i in self._sources.items()}
        chosen = {t: topology.on_error.get(self._plan.names[i]) for t, i in self._sources.items()}
        self._policies = {t: options.policies.of_source(c) for t, c in chosen.items()}
        self._rows_of_record = packing.ROWS_MAX if any(s.packed for s in self._source_specs.values()) else 1
        self._marked = frozenset(
            t
            for t, s in self._source_specs.items()
            if isinstance(s.watermark, (Carried, Looped)) or s.waits_for_writers
        )
        self._announces = bootstrap_topics(topology) if options.announces else frozenset()
        self._task_count = task_count
        self.stores = {s.name: state_of(s, backend) for s in subtopology.stores}
        self.requests = TaskRequests()
        self.dropped: Counter[str] = Counter()
        self.heavy_keys = HeavyKeys()
        self.cached_bytes: Mapping[str, int] = {}
        """The memory of each store's entries when ``measure_caches`` was last called."""
        self.committed_positions: dict[TopicPartition, int] = {}
        """The positions of its inputs at its own last commit that is known to have taken place."""
        self.failures = RecordErrorHandler(
            task_id,
            options.policies,
            lambda place: self._input.locate(place),
            options.events,
            topology.declared,
            topology.on_error,
            options.pause,
        )
        self._partition_counts = partition_counts
        self._outputs: list[Output] = []
        self.sinks = TaskSinks(task_id, application_id, topology, subtopology, options.topic_ids)
        self._lifecycle = TaskLifecycle(task_id)
        self._time = BatchTime(self._plan.stride)
        self._start = dict(start)
        self.own_positions = OwnPositions(start)
        self._replay = journal.ordering_of(replay)
        self._answers = journal.answers_of(replay) if answers is None and replay else answers
        self._begin()

    def _source_spec(self, index: int) -> SourceSpec:
        spec = self._plan.specs[index]
        assert isinstance(spec, SourceSpec)
        if spec.topic not in self._plan.carried:
            return spec
        carried = Looped(rounds=spec.loop_rounds) if spec.loop_rounds else Carried()
        return dataclasses.replace(spec, watermark=carried)

    def _begin(self) -> None:
        """Set everything that is not in a store or in the log to what the last commit left."""
        recorded = [m for _, m in self._start.values()]
        self._contexts: list[NodeContext] = []
        saved = {t: w for m in recorded for t, w in m.watermarks.items()}
        self._watermarks = TaskWatermarks(self._source_specs, saved)
        self._event_time = EventTimeTracker(
            self._plan, self._time, self._watermarks, {t: m for t, (_, m) in self._start.items()}
        )
        wall_ms = max((m.wall_ms for m in recorded), default=NO_TIME)
        self._time.wall_ms = max(wall_ms, 0)
        self._external_calls = ExternalCalls(
            self.options.call_executor, lambda: self.feed.positions(), lambda e: self.feed.cuts.append(e), self._answers
        )
        self._engine = Engine(self._plan, self._time, self._open_operator)
        for ctx in self._contexts:
            ctx.engine = self._engine
        self.sinks.begin(self._engine.operators, lambda order: self._input.offset_of(order // self._plan.stride))
        self.feed = Feed(
            self.topics,
            {t: self._start[t][0] for t in self.topics},
            max_task_idle_ms=self.options.max_task_idle_ms,
            replay=self._replay,
            bootstrap=[t for t, s in self._source_specs.items() if s.bootstrap],
            priorities={t: s.priority for t, s in self._source_specs.items()},
        )
        self._clock = TaskClock(
            self._plan,
            self._engine.operators,
            self._watermarks,
            wall_ms,
            self.options.wall_resolution_ms,
            lambda before_ms, now_ms: self.feed.note_clock(before_ms, now_ms),
            self._fire_clock,
        )
        writers = {t: ids for m in recorded for t, ids in m.caught_up_writers.items()}
        self._bootstrap = Bootstrap(self._source_specs, [t for m in recorded for t in m.caught_up], writers)
        for topic in self._bootstrap.waiting:
            self.feed.hold_back(topic, True)
        self._announced = not self._announces
        self._input = BatchInput(self._plan.stride, self._plan.names, self._sources, self._marked)
        self._partition_time_ms = dict(self._event_time.consumed_ms)
        self._began_ms = {topic: m.began_ms for topic, (_, m) in self._start.items()}
        policies = self.options.policies
        self._commits = CommitWriter(self.id, self.application_id, policies.max_record_bytes, recorded)
        times = {name: ms for m in recorded for name, ms in m.operators.items()}
        specs = zip(self._plan.names, self._plan.specs, self._engine.operators, strict=True)
        for name, spec, operator in specs:
            restore_times(name, operator, spec.in_ports, times)
            operator.resumed()
        if any(m.version for m in recorded) and not self._replay:
            self.feed.note_start()
        self.uncommitted_records = 0
        self._memory = StoreMemory(self.stores.values(), self.requests, self._rows_of_record)

    def _open_operator(self, index: int, spec: OperatorSpec) -> Operator:
        ctx = NodeContext(
            self._plan.names[index],
            index,
            self.id,
            self._time,
            self.stores,
            self.failures,
            self.dropped,
            self.requests,
            has_consumers=bool(self._plan.children[index]),
            external_calls=self._external_calls,
            needs=self._plan.needed(index) if self.options.columns == "auto" else None,
        )
        if isinstance(spec, SinkSpec):
            topic = spec.topic_name(self.application_id)
            return SinkOperator(
                ctx,
                spec,
                topic,
                self._outputs,
                self._partition_counts.get(topic),
                self.options.policies.max_record_bytes,
                self._watermark_emitter(spec, topic),
            )
        self._contexts.append(ctx)
        return spec.open(ctx)

    def _watermark_emitter(self, spec: SinkSpec, topic: str) -> WatermarkEmitter | None:
        if not spec.uses_watermark:
            return None
        kind, count = emitter_kind(self._source_specs.get(topic)), self._partition_counts[topic]
        hold_ms = hold_ms_of(self._topology)
        return kind(self._time, topic, count, self.id.partition, self._task_count, self._watermarks, hold_ms)

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp so far."""
        return self._event_time.stream_time_ms

    @property
    def changelog_ends(self) -> dict[str, int]:
        """Where each store's changelog ended at the last commit."""
        return self._commits.changelog_ends

    def changelog_end(self, store: str) -> int | None:
        """The position of one store; before its first commit, where its restore ended. ``None``: unknown."""
        end = self.changelog_ends.get(store)
        if end is None and (raw := self.backend.position(store)) is not None:
            end = decode_position(raw).changelog_offset
        return end

    @property
    def epochs(self) -> dict[str, int]:
        """The epochs of the leaders that had each store's changelog up to there, by the last commit or a later look."""
        return self._commits.epochs

    @property
    def watermark_ms(self) -> int:
        """The watermark: no record with a timestamp up to it is expected."""
        return self._event_time.watermark_ms

    # -- input ---------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk, next_offset: int, now_ms: int = 0) -> None:
        """Buffer records of one input partition, in offset order; ``next_offset``: the next offset after them."""
        self._lifecycle.enter("add")
        self._commits.note_read(chunk)
        source = self._source_specs[chunk.topic]
        chunk, unmade = with_event_times(chunk, source)
        # records that this application wrote may have future timestamps: its inputs were checked on arrival
        clock_ms = now_ms if self.options.live and not source.internal else None
        before_ms, began_ms = self._partition_time_ms[chunk.topic], self._began_ms[chunk.topic]
        policies = self._policies[chunk.topic]
        if clock_ms is not None and policies.timestamp != "fail" and began_ms == NO_TIME and before_ms <= 0:
            began_ms = self._began_ms[chunk.topic] = clock_ms
        checked, time, wrong = check_timestamps(chunk, before_ms, policies, clock_ms, began_ms)
        self._partition_time_ms[chunk.topic] = time
        if checked is not chunk and policies.timestamp == "clamp":
            self._report_clamped(chunk, checked)
        if source.watermark is not None or source.waits_for_writers:
            checked, unstated = with_marks(checked, source, wrong)
            unmade |= unstated
            if self._bootstrap.note_announcements(checked):
                self.feed.hold_back(chunk.topic, False)
        if policies.timestamp != "clamp":
            wrong = {**wrong, **unmade}
        self._input.reject(TopicPartition(chunk.topic, chunk.partition), wrong)
        self.feed.add(checked, next_offset)

    def _report_clamped(self, given: Chunk, checked: Chunk) -> None:
        changed = int(np.count_nonzero(np.asarray(given.times) != np.asarray(checked.times)))
        partition = TopicPartition(given.topic, given.partition)
        self.options.events.emit(TimestampsClamped(self.id, partition, changed))

    def process(self, now_ms: int = 0, max_records: int | None = None) -> int:
        """Run one batch; returns how many input records it took (0: nothing to do now)."""
        self._lifecycle.enter("process")
        most = max_records or self.options.batch_max_records
        if self._plan.reads_wall_time and not self._replay and any(map(self.feed.buffered, self.topics)):
            self._clock.read(now_ms)
        runs = self.feed.take(most, now_ms)
        while not runs and self._replay_scripted():
            runs = self.feed.take(most, now_ms)
        if not runs:
            self._announce()
            return 0
        count = self._input.set(runs)
        self.heavy_keys.see(runs)
        batches = self._input.batches(self.failures)
        self._event_time.advance(runs)
        self._engine.run(batches, count)
        self._write_dead_letters()
        self.uncommitted_records += count
        self._memory.processed(count, self.cache_max_bytes)
        return count

    def _announce(self) -> None:
        """Announce that this task has caught up, to tasks that read its output as a bootstrap."""
        if self._announced or not self.feed.at_end:
            return
        self._announced = True
        for spec in self._plan.specs:
            if isinstance(spec, SinkSpec) and spec.topic in self._announces:
                topic = spec.topic_name(self.application_id)
                count = self._partition_counts[topic]
                mark = WatermarkMark(self.id.partition, self._task_count, NO_TIME, False, True)
                at_ms = max(self.stream_time_ms, 0)
                self._outputs.append(mark_output(topic, mark, count, at_ms))
                self.uncommitted_records += 1

    def _replay_scripted(self) -> bool:
        """Replay: apply the journal's next entry if its range is done."""
        entry = self.feed.next_scripted()
        if isinstance(entry, journal.ClockFiring):
            self._fire_clock(entry.before_ms, entry.now_ms)
        return entry is not None

    # -- clock ---------------------------------------------------------------------------------------------------

    def punctuate(self, now_ms: int) -> bool:
        """Pass a reading of the clock to wall-clock timers and idle sources; returns whether any was due. Firings are
        journaled."""
        self._lifecycle.enter("punctuate")
        return self._clock.punctuate(now_ms)

    def replay_clock(self, before_ms: int, now_ms: int) -> bool:
        """Repeat a journaled reading, which may make the last source idle; ``False`` if nothing here read the clock."""
        self._lifecycle.enter("punctuate")
        if asked := self._clock.asked:
            self._fire_clock(before_ms, now_ms)
        return asked

    def _fire_clock(self, before_ms: int, now_ms: int) -> None:
        self._input.set([])
        for topic in self._watermarks.read_clock(now_ms):
            self.options.events.emit(SourceIdle(self.id, topic))
        self._time.wall_ms = now_ms
        self._event_time.begin_batch()
        self._engine.punctuate(now_ms, before_ms)
        self._write_dead_letters()
        self._clock.wall_ms = now_ms
        self.uncommitted_records += 1

    # -- output and commit ---------------------------------------------------------------------------------------

    def take_outputs(self) -> list[Output]:
        """Return what sinks got since the last call, in order; adjacent outputs to one topic are merged."""
        self._lifecycle.enter("take_outputs")
        outputs = coalesced(self._outputs)
        self._outputs.clear()
        return outputs

    def give_back_outputs(self, outputs: Sequence[Output]) -> None:
        """Keep outputs that could not be sent: they come first at the next ``take_outputs``."""
        self._lifecycle.enter("take_outputs")
        self._outputs[:0] = outputs

    def causes(self, output: Output) -> list[tuple[TopicPartition, int] | None]:
        """Partition and offset of the input record behind each record of an output of the last batch; ``None`` for
        records that a timer or a commit emitted."""
        if output.order is None:
            return [None] * len(output.keys)
        origins = (self._input.locate(order // self._plan.stride) for order in output.order)
        return [None if o is None else (o.partition, o.offset) for o in origins]

    def _write_dead_letters(self) -> None:
        letters = self.failures.take_letters()
        if letters:
            topic = self.options.policies.dead_letter_topic
            assert topic is not None
            self._outputs.append(dead_letter_output(topic, letters, self.stream_time_ms))

    def prepare_commit(self, now_ms: int = 0) -> CommitWork:
        """Emit what is held for commits (take the outputs once more after this), and collect the writes. ``now_ms``
        dates the journal record, so that the journal's retention counts from when it was written. Returns the permit
        for ``offsets``, ``committed`` and ``abandon_commit``."""
        self._lifecycle.enter("prepare_commit")
        self._input.set([])
        self._engine.flush()
        self._write_dead_letters()
        cuts = () if self._replay else self.feed.cuts
        work = self._commits.collect(self.stores.values(), cuts, self.feed.positions(), now_ms)
        self._lifecycle.leave("prepare_commit", work)
        return work

    def offsets(self, work: CommitWork, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The input positions to commit. ``ends``: offset after the last record written to each changelog and journal
        partition in this commit."""
        self._lifecycle.enter("offsets", work)
        self._commits.note_ends(work, ends)
        operators = saved_times(self._plan.names, self._engine.operators)
        out: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic, offset in work.positions.items():
            began, before = self._start[topic]
            noted = CommitMetadata(
                version=commit_metadata.VERSION,
                stream_time_ms=self.stream_time_ms,
                partition_time_ms=self._event_time.consumed_ms[topic],
                wall_ms=self._clock.wall_ms,
                operators=operators,
                changelogs=self.changelog_ends,
                epochs=self.epochs,
                journal=self._commits.journal_end,
                watermarks=self._watermarks.saved(),
                caught_up=self._bootstrap.done,
                caught_up_writers=self._bootstrap.caught_up_writers,
                first=before.first if before.version else began,
                form=self._source_specs[topic].form,
                began_ms=self._began_ms[topic],
                topic_id=self.options.topic_ids.get(topic, ""),
                read_up_to=work.read_up_to.get(topic),
                owner=self.options.owner,
            )
            self._start[topic] = (offset, noted)
            out[TopicPartition(topic, self.id.partition)] = asked = OffsetAndMetadata(
                offset, commit_metadata.encode(noted)
            )
            self.own_positions.asked(topic, asked)
        return out

    def committed(self, work: CommitWork, positions: Mapping[str, bytes]) -> None:
        """The commit has taken place: write the stores. ``positions``: encoded, by store."""
        self._lifecycle.enter("committed", work)
        self.own_positions.committed()
        if writes := store_writes(work, self.stores, positions):
            self.backend.commit(writes)
        self.committed_positions = {TopicPartition(t, self.id.partition): o for t, o in work.positions.items()}
        share = self.cache_max_bytes // max(len(self.stores), 1)
        for state in self.stores.values():
            state.committed()
            state.trim(share)
        self.feed.cuts.clear()
        self._external_calls.noted_bytes = 0
        self.requests.commit = False
        self.uncommitted_records = 0
        self._lifecycle.leave("committed")

    def abandon_commit(self, work: CommitWork) -> None:
        """The commit has not taken place, and nothing is rolled back: continue, and commit this work with the next
        one."""
        self._lifecycle.enter("abandon_commit", work)
        self._lifecycle.leave("abandon_commit")

    def discard(self, start: Mapping[str, tuple[int, CommitMetadata]]) -> None:
        """Drop everything since the last commit, including buffered input; continue from ``start``."""
        self._lifecycle.enter("discard")
        for state in self.stores.values():
            state.discard()
        self._outputs.clear()
        self.failures.take_letters()
        self._start = dict(start)
        self.own_positions = OwnPositions(start)
        self._begin()
        self._lifecycle.leave("discard")

    def measure_caches(self) -> None:
        """Measure the memory of the stores' entries, for readers in other threads."""
        self.cached_bytes = {name: state.size_bytes() for name, state in self.stores.items()}

    def retire(self) -> None:
        """Refuse all further calls. The owner of the stores closes them."""
        self._lifecycle.enter("close")
        self._lifecycle.leave("close")

    def close(self) -> None:
        """Refuse all further calls, and close the stores."""
        self.retire()
        self.backend.close()

    @property
    def state(self) -> TaskState:
        """The task's state in its life cycle."""
        return self._lifecycle.state

    def validate(self) -> None:
        """Raise ``AssertionError`` if the task's state contradicts itself. For tests, after every call."""
        assert self._lifecycle.has_permit == (self.state is TaskState.PREPARED), "a permit is out without a commit"
        reached = self.feed.positions()
        for tp, offset in self.committed_positions.items():
            assert reached[tp.topic] >= offset, f"{tp} is before its own commit"
        if self.uncommitted_records == 0:
            dirty = [name for name, state in self.stores.items() if state.uncommitted_bytes()]
            assert not dirty, f"stores {dirty} have writes, and there is nothing to commit"
            assert not self._outputs, "there are outputs, and nothing to commit"

"""A worker on real Kafka as the runner of cases: one application per case, whose input comes entry by entry."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from types import TracebackType

from penstock.state.errors import PenstockError, RetriableError
from penstock.state.log import Record, TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import TopicSpec
from penstock.streams.task.error_policies import Policies
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.conformance.case_format import Case
from tests.conformance.scenario import Clock, Played, Restart, Scenario, Setting, dropped_count
from tests.conformance.stores import records_in

IDLE_MAX_S = 120.0
CLOCK_STEP_MAX_S = 30.0
_ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""Topics that keep everything and refuse no time: results may be as late as the end of time."""


class WorkerPlayer:
    """Plays scenarios with a worker on a running cluster. ``folder`` takes the state. Every record is written when what
    the one before it caused is committed, so that outputs can be attributed to entries."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.application_id = ""
        """Of the scenario that was played last."""
        self.policies = Policies(future_timestamp_max_ms=1 << 53)

    def setting(self, case: Case) -> Setting:
        """Topics of the case's own, at the present."""
        self.application_id = f"conform-{uuid.uuid4().hex[:12]}"
        return Setting(f"{self.application_id}.", time.time_ns() // 1_000_000)

    def __call__(self, scenario: Scenario) -> Played:
        """Play; an error that ends the worker is part of the result."""
        with _Application(self, scenario) as application:
            return application.play()


class _Application:
    """The worker of one scenario, and the clients around it."""

    def __init__(self, player: WorkerPlayer, scenario: Scenario) -> None:
        self._player = player
        self._scenario = scenario
        self._topology = scenario.topology
        self._sources = self._topology.source_topics(player.application_id)
        self._played = Played(outputs={sink: [] for sink in scenario.sinks}, headers={s: [] for s in scenario.sinks})
        servers = player.bootstrap_servers
        admin = KafkaAdmin(admin_config(servers, {}))
        topics = [*scenario.inputs, *scenario.sinks.values()]
        admin.create_topics([TopicSpec(t, 1, 1, _ANY_TIME) for t in dict.fromkeys(topics)])
        self._producer = KafkaProducer(producer_config(servers, {}))
        self._reader = KafkaConsumer(consumer_config(servers, f"{player.application_id}-reader", {}))
        # Asked on a connection without fetches, behind which questions would wait, and for all that is written: a
        # commit is answered before its markers are everywhere, so that what is committed may seem to end too early.
        asking = {
            **consumer_config(servers, f"{player.application_id}-call_executor", {}),
            "isolation.level": "read_uncommitted",
        }
        self._asker = KafkaConsumer(asking)
        self._places = {TopicPartition(topic, 0): sink for sink, topic in scenario.sinks.items()}
        self._read = dict.fromkeys(self._places, 0)
        self._reader.assign_at(dict(self._read))
        self._worker = self._start()
        self._began_s = time.monotonic()

    def _start(self) -> Worker:
        player = self._player
        settings = WorkerSettings(
            application_id=player.application_id,
            bootstrap_servers=player.bootstrap_servers,
            state_dir=str(player.folder / player.application_id),
            guarantee="exactly_once",
            commit_interval_ms=10,
            policies=player.policies,
        )
        deadline = time.monotonic() + IDLE_MAX_S
        while True:
            try:
                return Worker(self._topology, settings).start()
            except RetriableError:  # a young cluster is slow to answer, and a case is not to fail for that
                if time.monotonic() > deadline:
                    raise

    def __enter__(self) -> _Application:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._producer.close()
        self._reader.close()
        self._asker.close()
        if self._worker.running:
            self._worker.stop()

    def play(self) -> Played:
        """All steps, or those before an error."""
        steps = self._scenario.steps
        for step, following in zip(steps, (*steps[1:], None), strict=True):
            try:
                if isinstance(step, Restart):
                    self._worker.stop()
                    self._worker = self._start()
                elif isinstance(step, Clock):
                    self._sleep_until(step.now_ms)
                else:
                    self._write(step.topic, step.record)
                self._settle()
            except PenstockError as exc:
                self._played.error = (step.index + 1, f"{type(exc).__name__}: {exc}")
                break
            self._take(step.index)
            if following is None or following.index > step.index:
                self._look(step.index + 1)
        return self._played

    def _sleep_until(self, now_ms: int) -> None:
        """A case's clock begins at 0 with the worker; the real one is waited for."""
        left_s = now_ms / 1000 - (time.monotonic() - self._began_s)
        if left_s > CLOCK_STEP_MAX_S:
            raise RetriableError(f"the case sets the clock {left_s:.0f} s ahead; play it in the test driver")
        time.sleep(max(left_s, 0.0))

    def _write(self, topic: str, record: Record) -> None:
        source = self._topology.source(self._sources[topic][1])
        key = None if record.key is None else source.key_serde.serialize(record.key)
        value = None if record.value is None else source.value_serde.serialize(record.value)
        self._producer.send(topic, [key], [value], [record.timestamp_ms], [record.headers], partition=0)
        self._producer.flush(IDLE_MAX_S)

    def _settle(self) -> None:
        """Wait until everything is read and committed, records of repartition topics too."""
        deadline = time.monotonic() + IDLE_MAX_S
        before: dict[TopicPartition, int] | None = None
        while time.monotonic() < deadline:
            if not self._worker.running:
                self._worker.stop()  # raises what it ended with
                raise RetriableError("the worker has stopped")
            ends = self._ends()
            if self._idle(ends):
                if ends == before:
                    return
                before = ends
            else:
                before = None
            time.sleep(0.005)
        raise RetriableError(f"the worker is not done after {IDLE_MAX_S} s")

    def _ends(self) -> dict[TopicPartition, int]:
        return {tp: self._asker.watermarks(tp)[1] for tp in (TopicPartition(t, 0) for t in self._sources)}

    def _idle(self, ends: dict[TopicPartition, int]) -> bool:
        runtime = self._worker.runtime
        if runtime is None or runtime.restoring or len(runtime.tasks) < len(self._topology.subtopologies):
            return False
        tasks = list(runtime.tasks.values())
        if any(t.uncommitted_records for t in tasks):
            return False
        return all(t.feed.positions()[topic] >= ends[TopicPartition(topic, 0)] for t in tasks for topic in t.topics)

    def _take(self, index: int) -> None:
        """Read what came to the sinks; it belongs to this entry."""
        ends = {tp: self._asker.watermarks(tp)[1] for tp in self._places}
        deadline = time.monotonic() + IDLE_MAX_S
        while any(self._read[tp] < end for tp, end in ends.items()):
            if time.monotonic() > deadline:
                raise RetriableError(f"the sinks could not be read to {ends} in {IDLE_MAX_S} s")
            fetched = self._reader.poll(10_000, 0.05)
            for chunk in fetched.chunks:
                tp = TopicPartition(chunk.topic, chunk.partition)
                self._read[tp] = chunk.offsets[-1] + 1
                self._add(self._places[tp], chunk, index)
            for tp, end in fetched.ends.items():
                self._read[tp] = max(self._read[tp], end)

    def _add(self, sink: str, chunk: Chunk, index: int) -> None:
        headers = [()] * len(chunk) if chunk.headers is None else chunk.headers
        columns = zip(chunk.keys, chunk.values, chunk.timestamps, headers, strict=True)
        for row in decoded(self._scenario, chunk.topic, [Record(*c) for c in columns]):
            self._played.outputs[sink].append((index, self._scenario.row(sink, row)))
            self._played.headers[sink].append(row.headers)

    def _look(self, after: int) -> None:
        runtime = self._worker.runtime
        tasks = [] if runtime is None else list(runtime.tasks.values())
        for n, store in self._scenario.stores:
            if n == after:
                found = [r for task in tasks if store in task.stores for r in records_in(task.stores[store])]
                self._played.stores[n, store] = [self._scenario.row(f"table:{store}", r) for r in found]
        if after in self._scenario.counts:
            self._played.dropped[after] = sum(dropped_count(task.dropped) for task in tasks)


def decoded(scenario: Scenario, topic: str, rows: list[Record]) -> list[Record]:
    """Records of a sink's topic, read by the sink's serdes."""
    topology = scenario.topology
    sinks = [topology.sink(n) for sub in topology.subtopologies for n in sub.sinks]
    sink = next(s for s in sinks if s.topic == topic)

    def read(row: Record) -> Record:
        key = None if row.key is None else sink.key_serde.deserialize(row.key)
        value = None if row.value is None else sink.value_serde.deserialize(row.value)
        return Record(key, value, row.timestamp_ms, row.headers)

    return [read(row) for row in rows]

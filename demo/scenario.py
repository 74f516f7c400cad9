"""The demo, step by step. Every step leaves what it measured in ``findings``, and its checks in the report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from demo.answers import check_answer, read_answer, uncounted
from demo.draining import Rest, Watch
from demo.findings import Check, Compacted, Compared, Drain, Findings, Report
from demo.log import DemoLog
from demo.pipelines import KEPT_FOR_EVER, PARTITIONS, Pipeline
from demo.restored import restore
from demo.workers import SESSION_TIMEOUT_MS, Fleet, WorkerProcess
from penstock import __version__
from penstock.state.errors import PenstockError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.group_view import GroupView
from penstock.streams.spark.compaction import compact
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.verification import verify
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.graph.topology import Topology

WORKERS = ("worker-a", "worker-b")
SHARED_S = 300.0
Say = Callable[[str], None]


class Scenario:
    """One run on one cluster. ``folder``: everything that it leaves; ``say`` is told what begins."""

    def __init__(self, bootstrap_servers: str, folder: Path, pipelines: list[Pipeline], say: Say) -> None:
        self.log = DemoLog(bootstrap_servers)
        self.folder = folder
        self.pipelines = pipelines
        self.say = say
        self.report = Report(_machine())
        self._built = {p.name: load_topology(p.topology) for p in pipelines}
        self._found: dict[str, Findings] = {}
        self._survivor: dict[str, str] = {}

    def run(self) -> Report:
        """All of it. Raises what makes a step impossible; what is only wrong is a failed check."""
        with Fleet(self.folder, self.log.bootstrap_servers) as fleet:
            for p in self.pipelines:
                with self._step(f"{p.title}: making topics and {p.parts()[0]:,} records"):
                    self._load(p)
            for p in self.pipelines:
                with self._step(f"{p.title}: two workers, exactly-once, one of them killed halfway"):
                    self._drain_with_kill(fleet, p)
            with self._step("Spark: starting"):
                spark_running = self._start_spark()
            with spark_running:
                for p in self.pipelines:
                    with self._step(f"{p.title}: Spark compacts the changelogs"):
                        self._compact(p)
                for p in self.pipelines:
                    with self._step(f"{p.title}: more records, so that the changelogs have a tail"):
                        self._tail(fleet, p)
                for p in self.pipelines:
                    with self._step(f"{p.title}: state deleted, and restored"):
                        self._restore(fleet, p)
                for p in self.pipelines:
                    with self._step(f"{p.title}: Spark replays the range and compares"):
                        self._verify(p)
        return self.report

    def _start_spark(self) -> contextlib.ExitStack:
        """A session to be closed. What Java prints, now and later, goes to a file. Spark would take Ctrl-C for itself and
        make a failed job of it; here it ends the demo."""
        on_interrupt = signal.getsignal(signal.SIGINT)
        with contextlib.ExitStack() as stack, errors_into(self.folder / "logs" / "spark.log"):
            stack.enter_context(spark_session(_SPARK))
            signal.signal(signal.SIGINT, on_interrupt)
            return stack.pop_all()

    # -- steps ---------------------------------------------------------------------------------------------------

    def _load(self, p: Pipeline) -> None:
        self.log.create(PARTITIONS, {p.stream: KEPT_FOR_EVER, p.output: KEPT_FOR_EVER, **p.tables})
        first = _first_part(p)
        began = time.monotonic()
        written = self.log.fill(p.data.rows(0, first))
        topology = self._built[p.name]
        found = Findings(
            p.name,
            p.title,
            p.what,
            records=p.data.size,
            table_rows=written - first,
            loaded_s=time.monotonic() - began,
            describe=topology.describe(),
            mermaid=topology.mermaid(),
        )
        self._found[p.name] = found
        self.report.pipelines.append(found)

    def _drain_with_kill(self, fleet: Fleet, p: Pipeline) -> None:
        found, stop = self._found[p.name], p.parts()[0]
        first = _first_part(p)
        workers = [fleet.start(p.topology, p.application_id, name, **p.settings) for name in WORKERS]
        rest = None
        if first < stop:
            self._until_shared(p, workers)
            rest = self._halved(p, first, stop)
        watch = self._watch(p)
        found.drain = drain = watch.run(workers, kill=True, rest=rest)
        kill = drain.kill
        left = 0 if kill is None else sum(kill.left.values())
        self._check(
            f"{p.title}: a worker killed halfway",
            left > 0,
            "no worker was killed before the end"
            if kill is None
            else f"{kill.worker} at {kill.done:,} of {stop:,} records, with {left:,} before it",
        )
        takeover = drain.takeover_s
        self._check(
            f"{p.title}: the other worker took over",
            kill is not None and kill.all_moved,
            "not seen"
            if kill is None or takeover is None
            else f"{len(kill.left)} partitions; those of the stream after {takeover:.1f} s (session timeout "
            f"{SESSION_TIMEOUT_MS // 1000} s)",
        )
        survivor = next(w for w in workers if kill is None or w.name != kill.worker)
        self._survivor[p.name] = survivor.name
        for worker in workers if kill is None else [survivor]:
            self._stop(p, worker)
        self._check_answer(p, stop, "after the kill")

    def _halved(self, p: Pipeline, first: int, stop: int) -> Rest:
        """Write up to the half now; what comes at the kill."""
        half = (first + stop) // 2
        in_hand = half + (stop - half) // 5
        self.log.fill(p.data.rows(first, half))
        return Rest(
            lambda: self.log.fill(p.data.rows(half, in_hand)), lambda: self.log.fill(p.data.rows(in_hand, stop))
        )

    def _until_shared(self, p: Pipeline, workers: list[WorkerProcess]) -> None:
        """Wait until each worker owns partitions of the stream."""
        view = GroupView(self.log.bootstrap_servers, p.application_id)
        began = time.monotonic()
        try:
            while {owner for tp, owner in view.owners().items() if tp.topic == p.stream} != set(WORKERS):
                for worker in workers:
                    worker.require_alive()
                if time.monotonic() - began > SHARED_S:
                    raise PenstockError(f"{p.title}: the workers share nothing after {SHARED_S:.0f} s; see their logs")
                time.sleep(0.1)
        finally:
            view.close()

    def _compact(self, p: Pipeline) -> None:
        result = compact(
            p.topology,
            application_id=p.application_id,
            connection=Connection(self.log.bootstrap_servers),
            repository=str(self._repository),
        )
        manifests = [s.manifest for s in result.stores]
        done = Compacted(
            result.seconds, len(manifests), sum(m.entries for m in manifests), sum(m.size_bytes for m in manifests)
        )
        self._found[p.name].compacted = done
        self._check(
            f"{p.title}: every store partition compacted",
            done.stores == len(self._built[p.name].stores) * PARTITIONS and result.savepoint is not None,
            f"{done.stores} snapshots, {done.entries:,} entries, {done.size_bytes:,} bytes; savepoint {result.savepoint}",
        )

    def _tail(self, fleet: Fleet, p: Pipeline) -> None:
        start, stop, _ = p.parts()
        self.log.fill(p.data.rows(start, stop))
        watch = self._watch(p)
        worker = fleet.start(p.topology, p.application_id, self._survivor[p.name], **p.settings)
        drain = watch.run([worker], kill=False)
        self._found[p.name].tail_records = drain.records
        self._stop(p, worker)

    def _restore(self, fleet: Fleet, p: Pipeline) -> None:
        found, topology, name = self._found[p.name], self._built[p.name], self._survivor[p.name]
        settings: dict[str, Any] = fleet.settings(p.application_id, name, **p.settings)
        alone = WorkerSettings(**settings)
        fleet.forget_state(p.application_id, name)
        found.from_changelog = restore(topology, alone, PARTITIONS)
        _, start, stop = p.parts()
        self.log.fill(p.data.rows(start, stop))
        fleet.forget_state(p.application_id, name)
        snapshots = dataclasses.replace(alone, snapshots=str(self._repository))
        watch = self._watch(p)
        found.from_snapshot = done = restore(
            topology, snapshots, PARTITIONS, lambda worker: self._settle(watch.run([], kill=False))
        )
        self._check(
            f"{p.title}: state restored from snapshot and tail",
            done.from_snapshots > 0 and 0 < done.records < found.from_changelog.records,
            f"{done.from_snapshots} of {done.stores} store partitions from snapshots, then {done.records:,} records in "
            f"{done.seconds:.2f} s; from changelogs alone {found.from_changelog.records:,} in "
            f"{found.from_changelog.seconds:.2f} s",
        )
        self._check_answer(p, stop, "after the restored worker went on")

    def _settle(self, drain: Drain) -> None:
        """The restored worker has done the rest; nothing of that run is shown."""

    def _verify(self, p: Pipeline) -> None:
        found = self._found[p.name]
        result = verify(
            p.topology,
            application_id=p.application_id,
            connection=Connection(self.log.bootstrap_servers),
            output=str(self.folder / "replayed" / p.name),
        )
        found.replayed_records, found.replayed_s, found.cautions = result.records, result.seconds, result.cautions
        found.comparisons = [
            Compared(c.kind, c.name, c.mode, c.stream_rows, c.batch_rows, c.differences)
            for c in result.comparisons
            if c.stream_rows or c.batch_rows
        ]
        names = {(c.kind, c.name) for c in found.comparisons}
        self._check(
            f"{p.title}: the replay read every record",
            result.records >= p.data.size,
            f"{result.records:,} records of stream, tables and repartition topics in {result.seconds:.1f} s",
        )
        self._check(
            f"{p.title}: stream and batch are the same",
            result.same and {("topic", p.output), ("store", p.state)} <= names,
            f"{sum(c.differences for c in result.comparisons)} differences in {len(names)} topics and stores"
            + "".join(f"; {c.name}: {c.first}" for c in result.comparisons if c.differences),
        )

    # -- parts of steps ------------------------------------------------------------------------------------------

    @property
    def _repository(self) -> Path:
        return self.folder / "snapshots"

    def _watch(self, p: Pipeline) -> Watch:
        view = GroupView(self.log.bootstrap_servers, p.application_id)
        internal = [
            TopicPartition(topic, partition)
            for topic in repartition_topics(self._built[p.name], p.application_id)
            for partition in range(PARTITIONS)
        ]
        return Watch(view, self.log.partitions([p.stream]), internal)

    def _stop(self, p: Pipeline, worker: WorkerProcess) -> None:
        took = worker.stop()
        view = GroupView(self.log.bootstrap_servers, p.application_id)
        try:
            owners = view.owners()
        finally:
            view.close()
        kept = sum(owner == worker.name for owner in owners.values())
        said = f"after {took:.1f} s it has {kept} partitions"
        self._check(f"{p.title}: {worker.name} left on SIGTERM", kept == 0, said)

    def _check_answer(self, p: Pipeline, stop: int, when: str) -> None:
        expected, found = p.data.answer(stop), read_answer(self.log.read(p.output), p.updates_of)
        mine = self._found[p.name]
        mine.answer, mine.output_records, mine.uncounted = found.last, found.records, uncounted(expected, found)
        self.report.checks += check_answer(p.title, when, expected, found)

    def _check(self, name: str, passed: bool, said: str) -> None:
        self.report.checks.append(Check(name, passed, said))

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.say(name)
        began = time.monotonic()
        yield
        self.report.steps.append((name, time.monotonic() - began))


@contextlib.contextmanager
def errors_into(path: Path) -> Iterator[None]:
    """Let the error stream of this process, and of processes started meanwhile, be a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def repartition_topics(topology: Topology, application_id: str) -> list[str]:
    """Those that the application makes."""
    sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
    return [source.topic_name(application_id) for source in sources if source.internal]


_SPARK = SparkSettings(
    conf={
        "spark.sql.shuffle.partitions": "4",
        # Spark would measure a batch again after each row, headers and all, which takes the square of a batch's rows; the
        # demo's records are small, so that counting rows is limit enough.
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    }
)


def _first_part(p: Pipeline) -> int:
    """How many records are there before the workers start: all before the kill, of a small input a tenth."""
    stop = p.parts()[0]
    return stop // 10 if p.small else stop


def _machine() -> list[tuple[str, str]]:
    return [
        ("processors", str(os.cpu_count())),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("Penstock", __version__),
        *((name, version(name)) for name in ("confluent-kafka", "rocksdict", "pyspark")),
    ]

"""Facts and measurements as Prometheus metrics, and gauges that are read on each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Protocol, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.events import facts as f
from penstock.streams.events import measurements as m
from penstock.streams.events import metric_names as names
from penstock.streams.events.measurements import CommitStep, Metric
from penstock.streams.events.metric_names import MetricName

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Collects(Protocol):
    """A source of metric families: a registry, or a part of one."""

    def collect(self) -> Iterable[Family]: ...


class MetricsEvents:
    """Counts what is reported. ``look`` returns the metrics that are read on each request."""

    def __init__(
        self,
        look: Callable[[], Iterable[Metric]],
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        counted = [n for n in names.ALL if n not in _LOOKED_AT]
        self._counters = {n.name: _counter(n, registry) for n in counted if n.kind == "counter"}
        self._gauges = {n.name: _gauge(n, registry) for n in counted if n.kind == "gauge"}
        self._histograms = {n.name: _histogram(n, registry) for n in counted if n.kind == "histogram"}
        self._labelled: dict[tuple[str, tuple[str, ...]], Counter] = {}
        """The counters by labels: the client library's own lookup is slow."""
        self._of_tasks: dict[str, set[tuple[Counter | Gauge, tuple[str, ...]]]] = {}
        self._step_s = 0.0
        self._gauges[names.BROKERS.name].set(1)
        ProcessCollector(registry=registry)
        registry.register(_Looked(look))

    # -- facts ---------------------------------------------------------------------------------------------------

    def emit(self, fact: f.Fact) -> None:
        """Count a fact."""
        self._add(names.FACTS, (type(fact).__name__,))
        if isinstance(fact, f.CommitFact):
            self._commit(fact)
            return
        match fact:
            case f.WorkerStarted():
                compiled = "yes" if fact.compiled else "no"
                info = self._gauges[names.INFO.name].labels(fact.version, fact.application, fact.guarantee, compiled)
                info.set(1)
            case f.TopologyChanged():
                pass  # counted as a fact
            case f.WaitingForBrokers() | f.BrokersFound() | f.ClusterFound():
                self._gauges[names.BROKERS.name].set(0 if isinstance(fact, f.WaitingForBrokers) else 1)
            case f.TasksAssigned() | f.TasksRevoked() | f.TasksLost() | f.Rejoining() | f.Fenced():
                self._rebalanced(fact)
            case f.TaskReopened():
                self._add(names.REOPENED)
            case f.RestoreStarted() | f.RestoreProgressed() | f.RestoreFinished():
                self._restored(fact)
            case f.StoreQuarantined():
                self._add(names.QUARANTINED)
            case f.SnapshotUsed():
                self._add(names.SNAPSHOTS, ("used",))
            case f.SnapshotRefused():
                self._add(names.SNAPSHOTS, ("refused",))
            case f.RecordSkipped():
                self._add(names.BAD, (str(fact.task), fact.kind, "skip"))
            case f.RecordDeadLettered():
                self._add(names.BAD, (str(fact.task), fact.kind, "dead_letter"))
            case f.RecordHeld():
                self._add(names.BAD, (str(fact.task), fact.kind, "hold_key"))
            case f.TimestampsClamped():
                self._add(names.CLAMPED, (fact.partition.topic,), fact.records)
            case f.PartitionPaused():
                self._add(names.PAUSES, (fact.partition.topic,))
            case f.PartitionResumed():
                self._add(names.PAUSED_TIME, (fact.partition.topic,), fact.paused_s)
            case (
                f.WorkerStopped()
                | f.Waiting()
                | f.WaitEnded()
                | f.ProcessEnded()
                | f.TaskRunning()
                | f.TaskCaughtUp()
                | f.FallingBehind()
                | f.LockAwaited()
                | f.RestoreRetried()
                | f.RestoreCancelled()
                | f.RecordFailed()
                | f.NullsDropped()
                | f.ColumnsMissing()
                | f.SourceIdle()
                | f.PurgeFailed()
            ):
                pass  # counted above, or read on request
            case _:
                assert_never(fact)

    def _rebalanced(self, fact: f.TasksAssigned | f.TasksRevoked | f.TasksLost | f.Rejoining | f.Fenced) -> None:
        match fact:
            case f.TasksAssigned():
                self._add(names.REBALANCES, ("assigned",))
            case f.TasksRevoked():
                self._add(names.REBALANCES, ("revoked",))
                self._forget(fact.tasks)
            case f.TasksLost():
                self._add(names.REBALANCES, ("lost",))
                self._forget(fact.tasks)
            case f.Rejoining():
                self._add(names.REBALANCES, ("rejoined",))
            case f.Fenced():
                self._add(names.REBALANCES, ("fenced",))
            case _:
                assert_never(fact)

    def _restored(self, fact: f.RestoreStarted | f.RestoreProgressed | f.RestoreFinished) -> None:
        of = (str(fact.task), fact.store)
        match fact:
            case f.RestoreStarted():
                self._remaining(fact.task, fact.store, fact.to_offset - fact.from_offset)
            case f.RestoreProgressed():
                self._remaining(fact.task, fact.store, fact.to_offset - fact.offset)
            case f.RestoreFinished():
                self._remaining(fact.task, fact.store, 0)
                self._of_task(names.RESTORED, of).inc(fact.records)
                self._histograms[names.RESTORE_TIME.name].observe(fact.seconds)
            case _:
                assert_never(fact)

    def _remaining(self, task: TaskId, store: str, offsets: int) -> None:
        gauge = self._gauges[names.REMAINING.name]
        of = (str(task), store)
        self._of_tasks.setdefault(of[0], set()).add((gauge, of))
        gauge.labels(*of).set(offsets)

    def _commit(self, fact: f.CommitFact) -> None:
        match fact:
            case f.Committed():
                self._add(names.COMMITS)
                self._add(names.COMMITTED, (), fact.records)
                self._histograms[names.COMMIT_TIME.name].observe(fact.seconds)
                self._gauges[names.LAST_COMMIT.name].set(self._wall_s())
            case f.CommitLate():
                self._add(names.LATE)
            case f.CommitAborted():
                self._add(names.ABORTS, (type(fact.cause).__name__,))
            case f.CommitDelayed():
                self._add(names.DELAYS, (type(fact.cause).__name__,))
            case f.ForeignWritesReplaced():
                self._of_task(names.FOREIGN, (str(fact.task), fact.store)).inc(fact.keys)
            case f.TransactionInDoubt():
                self._add(names.IN_DOUBT, (fact.outcome,))
            case f.ProducerRetired():
                self._add(names.RETIRED, (type(fact.cause).__name__,))
            case f.AbortDelayed() | f.DeadWorkerFenced():
                pass
            case _:
                assert_never(fact)

    # -- measurements --------------------------------------------------------------------------------------------

    def measure(self, measurement: m.Measurement) -> None:
        """Count what a batch measured."""
        match measurement:
            case m.RecordsConsumed():
                self._add(names.CONSUMED, (measurement.topic,), measurement.records)
                self._add(names.CONSUMED_BYTES, (measurement.topic,), measurement.size_bytes)
            case m.RecordsProduced():
                self._add(names.PRODUCED, (measurement.topic,), measurement.records)
                self._add(names.PRODUCED_BYTES, (measurement.topic,), measurement.size_bytes)
            case m.BatchProcessed():
                self._of_task(names.PROCESSED, (str(measurement.task),)).inc(measurement.records)
                self._histograms[names.PROCESS_TIME.name].observe(measurement.seconds)
            case m.TaskPunctuated():
                self._of_task(names.PUNCTUATIONS, (str(measurement.task),)).inc()
                self._histograms[names.PUNCTUATE_TIME.name].observe(measurement.seconds)
            case m.RecordsVisible():
                self._histograms[names.E2E.name].observe(measurement.age_s)
            case _:
                assert_never(measurement)

    def step(self, step: CommitStep) -> None:
        """A step of a commit was done. Call it after each."""
        now_s = self._monotonic_s()
        if step == "flushed":
            self._histograms[names.FLUSH_TIME.name].observe(now_s - self._step_s)
        elif step == "stores_written":
            self._histograms[names.STORE_TIME.name].observe(now_s - self._step_s)
        self._step_s = now_s

    def restoring(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        """A restore goes on."""
        self._remaining(task, store, progress.offsets_total - progress.offsets_done)

    # -- parts ---------------------------------------------------------------------------------------------------

    def _add(self, name: MetricName, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        self._counter(name, labels).inc(amount)

    def _counter(self, name: MetricName, labels: tuple[str, ...]) -> Counter:
        key = (name.name, labels)
        found = self._labelled.get(key)
        if found is None:
            counter = self._counters[name.name]
            found = self._labelled[key] = counter.labels(*labels) if labels else counter
        return found

    def _of_task(self, name: MetricName, labels: tuple[str, ...]) -> Counter:
        """A counter whose first label is a task; it is removed with the task."""
        if (name.name, labels) not in self._labelled:
            self._of_tasks.setdefault(labels[0], set()).add((self._counters[name.name], labels))
        return self._counter(name, labels)

    def _forget(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            for metric, labels in self._of_tasks.pop(str(task), ()):
                metric.remove(*labels)
            self._labelled = {key: c for key, c in self._labelled.items() if str(task) not in key[1]}


_LOOKED_AT = {
    names.TASKS,
    names.LAG,
    names.BUFFERED,
    names.STREAM_TIME,
    names.WATERMARK,
    names.DROPPED,
    names.COUNTED,
    names.HELD,
    names.HEAVY,
    names.STATE_BYTES,
    names.CACHE_BYTES,
    names.CACHE_HITS,
    names.CACHE_MISSES,
    names.MEMORY_LIMIT,
    names.PROCESS_UP,
    names.RESTARTS,
}
"""Metrics that are read on each request; the last two by the supervisor."""


def _stem(name: MetricName) -> str:
    return name.name.removesuffix("_total")


def _counter(name: MetricName, registry: CollectorRegistry) -> Counter:
    return Counter(_stem(name), name.meaning, name.labels, registry=registry)


def _gauge(name: MetricName, registry: CollectorRegistry) -> Gauge:
    return Gauge(name.name, name.meaning, name.labels, registry=registry)


def _histogram(name: MetricName, registry: CollectorRegistry) -> Histogram:
    return Histogram(name.name, name.meaning, name.labels, registry=registry, buckets=name.buckets)


class _Looked:
    """A part of a registry whose metrics are read at each request."""

    def __init__(self, look: Callable[[], Iterable[Metric]]) -> None:
        self._look = look

    def describe(self) -> Iterable[Family]:
        """Empty: a registry would otherwise read the metrics as soon as this is registered."""
        return []

    def collect(self) -> Iterator[Family]:
        """The current metrics."""
        yield from families(self._look())


def families(metrics: Iterable[Metric]) -> Iterator[Family]:
    """Metrics that were read on request, grouped by name."""
    for name, some in groupby(sorted(metrics, key=lambda metric: metric.name), lambda metric: metric.name):
        known = names.BY_NAME[name]
        kind = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
        family = kind(_stem(known), known.meaning, labels=known.labels)
        for metric in some:
            family.add_metric([_text(metric.labels[label]) for label in known.labels], metric.value)
        yield family


def _text(value: str) -> str:
    """A valid label, whatever the name of a user's counter."""
    return value.encode(errors="backslashreplace").decode()


class _WithoutCreated:
    """The metrics without the creation times of counters."""

    def __init__(self, metrics: Collects) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for family in self._metrics.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


def exposition(metrics: Collects) -> bytes:
    """The metrics as Prometheus' text format 0.0.4."""
    return generate_latest(_WithoutCreated(metrics))


def listed(metrics: Collects) -> list[Metric]:
    """The metrics as values."""
    families_now = _WithoutCreated(metrics).collect()
    return [Metric(s.name, s.labels, s.value) for family in families_now for s in family.samples]

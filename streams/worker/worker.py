"""A worker: the run loop on real Kafka, RocksDB and clocks, as an object inside any Python process.

``Worker(topology, settings).start()`` runs it in a thread of its own; ``stop()`` commits, leaves the group and returns;
``with`` does both. ``run()`` is the same in the calling thread. The command ``penstock worker`` is a thin wrapper around
this.

This is the only place that wires the adapters to the core.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Self

from penstock.state.errors import RetriableError, SettingsError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory, TaskLock
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.snapshots.repository import SnapshotRepository, open_repository
from penstock.state.stores.durable_backend import OpenBackend
from penstock.streams.events.facts import ClusterFound
from penstock.streams.events.measurements import CommitStep, Metric
from penstock.streams.events.port import EventSink
from penstock.streams.kafka.native import choose
from penstock.streams.ports.log import Log, LogAdmin, LogConsumer
from penstock.streams.runtime.changelog_marks import marked_topics
from penstock.streams.runtime.commit_producer import CommitTimeouts
from penstock.streams.runtime.commit_protocol import Committer
from penstock.streams.runtime.fixed_fence import FencedPositions, FixedFence, fixed_id, refuse_moved
from penstock.streams.runtime.membership_lease import MembershipLease, lease_s
from penstock.streams.runtime.metadata_size import check_metadata_size
from penstock.streams.runtime.own_topics import changelog_topics
from penstock.streams.runtime.repartition_purging import Purger, purgeable_topics
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.runtime.topic_setup import (
    TopicLayout,
    check_application_id,
    check_guarantee,
    check_policies,
    existing_layout,
    fingerprint,
    prepare_topics,
)
from penstock.streams.runtime.topic_watch import TopicWatch, all_topic_ids
from penstock.streams.runtime.unread_internal_topics import check_unread_internal_topics
from penstock.streams.runtime.work_bounds import WorkBounds, consumer_within, producer_within
from penstock.streams.worker.abandoned_work import abandoned_transactions, client_name, owner_name
from penstock.streams.worker.broker_wait import BrokerWait, StoppedError
from penstock.streams.worker.failpoint_actions import arm_from
from penstock.streams.worker.fixed_worker_lock import (
    FixedWorkerPresence,
    check_job,
    check_may_run_fixed,
    check_no_fixed_workers,
    presence_group,
)
from penstock.streams.worker.kafka_log import KafkaLog
from penstock.streams.worker.known_topology import KnownTopology
from penstock.streams.worker.metrics_endpoint import MetricsEndpoint
from penstock.streams.worker.pooled_calls import PooledCallExecutor
from penstock.streams.worker.rare_collections import rare_collections
from penstock.streams.worker.restorer import Restorer
from penstock.streams.worker.runtime_options import runtime_options
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.spare_memory import SpareMemory, few_arenas, trim
from penstock.streams.worker.store_positions import store_position
from penstock.streams.worker.system_clock import SystemClock
from penstock.streams.worker.task_opener import TaskOpener
from penstock.streams.worker.traced_log import TracedConsumer, TracedLog
from penstock.streams.worker.worker_pages import WorkerStatus
from penstock.streams.worker.worker_reports import WorkerReports
from penstock.streams.worker.worker_slot import take_slot
from penstock.topologies.graph.topology import Topology

CHANGELOG_PURGE_INTERVAL_MS = 300_000
"""The interval at which brokers by default look for transactions that timed out."""

YOUNG_OBJECTS = {"balanced": 50_000, "low": 5_000}
"""While a worker runs, Python's garbage collector runs after this many new objects instead of 700. A scan of 50,000
takes 40 ms, of 5,000 four, and the polls of a worker that keeps up are small."""


class Worker:
    """Runs the tasks that its group, or ``partitions``, gives it: ``start()`` in a thread of its own, ``run()`` in the
    calling one. ``stop()`` commits, leaves the group and returns; ``with`` does both. ``settings``: those given, within
    their ``memory_max_bytes``.

    ``partitions``: run these partitions of every sub-topology, outside any group; ``None``: join the group. ``bounds``:
    only this part of them, until it is committed; ``job``: the member id of the job that keeps other workers away meanwhile
    (``check_job``). ``open_consumer``: records and
    membership come from another host (Faust) instead of a consumer of its own.
    ``open_log``: opens the log from the settings (``penstock.ports.Log``). ``open_backend``: opens the stores of a task
    (``penstock.ports.OpenBackend``); RocksDB without it. ``repository``: where snapshots are; without it, what
    ``settings.snapshots`` names.
    ``slot``: the one of the state folder's slots that it takes if it is free, so that a supervised process has its own
    number in its ``client.id``.
    ``on_progress(task, store, progress)`` is called from the restore thread; ``on_step(step)`` after each step of a
    commit. ``start``, ``run`` and ``stop`` raise the error that ended the start or the run.

    If brokers do not answer, the worker waits for as long as it takes, at the start and later; ``request_stop`` ends
    the wait.

    Facts are logged under ``penstock.…`` (``log_records``: including what may hold record contents), counted in
    ``metrics``, and passed to ``events``. ``endpoint`` already listens and serves this worker's pages from now on;
    without it, ``run`` opens one if ``metrics_port`` is set. ``run`` closes either.
    ``tracer_provider``: OpenTelemetry's, for spans of sampled records and their commits; without it, what the setting
    ``tracing`` says.
    """

    def __init__(
        self,
        topology: Any,
        settings: WorkerSettings,
        *,
        partitions: Sequence[int] | None = None,
        bounds: WorkBounds | None = None,
        job: str | None = None,
        on_progress: Callable[[TaskId, str, RestoreProgress], None] | None = None,
        on_step: Callable[[CommitStep], None] | None = None,
        open_consumer: Callable[[], LogConsumer] | None = None,
        open_log: Callable[[WorkerSettings, EventSink], Log] = KafkaLog,
        open_backend: OpenBackend | None = None,
        repository: SnapshotRepository | None = None,
        events: EventSink | None = None,
        log_records: bool = False,
        endpoint: MetricsEndpoint | None = None,
        slot: int = 0,
        tracer_provider: Any = None,
    ) -> None:
        self.topology: Topology = topology if isinstance(topology, Topology) else topology.build()
        self.settings = settings.within_memory()
        self._partitions = None if partitions is None else tuple(sorted(set(partitions)))
        assert (bounds is None) == (job is None), "a part of the work is that of a job"
        self._bounds = bounds
        self._job = job
        self._preferred_slot = slot
        self._open_backend = open_backend
        self._repository = repository
        if repository is None and self.settings.snapshots is not None:
            self._repository = open_repository(self.settings.snapshots)
        self._clock = SystemClock()
        self._reports = WorkerReports(
            self.settings,
            lambda: self._runtime,
            self._clock.monotonic_s,
            events=events,
            log_records=log_records,
            endpoint=endpoint,
            on_step=on_step,
            on_progress=on_progress,
            tracer_provider=tracer_provider,
        )
        self._events = self._reports.events
        self._log = open_log(self.settings, self._events)
        self._open_consumer = open_consumer
        if (spans := self._reports.spans) is not None:
            self._log = TracedLog(self._log, spans)
            if open_consumer is not None:
                self._open_consumer = lambda: TracedConsumer(open_consumer(), spans)
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._call_executor = PooledCallExecutor()
        self._runtime: Runtime | None = None
        self._slot: TaskLock | None = None
        self._presence: FixedWorkerPresence | None = None
        self._identity: tuple[str, dict[str, str]] = ("", {})

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> Worker:
        """Start in a thread; returns when topics are prepared and the group was joined (stores may still be
        restoring), or when a stop was requested. Raises the error that made the start fail."""
        self._thread = threading.Thread(target=self._run_caught, name="penstock-worker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """Commit, leave the group and stop. Raises the error that ended the run, or ``RetriableError`` if it has not
        ended in time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise RetriableError(
                    f"the worker has not stopped within {timeout_s} s; call stop again or end the process"
                )
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop it. If an error is on its way out, what the worker raises does not replace it."""
        with suppress(Exception) if kind is not None else nullcontext():
            self.stop()

    def request_stop(self) -> None:
        """Request a stop without waiting for it; safe in a signal handler."""
        self._stop.set()

    @property
    def running(self) -> bool:
        """Whether its thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def runtime(self) -> Runtime | None:
        """The run loop, for inspecting tasks and counters; ``None`` before it was started."""
        return self._runtime

    def metrics(self) -> list[Metric]:
        """Its metrics, from any thread. ``penstock.streams.events.metric_names`` describes each."""
        return self._reports.metrics()

    def status(self) -> WorkerStatus:
        """Its current status, from any thread."""
        return self._reports.pages.status()

    def _run_caught(self) -> None:
        try:
            self.run()
        except BaseException as exc:
            self._error = exc
        finally:
            self._ready.set()

    def run(self) -> None:
        """Run in the calling thread until ``request_stop``, ``ctx.shutdown()`` or an error."""
        with self._reports.running():
            self._run()

    def _run(self) -> None:
        restorer: Restorer | None = None
        try:
            arm_from(os.environ)
            choose(self.settings.native)
            self._reports.started()
            few_arenas()
            runtime, restorer = self._open()
            self._runtime = runtime
            with rare_collections(YOUNG_OBJECTS[self.settings.latency]):
                self._work(runtime)
        except StoppedError:
            pass  # before anything was started
        finally:
            self._call_executor.close()
            if restorer is not None:
                restorer.close()
            if self._presence is not None:
                self._presence.close()
            if self._slot is not None:
                self._slot.release()

    def _work(self, runtime: Runtime) -> None:
        try:
            self._brokers.ask(runtime.start)
            self._ready.set()
            spare = SpareMemory(trim())
            while not self._stop.is_set() and not runtime.shutdown_requested:
                records = runtime.step()
                self._reports.pages.turned()
                spare.turn(self._clock.monotonic_s(), records, uncommitted=runtime.uncommitted)
                if self._presence is not None:
                    self._presence.keep()
                if self._bounds is not None and not records and self._bounds.reached(runtime.tasks.values()):
                    break
        except BaseException:
            runtime.close()
            raise
        runtime.stop()

    # -- wiring --------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Runtime, Restorer]:
        s = self.settings
        check_application_id(s.application_id)
        check_guarantee(self.topology, s.guarantee)
        check_policies(self.topology, s.policies)
        admin = self._log.admin()
        self._brokers = BrokerWait(s.bootstrap_servers, admin.require_answer, self._stop, self._events)
        directory = StateDirectory(s.state_dir, s.application_id)
        known = KnownTopology(self.topology, s.application_id, directory, self._events)
        layout, cluster_id = self._brokers.ask(lambda: self._prepare(admin, known))
        identity = directory.claim(cluster_id=cluster_id, fingerprint=fingerprint(self.topology, layout))
        known.keep_in_folder(layout)
        self._slot, slot = take_slot(directory, self._preferred_slot)
        topics = [
            *layout.topics,
            *self.topology.source_topics(s.application_id),
            *changelog_topics(self.topology, s.application_id),
        ]
        self._identity = (cluster_id, self._brokers.ask(lambda: all_topic_ids(admin, sorted(set(topics)))))
        restorer = Restorer(self._task_opener(directory, admin))
        process = f"{identity.process_uuid}-{slot}"
        prefix = f"{s.application_id}-{process}"
        member = self._partitions is None and self._open_consumer is None
        owner = owner_name(self._log, s.guarantee, process, member=member)
        client_id = prefix if owner else client_name(self._log, s.application_id, member=member)
        self._events.emit(ClusterFound(cluster_id, s.bootstrap_servers, client_id))
        runtime = Runtime(
            self.topology,
            s.application_id,
            layout,
            runtime_options(
                s,
                self._partitions,
                self._call_executor,
                self._events,
                pause=lambda ms: self._stop.wait(ms / 1000),
                epochs_grow=self._log.epochs_grow,
                topic_ids=self._identity[1],
                owner=owner,
                bounds=self._bounds,
            ),
            self._open_consumer or (lambda: self._member(client_id)),
            lambda rt, partition: self._committer(rt, partition, prefix, admin),
            restorer,
            self._clock,
            on_joined=self._when_joined(owner, layout),
            open_reader=self._open_reader,
            purger=self._purger(admin),
            changelog_purger=Purger(
                marked_topics(self.topology, s.application_id),
                CHANGELOG_PURGE_INTERVAL_MS,
                admin.delete_before,
                self._reports.purge_failed,
            ),
            topic_watch=TopicWatch(self._identity[1], admin.ask_topic_ids),
            events=self._events,
        )
        return runtime, restorer

    def _task_opener(self, directory: StateDirectory, admin: LogAdmin) -> TaskOpener:
        s = self.settings
        return TaskOpener(
            s.application_id,
            directory,
            admin,
            self._open_reader,
            self._clock.now_ms,
            self._open_backend or partial(RocksDBBackend, options=s.stores_options()),
            repository=self._repository,
            on_progress=self._reports.restore_progressed,
            events=self._events,
            committed_only=s.guarantee == "at_least_once",
        )

    def _prepare(self, admin: LogAdmin, known: KnownTopology) -> tuple[TopicLayout, str]:
        """Read from the cluster, and create there, what this worker needs before it starts; returns the layout and
        the cluster's id. Can be repeated if it was interrupted."""
        s = self.settings
        if self._partitions is None:
            check_no_fixed_workers(admin, s.application_id)
        else:
            self._check_fixed(admin)
        cluster_id = admin.cluster_id()
        existing, _ = existing_layout(self.topology, s.application_id, admin, s.policies.dead_letter_topic)
        known.compare(existing, cluster_id, admin, lambda: self._log.reader(s.application_id))
        layout = prepare_topics(
            self.topology,
            s.application_id,
            admin,
            replication_factor=s.replication_factor,
            repartition_retention_ms=s.repartition_retention_ms,
            dead_letter_topic=s.policies.dead_letter_topic,
            guarantee=s.guarantee,
        )
        self._check_partitions(layout)
        check_metadata_size(self.topology, s.application_id, layout)
        check_unread_internal_topics(
            self.topology,
            s.application_id,
            admin,
            lambda: self._log.reader(s.application_id),
            [presence_group(s.application_id)],
        )
        if self._partitions is not None and self._bounds is None:
            self._join_fixed(admin, layout)
        known.keep(layout, admin, self._log.producer, self._clock.now_ms(), s.replication_factor)
        return layout, cluster_id

    def _member(self, client_id: str | None) -> LogConsumer:
        return consumer_within(self._bounds, self._log.member(self.settings.application_id, client_id))

    def _purger(self, admin: LogAdmin) -> Purger | None:
        interval_ms = self.settings.repartition_purge_interval_ms
        if not interval_ms:
            return None
        topics = purgeable_topics(self.topology, self.settings.application_id)
        return Purger(topics, interval_ms, admin.delete_before, self._reports.purge_failed)

    def _open_reader(self) -> LogConsumer:
        """A consumer outside the group, for stores' changelogs and for reading the log."""
        return self._log.reader(f"{self.settings.application_id}-restore")

    def _committer(self, runtime: Runtime, partition: int | None, prefix: str, admin: LogAdmin) -> Committer:
        s = self.settings
        exactly = s.guarantee == "exactly_once"
        own_id = prefix if partition is None else fixed_id(s.application_id, partition)
        lease = positions = None
        if s.guarantee == "at_least_once":
            stable = not self._log.epochs_grow
            lease = MembershipLease(lease_s(s.session_timeout_ms), self._clock.monotonic_s, stable_token=stable)
        if partition is not None and not exactly:
            timeout_s = s.transaction_timeout_ms / 1000
            positions = FencedPositions(lambda: self._log.producer(own_id), s.application_id, timeout_s)
        return Committer(
            s.guarantee,
            runtime.consumer,
            lambda: producer_within(self._bounds, self._log.producer(own_id if exactly else None, bulk=True)),
            lambda: runtime.membership() if partition is None else s.application_id,
            lambda task, store, at_ms: store_position(task, store, at_ms, *self._identity),
            CommitTimeouts(transaction_s=s.transaction_timeout_ms / 1000),
            self._reports.step_done,
            yields=partition is not None,
            lease=lease,
            open_reader=self._open_reader,
            epochs_grow=self._log.epochs_grow,
            positions=positions,
            on_open=None if partition is None else lambda: self._check_fixed(admin),
            events=self._events,
        )

    def _when_joined(self, owner: str, layout: TopicLayout) -> Callable[[Sequence[TopicPartition], bool], None]:
        """The steps of a worker of the group before it takes partitions."""
        s = self.settings
        group = presence_group(s.application_id)
        fence = FixedFence(
            self._inputs(layout),
            group,
            lambda: self._log.reader(group),
            lambda p: self._log.producer(fixed_id(s.application_id, p)),
            # A client of its own: one that lost its coordinator together with the brokers may not find it for a while.
            lambda: check_no_fixed_workers(self._log.admin(), s.application_id),
            s.transaction_timeout_ms * 3 / 1000,
        )
        abandoned = abandoned_transactions(
            self._log, s.application_id, owner, self._inputs(layout), self._clock.monotonic_s, self._events
        )

        def joined(given: Sequence[TopicPartition], afresh: bool) -> None:
            fence.on_joined(given, afresh)
            if owner:
                abandoned.on_joined(given)

        return joined

    def _inputs(self, layout: TopicLayout) -> list[TopicPartition]:
        topics = self.topology.source_topics(self.settings.application_id)
        return [TopicPartition(t, p) for t, (sub, _) in topics.items() for p in range(layout.tasks[sub])]

    # -- start checks --------------------------------------------------------------------------------------------

    def _join_fixed(self, admin: LogAdmin, layout: TopicLayout) -> None:
        """Register for workers that would join the group and for jobs, then look again for those that have come."""
        application_id = self.settings.application_id
        if self._presence is not None:
            self._presence.close()  # left by an attempt that was not answered
        topics = self.topology.source_topics(application_id)
        consumer = self._log.reader(presence_group(application_id))
        self._presence = FixedWorkerPresence(consumer, next(iter(topics)), lambda: self._check_fixed(admin))
        self._presence.join()
        fixed = self._partitions or ()
        mine = [TopicPartition(t, p) for t, (sub, _) in topics.items() for p in fixed if p < layout.tasks[sub]]
        refuse_moved(consumer.committed(mine))
        self._presence.mark(mine)
        self._check_fixed(admin)

    def _check_fixed(self, admin: LogAdmin) -> None:
        """Look whether fixed partitions may be run here: by a worker that a job runs, while that job is there."""
        if self._job is None:
            check_may_run_fixed(admin, self.settings.application_id)
        else:
            check_job(admin, self.settings.application_id, self._job)

    def _check_partitions(self, layout: TopicLayout) -> None:
        most = max(layout.tasks)
        wrong = [p for p in self._partitions or () if not 0 <= p < most]
        if wrong:
            raise SettingsError(f"partition {wrong[0]} does not exist; the topology's inputs have 0 to {most - 1}")

"""Everything that shows a worker from outside: the sinks of its facts, its metrics, and the endpoint that serves
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.state.failpoints import failpoint
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.native import compiled
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.events.facts import PurgeFailed, StopReason, WorkerStarted, WorkerStopped
from penstock.streams.events.logging_adapter import LoggingEvents
from penstock.streams.events.measurements import CommitStep, Metric
from penstock.streams.events.metrics_adapter import MetricsEvents, listed
from penstock.streams.events.port import EventSink, Fanout
from penstock.streams.runtime.metric_values import memory_limits, metrics_of
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.worker.metrics_endpoint import MetricsEndpoint
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.task_opener import OnProgress
from penstock.streams.worker.tracing import open_spans
from penstock.streams.worker.worker_pages import WorkerPages

OnStep = Callable[[CommitStep], None]


class WorkerReports:
    """See the module. ``runtime`` returns the run loop, ``None`` before it exists. ``events``: the user's own sink.
    ``endpoint`` already listens; without it, ``running`` opens one if the settings have a port. ``spans``: of records and
    commits, if they are traced."""

    def __init__(
        self,
        settings: WorkerSettings,
        runtime: Callable[[], Runtime | None],
        monotonic_s: Callable[[], float],
        *,
        events: EventSink | None,
        log_records: bool,
        endpoint: MetricsEndpoint | None,
        on_step: OnStep | None,
        on_progress: OnProgress | None,
        tracer_provider: Any,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._on_step = on_step
        self._on_progress = on_progress
        self._directory = StateDirectory(settings.state_dir, settings.application_id)
        self._meters = MetricsEvents(self._look)
        self.pages = WorkerPages(runtime, self._meters.registry, monotonic_s)
        self.spans, self._close_tracing = open_spans(settings.tracing, settings.application_id, tracer_provider)
        sinks: list[EventSink] = [LoggingEvents(records=log_records), self._meters, self.pages]
        sinks += [] if self.spans is None else [self.spans]
        self.events: EventSink = Fanout(*sinks, *([] if events is None else [events]))
        self._endpoint = endpoint
        if endpoint is not None:
            endpoint.pages = self.pages

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the worker runs: serve its pages, and report why it stopped."""
        if self._endpoint is None and self._settings.metrics_port:
            at = (self._settings.metrics_host, self._settings.metrics_port)
            self._endpoint = MetricsEndpoint(at, self.pages)
        try:
            yield
        except BaseException as exc:
            self.events.emit(WorkerStopped("error", exc))
            raise
        else:
            self.events.emit(WorkerStopped(self._reason(), None))
        finally:
            self._close_tracing()
            if self._endpoint is not None:
                self._endpoint.close()

    def _reason(self) -> StopReason:
        runtime = self._runtime()
        return "shutdown" if runtime is not None and runtime.shutdown_requested else "requested"

    def started(self) -> None:
        """Report what runs."""
        s = self._settings
        self.events.emit(
            WorkerStarted(
                penstock.__version__,
                s.application_id,
                s.guarantee,
                compiled() is not None,
                s.state_dir,
                s.changed(),
            )
        )

    def metrics(self) -> list[Metric]:
        """All metrics, from any thread."""
        return listed(self._meters.registry)

    def _look(self) -> list[Metric]:
        """The metrics that are read on request."""
        out = memory_limits(self._settings.memory_limits())
        if (runtime := self._runtime()) is None:
            return out
        tasks = list(runtime.tasks.values())
        out += metrics_of(tasks, runtime.consumer.known_ends())
        for state, count in (("running", len(tasks)), ("restoring", len(runtime.restoring))):
            out.append(Metric("penstock_tasks", {"state": state}, count))
        for task in (str(task.id) for task in tasks if task.stores):
            out.append(Metric("penstock_state_disk_bytes", {"task": task}, self._directory.size_bytes(task)))
        return out

    # -- callbacks -----------------------------------------------------------------------------------------------

    def step_done(self, step: CommitStep) -> None:
        """A step of a commit was done."""
        failpoint(f"commit.{step}")
        self._meters.step(step)
        if self.spans is not None:
            self.spans.step(step)
        if self._on_step is not None:
            self._on_step(step)

    def restore_progressed(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        """A restore goes on."""
        self._meters.restoring(task, store, progress)
        if self._on_progress is not None:
            self._on_progress(task, store, progress)

    def purge_failed(self, tp: TopicPartition, why: str) -> None:
        """Only space is lost, and it is retried."""
        self.events.emit(PurgeFailed(tp, why))

"""Reports the restore of one store: its start, its progress every few seconds, its end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import (
    ChangelogFacts,
    FromBeginning,
    IngestSnapshot,
    RestoreProgress,
    Resume,
)
from penstock.streams.events.facts import RestoreFinished, RestoreProgressed, RestoreStarted, SnapshotRefused
from penstock.streams.events.port import EventSink

PROGRESS_INTERVAL_S = 10.0


class RestoreReport:
    """See the module. ``monotonic_s`` is a clock for intervals."""

    def __init__(self, events: EventSink, task: TaskId, store: str, monotonic_s: Callable[[], float]) -> None:
        self._events = events
        self._task = task
        self._store = store
        self._monotonic_s = monotonic_s
        self._begun_s = self._reported_s = monotonic_s()

    def began(self, decision: Resume | FromBeginning | IngestSnapshot, log: ChangelogFacts) -> None:
        """Reading starts. Reports nothing if there is nothing to read, or only the transaction marker after the last
        commit."""
        end = log.end_offset if log.committed_end is None else min(log.committed_end, log.end_offset)
        if decision.offset < end:
            fact = RestoreStarted(self._task, self._store, decision.offset, log.end_offset, decision.reason)
            self._events.emit(fact)

    def progressed(self, progress: RestoreProgress) -> None:
        """Records were read."""
        now_s = self._monotonic_s()
        if progress.offsets_done and not progress.done and now_s - self._reported_s >= PROGRESS_INTERVAL_S:
            self._reported_s = now_s
            took_s = now_s - self._begun_s
            left_s = took_s * (progress.offsets_total / progress.offsets_done - 1)
            rate = progress.records / took_s
            fact = RestoreProgressed(self._task, self._store, progress.offset, progress.end_offset, rate, left_s)
            self._events.emit(fact)

    def ended(self, progress: RestoreProgress, end_offset: int) -> None:
        """The store is at the end."""
        took_s = self._monotonic_s() - self._begun_s
        self._events.emit(RestoreFinished(self._task, self._store, end_offset, progress.records, took_s))


class RefusedSnapshots:
    """Reports why snapshots are not used, each reason once."""

    def __init__(self, events: EventSink, task: TaskId) -> None:
        self._events = events
        self._task = task
        self._reasons: set[str] = set()

    def add(self, store: str, reasons: Iterable[str]) -> None:
        """These snapshots of a store are not used."""
        for reason in reasons:
            if reason not in self._reasons:
                self._reasons.add(reason)
                self._events.emit(SnapshotRefused(self._task, store, reason))

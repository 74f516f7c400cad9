"""Keeps workers of an application away while Spark does its work."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from penstock.state.errors import PenstockError, SettingsError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.batch.background import in_background
from penstock.streams.batch.cluster import ClusterAddress, open_admin, open_consumer, open_transactional, retried
from penstock.streams.ports.log import LogAdmin, LogProducer
from penstock.streams.runtime.fixed_fence import (
    BOOTSTRAPPED,
    RUN_FIXED,
    Marks,
    fence_fixed,
    fixed_id,
    maybe_run_fixed,
    numbers_of,
    refuse_moved,
)
from penstock.streams.worker.fixed_worker_lock import (
    JOB_CLIENT_ID,
    KEEP_INTERVAL_S,
    FixedWorkerPresence,
    check_no_group_members,
    presence_group,
)
from penstock.streams.worker.settings import WorkerSettings

SESSION_MS = 10_000
"""A job that was killed keeps workers and other jobs away for this long."""
LEAVING_S = 5.0
_LOOK_AGAIN_S = 0.5


class Hold:
    """Keeps workers away. It is lost when this process was frozen or cut off for a session: then others may have taken
    over, and come back. ``member``: its id in the group of fixed workers, by which the workers that it runs elsewhere see
    that it is there (``check_job``). ``stopped``: an earlier run of this job has set the last of its ``stop_marks``."""

    def __init__(
        self,
        presence: FixedWorkerPresence,
        admin: LogAdmin,
        settings: WorkerSettings,
        inputs: Sequence[TopicPartition],
        member: str,
        stopped: bool = False,
    ) -> None:
        self.member = member
        self.stopped = stopped
        self._presence = presence
        self._admin = admin
        self._settings = settings
        self._application_id = settings.application_id
        self._inputs = inputs
        self._lock = threading.Lock()
        self._kept_s = time.monotonic()
        self._lost = False

    def keep(self) -> None:
        """Keep it, or leave once it is lost, so that this process does not hinder who came after it. Call it regularly."""
        self._look()
        with suppress(PenstockError), self._lock:
            if self.lost:
                self._presence.close()
            else:
                self._presence.keep()

    def mark(self, mark: str) -> None:
        """Set the mark of all input partitions, then look for members: who joins later reads it. Raises
        ``SettingsError`` if there are some, and as ``check``; then the mark was set in vain."""
        self.check()
        with self._lock:
            self._presence.mark(self._inputs, mark)
        check_no_group_members(self._admin, self._application_id)
        self.check()

    @property
    def lost(self) -> bool:
        """Whether others could begin."""
        return self._lost or self._presence.lost

    def check(self) -> None:
        """Raises ``TaskMigratedError`` if it was lost, and ``SettingsError`` if another job or a worker with fixed
        partitions has joined, and does not leave when it sees this job."""
        self._look()
        if self.lost:
            raise _gone(self._application_id)
        _wait_until_alone(self._admin, self._application_id)

    def end_transactions(self) -> None:
        """End those that work of this job has left open when it failed: until then the positions that they cover stay
        undecided. Work that still goes on is refused from then on. Raises as ``check``."""
        self.check()
        end_transactions(self._settings, numbers_of(self._inputs))

    def _look(self) -> None:
        now_s = time.monotonic()
        self._lost = self._lost or now_s - self._kept_s > SESSION_MS / 1000
        self._kept_s = now_s


@contextmanager
def kept_away(
    settings: WorkerSettings,
    inputs: Sequence[TopicPartition],
    *,
    bootstraps: Callable[[Marks], None] | None = None,
    stop_marks: Sequence[str] = (),
) -> Iterator[Hold]:
    """Keep workers of the application from starting while the block runs, which asks the ``Hold`` before it begins something
    that would disturb others. ``inputs``: all of its input partitions.
    ``bootstraps``: the block builds initial state, and notes so; called with what was noted before, when no commit of an
    earlier process can follow, it raises if that must not be. ``stop_marks``: the marks by which this job stops the
    application (``refuse_moved``); they stay where an earlier run has set them. Raises ``SettingsError`` if workers, or
    another job, hold its tasks, and where another job has stopped it."""
    address = ClusterAddress(settings.bootstrap_servers, {**settings.common, **settings.consumer})
    admin = open_admin(ClusterAddress(settings.bootstrap_servers, dict(settings.common)))
    _wait_for_nobody(admin, settings.application_id)
    group = presence_group(settings.application_id)
    own = f"{JOB_CLIENT_ID}-{uuid.uuid4().hex[:12]}"
    consumer = open_consumer(address, group, session_timeout_ms=SESSION_MS, client_id=own)

    def look() -> None:
        check_no_group_members(admin, settings.application_id)

    presence = FixedWorkerPresence(consumer, inputs[0].topic, look)
    try:
        presence.join()
        # A worker that starts at the same moment sees this job, or this job sees it.
        look()
        members = admin.group_member_ids(group)
        if len(members) > 1:
            raise _held(settings.application_id, len(members) - 1)
        member = next((m for m, client in members.items() if client == own), None)
        if member is None:
            raise _gone(settings.application_id)
        marks = _marks(address, settings.application_id, inputs)
        refuse_moved(marks, stop_marks)
        found = {m.metadata for m in marks.values() if m is not None}
        _fence_former(settings, marks)
        if bootstraps is not None:
            bootstraps(marks)
        if found.isdisjoint(stop_marks):
            presence.mark(inputs, RUN_FIXED if bootstraps is None else BOOTSTRAPPED)
        hold = Hold(presence, admin, settings, inputs, member, bool(stop_marks) and stop_marks[-1] in found)
        with in_background(partial(_keep, hold), "presence"):
            yield hold
    finally:
        presence.close()


def _marks(address: ClusterAddress, application_id: str, inputs: Sequence[TopicPartition]) -> Marks:
    consumer = open_consumer(address, presence_group(application_id))
    try:
        return retried(lambda: consumer.committed(inputs))
    finally:
        consumer.close()


def _fence_former(settings: WorkerSettings, marks: Marks) -> None:
    """End the transactions that killed jobs and workers with fixed partitions left open. Until they end, the positions that
    they cover stay undecided, and a process that was not killed could still commit. The marks stay: the job sets its own
    when it is sure that it may go on."""
    end_transactions(settings, numbers_of(maybe_run_fixed(marks)))


def end_transactions(settings: WorkerSettings, partitions: Iterable[int]) -> None:
    """End those that workers with these fixed partitions, or jobs, have left open, and refuse what they send later."""
    s, timeout_ms = settings, settings.transaction_timeout_ms
    writing = ClusterAddress(s.bootstrap_servers, {**s.common, **s.producer})

    def opened(partition: int) -> LogProducer:
        return open_transactional(writing, fixed_id(s.application_id, partition), timeout_ms=timeout_ms)

    fence_fixed(partitions, opened, timeout_ms * 3 / 1000)


def _wait_for_nobody(admin: LogAdmin, application_id: str) -> None:
    """Wait until killed jobs are gone. Each stays a member until its session ends; a member that stays longer is alive."""
    until_s = time.monotonic() + SESSION_MS / 1000 * 1.5
    while True:
        check_no_group_members(admin, application_id)
        members = admin.group_members(presence_group(application_id))
        if not members:
            return
        if time.monotonic() > until_s:
            raise _held(application_id, members)
        time.sleep(_LOOK_AGAIN_S)


def _wait_until_alone(admin: LogAdmin, application_id: str) -> None:
    """Wait for those that started together with this job: they see it and leave."""
    until_s = time.monotonic() + LEAVING_S
    while (members := admin.group_members(presence_group(application_id))) > 1:
        if time.monotonic() > until_s:
            raise _held(application_id, members - 1)
        time.sleep(_LOOK_AGAIN_S)


def _held(application_id: str, members: int) -> SettingsError:
    return SettingsError(
        f"{members} workers with fixed partitions or other jobs hold tasks of {application_id}; wait for them, or stop them"
    )


def _gone(application_id: str) -> TaskMigratedError:
    return TaskMigratedError(
        f"this process did not run, or did not reach the brokers, for {SESSION_MS / 1000:.0f} s, so workers or another job "
        f"may have taken the tasks of {application_id}. What is committed stays; start it again"
    )


def _keep(hold: Hold, stop: threading.Event) -> None:
    """Keep it until ``stop`` is set."""
    while not stop.wait(KEEP_INTERVAL_S / 2):
        hold.keep()

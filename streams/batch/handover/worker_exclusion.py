"""Keeps workers of an application away while Spark does its work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.background import in_background
from penstock.streams.batch.cluster import ClusterAddress, open_admin, open_consumer, open_transactional, retried
from penstock.streams.ports.log import LogAdmin, OffsetAndMetadata
from penstock.streams.runtime.fixed_fence import BOOTSTRAPPED, RUN_FIXED, FixedFence, fixed_id
from penstock.streams.worker.fixed_worker_lock import (
    KEEP_INTERVAL_S,
    FixedWorkerPresence,
    check_no_group_members,
    presence_group,
)
from penstock.streams.worker.settings import WorkerSettings

SESSION_MS = 10_000
"""A job that was killed keeps workers and other jobs away for this long."""
_LOOK_AGAIN_S = 0.5
Marks = Mapping[TopicPartition, OffsetAndMetadata | None]
"""Notes of the group of fixed workers about partitions (``fixed_fence``)."""


@contextmanager
def kept_away(
    settings: WorkerSettings,
    inputs: Sequence[TopicPartition],
    *,
    bootstraps: Callable[[Marks], None] | None = None,
) -> Iterator[None]:
    """Keep workers of the application from starting while the block runs. ``inputs``: all of its input partitions.
    ``bootstraps``: the block builds initial state, and notes so; called with what was noted before, when no commit of an
    earlier process can follow, it raises if that must not be. Raises ``SettingsError`` if workers, or another job of this
    kind, hold its tasks."""
    address = ClusterAddress(settings.bootstrap_servers, {**settings.common, **settings.consumer})
    admin = open_admin(ClusterAddress(settings.bootstrap_servers, dict(settings.common)))
    _wait_for_nobody(admin, settings.application_id)
    consumer = open_consumer(address, presence_group(settings.application_id), session_timeout_ms=SESSION_MS)

    def look() -> None:
        check_no_group_members(admin, settings.application_id)

    presence = FixedWorkerPresence(consumer, inputs[0].topic, look)
    try:
        presence.join()
        # A worker that starts at the same moment sees this job, or this job sees it.
        look()
        if (members := admin.group_members(presence_group(settings.application_id))) > 1:
            raise _held(settings.application_id, members - 1)
        marks = _marks(address, settings.application_id, inputs)
        _fence_former(settings, inputs)
        if bootstraps is not None:
            bootstraps(marks)
        presence.mark(inputs, RUN_FIXED if bootstraps is None else BOOTSTRAPPED)
        with in_background(partial(_keep, presence), "presence"):
            yield
    finally:
        presence.close()


def _marks(address: ClusterAddress, application_id: str, inputs: Sequence[TopicPartition]) -> Marks:
    consumer = open_consumer(address, presence_group(application_id))
    try:
        return retried(lambda: consumer.committed(inputs))
    finally:
        consumer.close()


def _fence_former(settings: WorkerSettings, inputs: Sequence[TopicPartition]) -> None:
    """End the transactions that killed jobs and workers with fixed partitions left open. Until they end, the positions that
    they cover stay undecided, and a process that was not killed could still commit."""
    s, group = settings, presence_group(settings.application_id)
    reading = ClusterAddress(s.bootstrap_servers, {**s.common, **s.consumer})
    writing = ClusterAddress(s.bootstrap_servers, {**s.common, **s.producer})
    timeout_ms = s.transaction_timeout_ms
    FixedFence(
        inputs,
        lambda: open_consumer(reading, group),
        lambda partition: open_transactional(writing, fixed_id(s.application_id, partition), timeout_ms=timeout_ms),
        timeout_ms * 3 / 1000,
    ).on_joined(inputs, afresh=True)


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


def _held(application_id: str, members: int) -> SettingsError:
    return SettingsError(
        f"{members} workers with fixed partitions or other jobs hold tasks of {application_id}; wait for them, or stop them"
    )


def _keep(presence: FixedWorkerPresence, stop: threading.Event) -> None:
    """Keep the membership alive until ``stop`` is set."""
    while not stop.wait(KEEP_INTERVAL_S / 2):
        with suppress(PenstockError):
            presence.keep()

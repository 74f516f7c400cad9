"""How workers with fixed partitions and workers in a group exclude each other.

Only a group has generations to fence by, so an application runs in one of the two modes, never in both. Workers with
fixed partitions join a group of their own, ``<application.id>-fixed``, from which they read nothing: the brokers list
its members while they live. Each side first registers and then looks for the other, so that of two that start at once
at least one gives up. A job that keeps all workers away, as a handover to Spark does, is a member there too, with a
``client.id`` of its own. This covers workers that start; ``penstock.streams.runtime.fixed_fence`` separates those that
run.

The workers that a job runs are elsewhere, and may begin when the job, or what schedules them, was frozen and others came.
Each opens its transactional id, and then looks whether the job's membership is the one under which it was sent
(``check_job``). Others begin when that membership has ended, and open the ids before they do anything. So a worker that
still sees the job has opened its id before them, and they fence it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from penstock.state.errors import RetriableError, SettingsError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogAdmin, LogConsumer
from penstock.streams.runtime.fixed_fence import RUN_FIXED, mark_fixed

JOIN_LIMIT_S = 60.0
KEEP_INTERVAL_S = 1.0
JOB_CLIENT_ID = "penstock-job"
"""The ``client.id`` of jobs in the group of fixed workers begins with this."""


def presence_group(application_id: str) -> str:
    """The group that workers with fixed partitions join."""
    return f"{application_id}-fixed"


def check_no_group_members(admin: LogAdmin, application_id: str) -> None:
    """For a job: raises ``SettingsError`` while the application's group has members."""
    if members := admin.group_members(application_id):
        raise SettingsError(
            f"group {application_id} has {members} members, so fixed partitions could be processed twice; stop the group's "
            "workers first, or start this one without --partitions"
        )


def check_job(admin: LogAdmin, application_id: str, member: str) -> None:
    """For the workers that a job runs, when they have opened their ids: raises ``TaskMigratedError`` if the job is no longer
    the ``member`` of the group of fixed workers that it was, and as ``check_no_group_members``."""
    check_no_group_members(admin, application_id)
    if member not in admin.group_member_ids(presence_group(application_id)):
        raise TaskMigratedError(
            f"the job that does the work of {application_id} was away for too long, or has ended, so workers or another job "
            "may have taken its tasks. What is committed stays; start it again"
        )


def check_may_run_fixed(admin: LogAdmin, application_id: str) -> None:
    """For a worker with fixed partitions: raises ``SettingsError`` while the application's group has members, or a job keeps
    workers away."""
    check_no_group_members(admin, application_id)
    _check_no_job(admin.group_clients(presence_group(application_id)), application_id)


def check_no_fixed_workers(admin: LogAdmin, application_id: str) -> None:
    """For a worker of the group: raises ``SettingsError`` while workers run fixed partitions, or a job keeps workers
    away."""
    clients = admin.group_clients(presence_group(application_id))
    _check_no_job(clients, application_id)
    if clients:
        raise SettingsError(
            f"{len(clients)} workers run fixed partitions of {application_id} (a killed one counts until its session "
            "timeout has passed), so records could be processed twice; stop them first, or start this one with --partitions"
        )


def _check_no_job(clients: Collection[str], application_id: str) -> None:
    if any(client.startswith(JOB_CLIENT_ID) for client in clients):
        raise SettingsError(
            f"a job in Spark does the work of {application_id} (a killed one counts for ten more seconds), so records could "
            "be processed twice; wait for it, or stop it first"
        )


class FixedWorkerPresence:
    """A membership that shows that a worker with fixed partitions is alive. ``consumer`` is one of ``presence_group``
    and is closed with this; ``topic`` is any existing topic: nothing of it is read. ``look`` is called whenever the
    membership began again, as after a freeze, and raises if this worker must stop."""

    def __init__(self, consumer: LogConsumer, topic: str, look: Callable[[], None]) -> None:
        self._consumer = consumer
        self._topic = topic
        self._look = look
        self._look_due = False
        self._joined = False
        self.lost = False
        """Whether the membership has ended since it began, and others could begin."""
        self._kept_s = 0.0

    def join(self) -> None:
        """Become a member. Raises ``RetriableError`` if the brokers do not answer."""
        until = time.monotonic() + JOIN_LIMIT_S
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=lambda _: None, on_lost=self._on_lost
        )
        while not self._joined:
            if time.monotonic() > until:
                raise RetriableError(
                    f"the group of fixed workers could not be joined in {JOIN_LIMIT_S} s; see the brokers"
                )
            self._consumer.poll(1, 0.1)

    def mark(self, partitions: Sequence[TopicPartition], mark: str = RUN_FIXED) -> None:
        """Note that these partitions run fixed, or ``BOOTSTRAPPED``, for a group that takes them over."""
        mark_fixed(self._consumer, partitions, mark)

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._look_due = self._joined
        self._joined = True
        self._consumer.assign_at(dict.fromkeys(partitions, 0))
        self._consumer.pause(partitions)

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.lost = True

    def keep(self) -> None:
        """Take part in the group's protocol. Call it regularly."""
        now_s = time.monotonic()
        if now_s - self._kept_s >= KEEP_INTERVAL_S:
            self._kept_s = now_s
            self._consumer.poll(1, 0.0)
            if self._look_due:
                with suppress(RetriableError):  # checked again at the next turn
                    self._look()
                    self._look_due = False

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

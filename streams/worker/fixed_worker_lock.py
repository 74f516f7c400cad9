"""How workers with fixed partitions and workers in a group keep out of each other's way.

Only a group has generations to fence by, so one application is run either way, never both. Workers with fixed partitions
join a group of their own, ``<application.id>-fixed``, from which they read nothing: the brokers keep its members for as
long as they live. Each side makes itself known first and then looks for the other, so that of two that start at once at
least one gives up. That is for who starts; those who run are kept apart by ``penstock.streams.runtime.fixed_fence``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.state.errors import RetriableError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogAdmin, LogConsumer
from penstock.streams.runtime.fixed_fence import mark_fixed

JOIN_LIMIT_S = 60.0
KEEP_INTERVAL_S = 1.0


def presence_group(application_id: str) -> str:
    """The group that workers with fixed partitions join."""
    return f"{application_id}-fixed"


def check_no_group_members(admin: LogAdmin, application_id: str) -> None:
    """For a worker with fixed partitions: raises ``SettingsError`` while the application's group has members."""
    if members := admin.group_members(application_id):
        raise SettingsError(
            f"group {application_id} has {members} members, so fixed partitions could be processed twice; stop the group's "
            "workers first, or start this one without --partitions"
        )


def check_no_fixed_workers(admin: LogAdmin, application_id: str) -> None:
    """For a worker of the group: raises ``SettingsError`` while workers run fixed partitions."""
    if members := admin.group_members(presence_group(application_id)):
        raise SettingsError(
            f"{members} workers run fixed partitions of {application_id} (a killed one counts until its session time-out "
            "has passed), so records could be processed twice; stop them first, or start this one with --partitions"
        )


class FixedWorkerPresence:
    """Membership that says: a worker with fixed partitions is alive. ``consumer`` is one of ``presence_group``, and is
    closed with this; ``topic`` is any that exists: nothing of it is read. ``look`` is called after each time that the
    membership began again, as after a freeze, and raises if this worker has to end."""

    def __init__(self, consumer: LogConsumer, topic: str, look: Callable[[], None]) -> None:
        self._consumer = consumer
        self._topic = topic
        self._look = look
        self._look_due = False
        self._joined = False
        self._kept_s = 0.0

    def join(self) -> None:
        """Become a member. Raises ``RetriableError`` when the brokers do not answer."""
        until = time.monotonic() + JOIN_LIMIT_S
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=lambda _: None, on_lost=lambda _: None
        )
        while not self._joined:
            if time.monotonic() > until:
                raise RetriableError(
                    f"the group of fixed workers could not be joined in {JOIN_LIMIT_S} s; see the brokers"
                )
            self._consumer.poll(1, 0.1)

    def mark(self, partitions: Sequence[TopicPartition]) -> None:
        """Note that these are run fixed, for a group that takes them over."""
        mark_fixed(self._consumer, partitions)

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._look_due = self._joined
        self._joined = True
        self._consumer.assign_at(dict.fromkeys(partitions, 0))
        self._consumer.pause(partitions)

    def keep(self) -> None:
        """To be called again and again: takes part in what the group does."""
        now_s = time.monotonic()
        if now_s - self._kept_s >= KEEP_INTERVAL_S:
            self._kept_s = now_s
            self._consumer.poll(1, 0.0)
            if self._look_due:
                with suppress(RetriableError):  # looks again at the next turn
                    self._look()
                    self._look_due = False

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

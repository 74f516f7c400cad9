"""Errors about one place in the log. Pure."""

from __future__ import annotations

from penstock.state.errors import UserError
from penstock.state.log import TopicPartition


class OffsetOutOfRangeError(UserError):
    """The record at ``offset`` of ``partition`` is not in the log: retention removed it, or the log ends before it.

    If an input position is gone, the user must decide; if a changelog position is gone, the store is restored from
    the beginning.
    """

    def __init__(self, partition: TopicPartition, offset: int, seen: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"{partition.topic} [{partition.partition}] has no offset {offset}: {seen}; the records in between are gone "
            "or the topic was deleted and created again. Nothing was skipped: choose a position for the group, or restore"
        )


class UnknownTopicError(UserError):
    """A topic or partition that the cluster does not have."""

    def __init__(self, topic: str, seen: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} is not known to the cluster: {seen}; create it or correct its name")

"""Commits whose answer was lost, until the log shows their outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.start_positions import input_partitions
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task


class CommitsInDoubt:
    """The positions of each, in the order of the requests."""

    def __init__(self) -> None:
        self._asked: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def add(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are about to be committed."""
        self._asked.append(offsets)

    def clear(self) -> None:
        """The log has shown what is committed."""
        self._asked.clear()

    @property
    def last(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The positions of the last one, which may stand: no earlier ones may be committed again."""
        return next((asked for asked in reversed(self._asked) if asked), {})

    def have(self, task: Task, start: Mapping[str, tuple[int, CommitMetadata]]) -> bool:
        """Whether a task's positions, as read back, are those of such a commit, which has then taken place."""
        found = {tp: start[tp.topic] for tp in input_partitions(task)}
        return any(
            all(
                tp in asked and (asked[tp].offset, commit_metadata.decode(asked[tp].metadata)) == at
                for tp, at in found.items()
            )
            for asked in self._asked
        )

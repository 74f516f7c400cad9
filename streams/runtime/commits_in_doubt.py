"""Commits that were asked for and whose answer is lost, until the log was asked what became of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.start_positions import input_partitions
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task


class CommitsInDoubt:
    """The positions of each, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._asked: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def add(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are about to be committed."""
        self._asked.append(offsets)

    def clear(self) -> None:
        """The log has told what is committed."""
        self._asked.clear()

    def have(self, task: Task, start: Mapping[str, tuple[int, CommitMetadata]]) -> bool:
        """Whether the positions of a task that were read back are those of such a commit, which took place then."""
        found = {tp: start[tp.topic] for tp in input_partitions(task)}
        return any(
            all(
                tp in asked and (asked[tp].offset, commit_metadata.decode(asked[tp].metadata)) == at
                for tp, at in found.items()
            )
            for asked in self._asked
        )

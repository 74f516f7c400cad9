"""Where the inputs of a task continue."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogConsumer
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task


def input_partitions(task: Task) -> list[TopicPartition]:
    """The partitions that a task reads."""
    return [TopicPartition(t, task.id.partition) for t in task.topics]


def start_positions(
    consumer: LogConsumer, partitions: Sequence[TopicPartition]
) -> dict[str, tuple[int, CommitMetadata]]:
    """Where a task's inputs continue: at their committed positions, or at the first existing record if there is none."""
    found = consumer.committed(partitions)
    out: dict[str, tuple[int, CommitMetadata]] = {}
    for tp in partitions:
        committed = found.get(tp)
        if committed is None:
            out[tp.topic] = (consumer.watermarks(tp)[0], CommitMetadata())
        else:
            out[tp.topic] = (committed.offset, commit_metadata.decode(committed.metadata))
    return out

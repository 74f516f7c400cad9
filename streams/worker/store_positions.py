"""The position record of a store: how far its changelog and the task's inputs were read, and on which cluster and
topics."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.state.log import TopicPartition
from penstock.state.recovery.position import Position, encode_position
from penstock.streams.task.task import Task


def store_position(task: Task, store: str, at_ms: int, cluster_id: str, topic_ids: Mapping[str, str]) -> bytes:
    """The position record of a store after a commit; ``at_ms``: when it was known to be at the log's end."""
    state = task.stores[store]
    spec = state.spec
    positions = task.feed.positions()
    if spec.source_topic is not None:
        offset = positions[spec.source_topic]
    else:
        offset = task.changelog_ends.get(store, 0)
    return encode_position(
        Position(
            offset,
            {TopicPartition(t, task.id.partition): o for t, o in positions.items()},
            cluster_id,
            dict(topic_ids),
            at_ms,
            task.stream_time_ms,
            task.epochs.get(store, -1) if spec.source_topic is None else -1,
            segment_ms=spec.segment_ms,
        )
    )

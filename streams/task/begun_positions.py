"""The commit that a new owner makes before it writes to a task's changelogs for the first time, under at-least-once.

A restore ends where the last commit wrote a changelog up to, so that state holds no changes of input that will be read
again. The metadata of the positions says where that is. Before the first commit there is none, and after that a store
that was not written yet is not in it. So without this, the changes of a worker that died in such a commit would be
restored and then counted again.

Therefore the first question to the group commits the task's last positions once more, with the ends of all its changelogs
as restored. Only after the group has accepted them, anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata

if TYPE_CHECKING:
    from penstock.streams.task.task import Task


def begun_positions(task: Task) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions to commit first; empty if the last ones name the ends of all changelogs. The task counts them as its
    own from now on, whether the answer comes or not; call ``task.own_positions.begun()`` when it came."""
    own = task.own_positions
    if own.complete:
        return {}
    logged = [name for name, s in task.stores.items() if s.spec.changelog and s.spec.source_topic is None]
    noted = {topic: (at.offset, commit_metadata.decode(at.metadata)) for topic, at in own.known.items()}
    if all(name in m.changelogs for name in logged for _, m in noted.values()):
        own.complete = True
        return {}
    for name in logged:
        if name not in task.changelog_ends and (end := task.changelog_end(name)) is not None:
            task.changelog_ends[name] = end
    ends = {name: end for name, end in task.changelog_ends.items() if name in logged}
    for topic, (offset, before) in noted.items():
        metadata = before if before.version else CommitMetadata(first=offset)
        metadata = msgspec.structs.replace(metadata, changelogs=before.changelogs | ends)
        own.begin(topic, OffsetAndMetadata(offset, commit_metadata.encode(metadata)))
    return {TopicPartition(topic, task.id.partition): position for topic, position in own.beginnings.items()}


def some_position(tasks: Sequence[Task]) -> dict[TopicPartition, OffsetAndMetadata]:
    """One of the last positions of these tasks, if possible a committed one: to commit it again shows who the owner is."""
    positions = {
        TopicPartition(topic, task.id.partition): position
        for task in tasks
        for topic, position in task.own_positions.known.items()
    }
    committed = {tp: p for tp, p in positions.items() if p.metadata} or positions
    return dict(sorted(committed.items())[:1])

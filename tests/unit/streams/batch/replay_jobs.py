"""A replay's job for tests: stores begin empty, and no snapshots are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.state.log import TaskId
from penstock.streams.batch.journals import GivenJournals, Journals
from penstock.streams.batch.replay_task import ReplayJob
from penstock.streams.spark.shipping import ship
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology

NO_OPTIONS, NO_JOURNALS = TaskOptions(), GivenJournals()


def job_from_begin(
    build: Callable[[], Topology],
    task_id: TaskId,
    topics: tuple[str, ...],
    output: Path,
    *,
    options: TaskOptions = NO_OPTIONS,
    partition_counts: Mapping[str, int] | None = None,
    journals: Journals = NO_JOURNALS,
) -> ReplayJob:
    """The job of one task that reads these topics from offset 0 on."""
    return ReplayJob(
        topology=ship(build),
        application_id="app",
        options=options,
        partition_counts=partition_counts or {},
        starts={task_id: {topic: (0, CommitMetadata()) for topic in topics}},
        journals=journals,
        output=str(output),
        run="run",
        bases={},
        base_repository=None,
        snapshots={},
        snapshot_repository=None,
    )

"""Up to which offset changelogs of windows are no longer needed, so that a worker can delete the records before it.

Brokers judge age by the records' own time against the wall clock. If events are older than that (a backlog, a replay,
a stream that was stopped), they would delete the state of open windows. So these changelogs are kept forever, and
their task decides what may be deleted. From time to time it marks where a changelog ends and the highest key of the
store. Once all of the store's keys are above that one, each of its entries was written after the mark, and no restore
needs the records before it. That holds for keys of any order; it happens if they begin with a time, and expire. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, expires
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.streams.task.task import Task
from penstock.topologies.graph.topology import Topology

MARKS_MAX = 64
"""The most marks of one store; beyond it every other one is dropped, which only delays deletions."""


def marked_topics(topology: Topology, application_id: str) -> frozenset[str]:
    """The changelogs that are otherwise kept forever."""
    return frozenset(changelog_topic(application_id, s) for s in topology.stores if _is_marked(s))


def _is_marked(spec: StoreSpec) -> bool:
    return spec.changelog and expires(spec)


class ChangelogMarks:
    """The marks of the tasks of one worker. If they are lost with it, deletions only come later."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._marks: dict[tuple[TaskId, str], list[tuple[int, bytes]]] = {}

    def unneeded(self, tasks: Iterable[Task]) -> dict[TopicPartition, int]:
        """The offset before which each changelog of these tasks may be deleted, as of their last commit, which is in
        their stores. Drops the marks of other tasks."""
        out: dict[TopicPartition, int] = {}
        kept: dict[tuple[TaskId, str], list[tuple[int, bytes]]] = {}
        for task in tasks:
            for name, end in task.changelog_ends.items():
                if name not in task.stores or not _is_marked(spec := task.stores[name].spec):
                    continue
                marks = kept[task.id, name] = self._marks.get((task.id, name), [])
                before = _look(task.backend, name, end, marks)
                if before is not None:
                    out[TopicPartition(changelog_topic(self._application_id, spec), task.id.partition)] = before
        self._marks = kept
        return out


def _look(backend: StateBackend, store: str, end: int, marks: list[tuple[int, bytes]]) -> int | None:
    """Add a mark, and remove those that the store has passed."""
    lowest = next((key for key, _ in backend.range(store, None, None)), None)
    if lowest is None:
        marks.clear()
        return end
    passed = [offset for offset, highest in marks if highest < lowest]
    del marks[: len(passed)]
    if not marks or end > marks[-1][0]:
        highest = next(key for key, _ in backend.range(store, None, None, reverse=True))
        while marks and marks[-1][1] >= highest:
            marks.pop()  # nothing written since is above it: the new mark is better
        if len(marks) >= MARKS_MAX:
            del marks[::2]
        marks.append((end, highest))
    return passed[-1] if passed else None

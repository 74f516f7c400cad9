"""How far the changelogs of windows are needed no more, so that a worker can delete what lies before.

Brokers judge age by the records' own time against the clock on the wall, and would delete the state of windows that are
open, where events are older than that: a backlog, a replay, a stream that was stopped. So these changelogs are kept for
ever, and their task says what may go. Now and then it marks where a changelog ends and the highest key of the store. Once
all of the store's keys are above that one, each of its entries was written behind the mark, and no restore needs what lies
before. That holds for keys of any order; it happens where they begin with a time, and expire. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, expires
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.streams.task.task import Task
from penstock.topologies.graph.topology import Topology

MARKS_MAX = 64
"""Of one store; of more, every other one goes, which only puts deletions off."""


def marked_topics(topology: Topology, application_id: str) -> frozenset[str]:
    """The changelogs that are kept for ever but for this."""
    return frozenset(changelog_topic(application_id, s) for s in topology.stores if _is_marked(s))


def _is_marked(spec: StoreSpec) -> bool:
    return spec.changelog and expires(spec)


class ChangelogMarks:
    """The marks of the tasks of one worker. They need not outlive it: deletions come later then."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._marks: dict[tuple[TaskId, str], list[tuple[int, bytes]]] = {}

    def unneeded(self, tasks: Iterable[Task]) -> dict[TopicPartition, int]:
        """Before which offset each changelog of these tasks may be deleted, as of their last commit, which is in their
        stores. The marks of other tasks are forgotten."""
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
    """Take another mark, and use up those that the store has left behind."""
    lowest = next((key for key, _ in backend.range(store, None, None)), None)
    if lowest is None:
        marks.clear()
        return end
    passed = [offset for offset, highest in marks if highest < lowest]
    del marks[: len(passed)]
    if not marks or end > marks[-1][0]:
        highest = next(key for key, _ in backend.range(store, None, None, reverse=True))
        while marks and marks[-1][1] >= highest:
            marks.pop()  # nothing that was written since is above it: the new mark says more
        if len(marks) >= MARKS_MAX:
            del marks[::2]
        marks.append((end, highest))
    return passed[-1] if passed else None

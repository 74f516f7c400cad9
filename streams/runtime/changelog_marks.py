"""Up to which offset changelogs of windows are no longer needed, so that a worker can delete the records before it.

Brokers judge age by the records' own time against the wall clock. If events are older than that (a backlog, a replay,
a stream that was stopped), they would delete the state of open windows. So these changelogs are kept forever, and
their task decides what may be deleted. From time to time it marks where a changelog ends and the highest key of the
store. Once all of the store's keys are above that one, each of its entries was written after the mark, and no restore
needs the records before it. That holds for keys of any order; it happens if they begin with a time, and expire. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.state.log import TopicPartition
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


class KeySpan(NamedTuple):
    """A store as of a commit: where its changelog ends, and its lowest and highest key (``None``: it is empty)."""

    end: int
    lowest: bytes | None
    highest: bytes | None


def marked_stores(stores: Sequence[StoreSpec]) -> list[str]:
    """Those whose changelogs are otherwise kept forever."""
    return [spec.name for spec in stores if _is_marked(spec)]


def span_of(backend: StateBackend, store: str, end: int) -> KeySpan:
    """The span of a store whose changelog ends at ``end``."""
    lowest = next((key for key, _ in backend.range(store, None, None)), None)
    return KeySpan(end, lowest, next((key for key, _ in backend.range(store, None, None, reverse=True)), None))


class ChangelogMarks:
    """The marks of the tasks of one worker. If they are lost with it, deletions only come later."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._marks: dict[TopicPartition, list[tuple[int, bytes]]] = {}

    def unneeded(self, tasks: Iterable[Task]) -> dict[TopicPartition, int]:
        """The offset before which each changelog of these tasks may be deleted, as of their last commit, which is in
        their stores. Drops the marks of other tasks."""
        spans: dict[TopicPartition, KeySpan] = {}
        for task in tasks:
            for name, end in task.changelog_ends.items():
                if name in task.stores and _is_marked(spec := task.stores[name].spec):
                    changelog = TopicPartition(changelog_topic(self._application_id, spec), task.id.partition)
                    spans[changelog] = span_of(task.backend, name, end)
        self._marks = {changelog: marks for changelog, marks in self._marks.items() if changelog in spans}
        return self.look(spans)

    def look(self, spans: Mapping[TopicPartition, KeySpan]) -> dict[TopicPartition, int]:
        """The offset before which each of these changelogs may be deleted."""
        found = {changelog: _look(span, self._marks.setdefault(changelog, [])) for changelog, span in spans.items()}
        return {changelog: before for changelog, before in found.items() if before is not None}


def _look(span: KeySpan, marks: list[tuple[int, bytes]]) -> int | None:
    """Add a mark, and remove those that the store has passed."""
    end, lowest, highest = span
    if lowest is None or highest is None:
        marks.clear()
        return end
    passed = [offset for offset, key in marks if key < lowest]
    del marks[: len(passed)]
    if not marks or end > marks[-1][0]:
        while marks and marks[-1][1] >= highest:
            marks.pop()  # nothing written since is above it: the new mark is better
        if len(marks) >= MARKS_MAX:
            del marks[::2]
        marks.append((end, highest))
    return passed[-1] if passed else None

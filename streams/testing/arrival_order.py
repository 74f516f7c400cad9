"""A feed that keeps the order in which records were given, regardless of their times and topics.

Tests and the conformance harness give a task its records in the order that a case names. Every record has a *label*, a
number that grows with the piped input; a record that another task wrote has the label of its cause. The feed takes the
lowest label first, and of equal ones the one that was added first. So a record that comes through a repartition topic is
taken when record-by-record processing would have taken it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.feed import Feed, Run

Node = TypeVar("Node")


class ArrivalFeed(Feed):
    """See the module. ``labels``: by topic, the label of the record at each offset; it may grow. ``bound``: records with
    higher labels wait (``None``: none do)."""

    def __init__(self, topics: Sequence[str], positions: dict[str, int], labels: Mapping[str, Sequence[int]]) -> None:
        super().__init__(topics, positions)
        self.bound: int | None = None
        self._labels = labels
        self._arrivals: dict[str, deque[int]] = {t: deque() for t in self.topics}
        self._added = 0

    def add(self, chunk: Chunk, next_offset: int) -> None:
        super().add(chunk, next_offset)
        self._arrivals[chunk.topic].append(self._added)
        self._added += 1

    def next_label(self) -> int | None:
        """The label of the next record, whatever the bound."""
        heads = self._heads()
        return heads[0][0] if heads else None

    def take(self, max_records: int, now_ms: int = 0) -> list[Run]:
        runs: list[Run] = []
        left = max_records
        while left:
            heads = self._heads()
            if not heads or (self.bound is not None and heads[0][0] > self.bound):
                break
            runs.append(self._take_lowest_label(heads, left))
            left -= runs[-1].stop - runs[-1].start
        return runs

    def _heads(self) -> list[tuple[int, int, int]]:
        """Label, arrival and topic of each queue's next record, lowest first."""
        heads = []
        for i, queue in enumerate(self._queues):
            if queue.head_ms() is None:
                self._arrivals[queue.topic].clear()
                continue
            arrivals = self._arrivals[queue.topic]
            while len(arrivals) > len(queue.chunks):
                arrivals.popleft()
            chunk = queue.chunks[0][0]
            heads.append((self._labels[queue.topic][chunk.offsets[queue.at]], arrivals[0], i))
        return sorted(heads)

    def _take_lowest_label(self, heads: list[tuple[int, int, int]], most: int) -> Run:
        _, arrival, lowest = heads[0]
        queue = self._queues[lowest]
        offsets = queue.chunks[0][0].offsets
        labels = self._labels[queue.topic]
        limits = [] if self.bound is None else [self.bound]
        if len(heads) > 1:
            label, other, _ = heads[1]
            limits.append(label if arrival < other else label - 1)
        limit = min(limits, default=None)
        count = 1
        for offset in offsets[queue.at + 1 : queue.at + most]:
            if limit is not None and labels[offset] > limit:
                break
            count += 1
        return queue.take(lowest, count, None, False)


def in_dependency_order(nodes: Sequence[Node], edges: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """The nodes in groups, upstream groups first; nodes that feed each other are one group."""
    order = list(nodes)
    reach: dict[Node, set[Node]] = {n: set() for n in order}
    for a, b in edges:
        reach[a].add(b)
    for through in order:
        for n in order:
            if through in reach[n]:
                reach[n] |= reach[through]
    groups: list[list[Node]] = []
    left = list(order)
    while left:
        # the first node that no other remaining node leads to, except nodes of its own loop; the loop is the group
        first = next(n for n in left if all(m in reach[n] for m in left if n in reach[m] and m is not n))
        group = [n for n in left if n is first or (n in reach[first] and first in reach[n])]
        groups.append(group)
        left = [n for n in left if n not in group]
    return groups

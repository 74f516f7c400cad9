"""A bounded piece of an application's work: some sub-topologies of fixed partitions, up to given offsets.

Another host than a worker's process, such as a Spark executor, takes over a backlog in such pieces: the worker's own run
loop reads up to the stops, commits, and ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogConsumer, LogProducer
from penstock.streams.runtime.bounded_consumer import BoundedConsumer
from penstock.streams.runtime.redirected_producer import RedirectedProducer
from penstock.streams.task.task import Task


@dataclasses.dataclass(frozen=True)
class WorkBounds:
    """``stops``: for every input partition of these sub-topologies, the offset to stop before. ``outputs``: topics whose
    records go to another topic, or nowhere (``None``)."""

    subtopologies: frozenset[int]
    stops: Mapping[TopicPartition, int]
    outputs: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    def reached(self, tasks: Iterable[Task]) -> bool:
        """Whether the tasks have processed all inputs up to their stops, and committed that."""
        found: set[TopicPartition] = set()
        for task in tasks:
            if task.uncommitted_records or not task.feed.at_end:
                return False
            found.update(TopicPartition(topic, task.id.partition) for topic in task.topics)
        return found == set(self.stops)


def consumer_within(bounds: WorkBounds | None, inner: LogConsumer) -> LogConsumer:
    """The consumer as these bounds show it."""
    return inner if bounds is None else BoundedConsumer(inner, bounds.stops)


def producer_within(bounds: WorkBounds | None, inner: LogProducer) -> LogProducer:
    """The producer as these bounds show it."""
    return inner if bounds is None or not bounds.outputs else RedirectedProducer(inner, bounds.outputs)

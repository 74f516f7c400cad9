"""A user's function that is called after micro-batches, with what was written since it was called last.

How far it has come is committed in a Kafka group of its own, after it returned. So it misses nothing, and after a failure it
is called again with records that it may have seen: these begin at the same offsets, and there may be more of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, open_consumer, retried
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.spark.frames.application import Application

SETTLE_S = 10.0


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Outputs of a micro-batch, for a user's function. ``number``: counts micro-batches from 0 in each run. ``ranges``: by
    topic that the application writes and partition, the first offset of the new records, and the one to stop before."""

    number: int
    spark: SparkSession
    application: Application
    ranges: Mapping[str, Mapping[int, tuple[int, int]]]

    def output(self, topic: str, **how: Any) -> DataFrame:
        """The new records of a topic, with the columns of ``Application.topic``, and its ``key=``, ``value=`` and
        ``columns=``. Partition and offset identify a record, whenever it comes again."""
        mine = self.ranges[topic]
        since = {p: start for p, (start, _) in mine.items()}
        return self.application.topic(
            self.spark, topic, since=since, as_of={p: stop for p, (_, stop) in mine.items()}, **how
        )


ForeachBatch = Callable[[MicroBatch], object]


def hook_group(application_id: str) -> str:
    """The group that holds how far the function has come."""
    return f"{application_id}-foreach-batch"


class OutputHook:
    """Calls ``function``. ``topics``: those that the application writes. Begins, the first time, at their ends now."""

    def __init__(
        self, function: ForeachBatch, application: Application, topics: Mapping[str, int], cluster: Cluster
    ) -> None:
        self._function = function
        self._application = application
        self._cluster = cluster
        self._partitions = [TopicPartition(t, p) for t, count in sorted(topics.items()) for p in range(count)]
        self._consumer = open_consumer(application.connection, hook_group(application.application_id))
        self._reached = self._begin()

    def _begin(self) -> dict[TopicPartition, int]:
        known = retried(lambda: self._consumer.committed(self._partitions))
        found = {tp: at.offset for tp, at in known.items() if at is not None}
        new = [tp for tp in self._partitions if tp not in found]
        ends = {tp: end for tp, (_, end) in self._cluster.ends(new).items()}
        self._commit(ends)
        return found | ends

    def call(self, spark: SparkSession, number: int) -> None:
        """Call it if there is anything new. Raises what it raises."""
        ends = self._ends()
        ranges: dict[str, dict[int, tuple[int, int]]] = {tp.topic: {} for tp in self._partitions}
        for tp, end in ends.items():
            ranges[tp.topic][tp.partition] = (min(self._reached[tp], end), end)
        if all(start == end for mine in ranges.values() for start, end in mine.values()):
            return
        self._function(MicroBatch(number, spark, self._application, ranges))
        self._commit(ends)
        self._reached = ends

    def _ends(self) -> dict[TopicPartition, int]:
        """The ends of what is committed. What the micro-batch has committed can be read a moment later; what others leave
        open is not waited for much longer, and comes with a later call."""
        ends, _ = self._cluster.settled_ends(self._partitions, SETTLE_S)
        return {tp: max(end, self._reached[tp]) for tp, (_, end) in ends.items()}

    def _commit(self, ends: Mapping[TopicPartition, int]) -> None:
        if ends:
            retried(lambda: self._consumer.commit({tp: OffsetAndMetadata(end, "") for tp, end in ends.items()}))

    def __enter__(self) -> OutputHook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

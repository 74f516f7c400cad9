"""The source of the query: how far the application's inputs go.

Spark asks it at each trigger, and its answer decides whether there is a micro-batch and where that ends. Records do not pass
through Spark: executors read them as workers do.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import open_consumer
from penstock.streams.ports.log import LogConsumer
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.frames.request import OPTION, packed, unpacked

FORMAT = "penstock-inputs"
TURN, STOPS = "turn", "stops"
"""The parts of an offset: a number that grows when there may be work, and by topic the offsets to stop before."""


@dataclasses.dataclass(frozen=True)
class InputsRequest:
    """The application's external inputs: the number of partitions of each topic. ``connection`` may hold secrets.
    ``clocked``: there may be work at each trigger, because timers read the clock."""

    connection: Connection = dataclasses.field(repr=False)
    application_id: str
    topics: Mapping[str, int]
    clocked: bool


class InputsDataSource(DataSource):
    """The source as Spark knows it."""

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return FORMAT

    def schema(self) -> str:
        """One row for each partition of each input."""
        return "topic string, partition int, stop long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A reader of the ends as they are when Spark asks."""
        return InputsReader(unpacked(self.options[OPTION]))


class InputsReader(DataSourceStreamReader):
    """Answers Spark's questions, in a process of its own."""

    def __init__(self, request: InputsRequest) -> None:
        self._request = request
        self._latest = self.initialOffset()

    @cached_property
    def _consumer(self) -> LogConsumer:
        return open_consumer(self._request.connection, self._request.application_id)

    def initialOffset(self) -> dict[str, Any]:
        """Before everything: where the application stands is in its committed positions only, so the first micro-batch is
        always run, and finds out."""
        return {TURN: 0, STOPS: {}}

    def latestOffset(self) -> dict[str, Any]:
        """The ends now. If the brokers do not answer, those of last time."""
        try:
            stops = {
                topic: [self._consumer.watermarks(TopicPartition(topic, p))[1] for p in range(count)]
                for topic, count in sorted(self._request.topics.items())
            }
        except RetriableError:
            return self._latest
        self._latest = {TURN: time.time_ns() // 1_000_000 if self._request.clocked else 1, STOPS: stops}
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One, with all ends of a micro-batch."""
        return [InputPartition(end[STOPS])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, int]]:
        """The ends as rows."""
        return ((t, p, stop) for t, stops in partition.value.items() for p, stop in enumerate(stops))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: positions are committed with the records' results."""


def read_inputs(spark: SparkSession, request: InputsRequest) -> DataFrame:
    """The streaming DataFrame of the source."""
    spark.dataSource.register(InputsDataSource)
    return spark.readStream.format(FORMAT).option(OPTION, packed(request)).load()


def stops_of(frame: DataFrame) -> dict[TopicPartition, int]:
    """The ends of a micro-batch."""
    return {TopicPartition(row["topic"], row["partition"]): row["stop"] for row in frame.collect()}

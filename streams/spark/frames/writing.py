"""Write a DataFrame to a topic, exactly once.

Rows go to the partitions that the application's own producers would choose, each partition of the topic in a Spark
partition of its own, in timestamp order. Each is written by one transaction, which also commits a marker: a position
of the group ``penstock-write-<job>`` whose metadata names the job. A repeated task, or a job of the same name that is
run again, finds the marker and skips the partition. A task that died has left nothing that readers of committed
records see. Partitions become visible one by one. A frame that is written again under one name must give the same
rows.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.replay_rows import to_headers
from penstock.streams.batch.row_runs import place_runs, whole_runs
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.kafka.client_config import consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import OffsetAndMetadata, UnknownOutcomeError
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.failures import translated
from penstock.streams.spark.frames.encoding import ENCODED_SCHEMA, TopicEncoding, encode_rows
from penstock.streams.spark.shipping import ship, ship_value
from penstock.streams.spark.slots import spread

_TRANSACTION_MS = 900_000
"""The brokers' default maximum: a partition is one transaction."""
_TIMEOUT_S = 120.0
_REPORT_SCHEMA = "place int, rows long, written boolean"
_REPORT = pa.schema([("place", pa.int32()), ("rows", pa.int64()), ("written", pa.bool_())])
_JOB = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclasses.dataclass(frozen=True)
class WriteResult:
    """The result of a write. ``rows``: written by this run; ``skipped``: the partitions that an earlier run had
    written."""

    rows: int
    skipped: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Job:
    """Values that the tasks need. May hold secrets, so it is never shown."""

    name: str
    topic: str
    bootstrap_servers: str
    client: Mapping[str, str] = dataclasses.field(repr=False)

    @property
    def group(self) -> str:
        """The group whose positions are the markers."""
        return f"penstock-write-{self.name}"


def write_topic(
    frame: DataFrame,
    topic: str,
    *,
    job: str,
    connection: Connection,
    topology: TopologyRef | None = None,
    application_id: str = "",
    key: Any = None,
    value: Any = None,
) -> WriteResult:
    """Write the frame's rows: ``key``, ``value`` and, where there are such columns, ``timestamp``, ``headers`` and the
    window's ends. The serdes are those of the ``topology``, or what ``key`` and ``value`` mean. ``job`` names what is
    written: the same name writes nothing twice.

    Raises ``SettingsError`` for unknown columns, topics and serdes, ``SerdeError`` for rows that do not fit the serdes,
    ``EnvironmentFault`` when Spark or the brokers fail.
    """
    if not _JOB.fullmatch(job):
        raise SettingsError(f"job={job!r} cannot be a name: use letters, digits, '.', '_' and '-', 100 at most")
    if lacking := [name for name in ("key", "value") if name not in frame.columns]:
        raise SettingsError(f"the frame has no column {', '.join(lacking)}; it has: {', '.join(frame.columns)}")
    with open_cluster(connection, f"penstock-write-{job}") as cluster:
        partitions = cluster.require_counts([topic])[topic]
    shipped = None if topology is None else ship(topology)
    likes = ship_value(key), ship_value(value)
    form = TopicEncoding(topic, partitions, shipped, application_id, *likes, time.time_ns() // 1_000_000)
    form.serdes()
    what = _Job(job, topic, connection.bootstrap_servers, dict(connection.client))
    coded = frame.mapInArrow(partial(encode_rows, form), ENCODED_SCHEMA)
    placed = spread(coded, F.col("place"), [0] * partitions).sortWithinPartitions(
        "place", "timestamp_ms", "key", "value"
    )
    with translated("the write"):
        done = placed.mapInArrow(partial(write_rows, what), _REPORT_SCHEMA).collect()
    return WriteResult(sum(r["rows"] for r in done), tuple(sorted(r["place"] for r in done if not r["written"])))


def write_rows(job: _Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of ``ENCODED_SCHEMA``, each partition's together; what was done about each partition."""
    for place, parts in whole_runs(place_runs(batches)):
        count = _write(job, TopicPartition(job.topic, place), parts)
        columns = [[place], [count or 0], [count is not None]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, _REPORT, strict=True)], schema=_REPORT
        )


def _write(job: _Job, tp: TopicPartition, parts: Iterable[pa.RecordBatch]) -> int | None:
    """Write one partition in one transaction; returns the number of rows, or ``None`` if it was written before."""
    name = f"{job.group}-{tp.topic}-{tp.partition}"
    producer = KafkaProducer(
        producer_config(
            job.bootstrap_servers, job.client, transactional_id=name, transaction_timeout_ms=_TRANSACTION_MS
        )
    )
    try:
        # Fences an earlier attempt that may still run, and ends its transaction, so that what is committed cannot
        # change any more.
        producer.init_transactions(_TIMEOUT_S)
        if _marked(job, tp):
            return None
        producer.begin()
        try:
            count = 0
            for part in parts:
                _send(producer, tp, part)
                count += part.num_rows
            producer.flush(_TIMEOUT_S)
            producer.send_offsets({tp: OffsetAndMetadata(count, _marker(job))}, job.group, _TIMEOUT_S)
        except PenstockError:
            producer.abort(_TIMEOUT_S)
            raise
        try:
            producer.commit(_TIMEOUT_S)
        except UnknownOutcomeError:
            if not _marked(job, tp):
                raise
        return count
    finally:
        producer.close()


def _send(producer: KafkaProducer, tp: TopicPartition, part: pa.RecordBatch) -> None:
    headers: list[Headers] | None = None
    if part.column("headers").null_count < part.num_rows:
        headers = [to_headers(row) for row in part.column("headers").to_pylist()]
    keys, values, stamps = (part.column(c).to_pylist() for c in ("key", "value", "timestamp_ms"))
    producer.send(tp.topic, keys, values, stamps, headers, partition=tp.partition)


def _marker(job: _Job) -> str:
    return f"written by {job.name}"


def _marked(job: _Job, tp: TopicPartition) -> bool:
    """Whether the partition was written. Waits for a transaction that has not ended."""
    consumer = KafkaConsumer(consumer_config(job.bootstrap_servers, job.group, job.client))
    try:
        found = consumer.committed([tp])[tp]
        return found is not None and found.metadata == _marker(job)
    finally:
        consumer.close()

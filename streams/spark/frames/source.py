"""``spark.read.format("penstock")``: Spark's Python data source.

Options: ``topology`` (``module:name``), ``application_id``, ``bootstrap_servers``, any librdkafka key as ``kafka.<key>``,
and one of ``topic`` (with ``key`` and ``value``, names of serdes, where the topology does not know it), ``changelog`` or
``store``; further ``columns`` (comma-separated), ``as_of``, ``since``, ``partitions`` (comma-separated) and ``repository``
as ``Application`` takes them. The executors need Penstock. Classic sessions are tested; Spark Connect is not, although it
has all that is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.state.errors import SettingsError
from penstock.streams.spark.executor import executor_work
from penstock.streams.spark.frames.request import OPTION, Request, unpacked

FORMAT = "penstock"


class PenstockDataSource(DataSource):
    """Reads what its options say."""

    @classmethod
    def name(cls) -> str:
        """As ``format`` takes it."""
        return FORMAT

    @cached_property
    def _request(self) -> Request:
        if OPTION in self.options:
            request: Request = unpacked(self.options[OPTION])
            return request
        return _resolved(self.options)

    def schema(self) -> StructType:
        """The schema of the requested columns."""
        schema: StructType = from_arrow_schema(self._request.schema)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the ranges as they are now."""
        return _Reader(self._request)


class _Reader(DataSourceReader):
    def __init__(self, request: Request) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        # Without one Spark would read a partition of None.
        return [InputPartition(part) for part in self._request.parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            with executor_work():
                yield from self._request.read(partition.value)


def register(spark: SparkSession) -> SparkSession:
    """Make ``format("penstock")`` known to a session."""
    spark.dataSource.register(PenstockDataSource)
    return spark


def _resolved(options: Mapping[str, str]) -> Request:
    from penstock.streams.spark.connection import Connection
    from penstock.streams.spark.frames.application import Application

    def listed(name: str) -> list[str] | None:
        return [x.strip() for x in options[name].split(",")] if name in options else None

    missing = [n for n in ("bootstrap_servers", "application_id", "topology") if n not in options]
    what = [n for n in ("topic", "changelog", "store") if n in options]
    if missing or len(what) != 1:
        raise SettingsError(
            f"format('penstock') needs the options bootstrap_servers, application_id and topology (missing: "
            f"{', '.join(missing) or 'none'}), and one of topic, changelog or store (given: {', '.join(what) or 'none'})"
        )
    client = {n.removeprefix("kafka."): options[n] for n in options if n.startswith("kafka.")}
    app = Application(
        options["topology"],
        options["application_id"],
        Connection(options["bootstrap_servers"], client),
        options.get("repository"),
    )
    columns = listed("columns")
    how: dict[str, Any] = {n: options[n] for n in ("as_of", "since") if n in options}
    if what == ["store"]:
        return app.store_request(options["store"], columns=columns, **how)
    if (partitions := listed("partitions")) is not None:
        how["partitions"] = [int(p) for p in partitions]
    if what == ["changelog"]:
        return app.changelog_request(options["changelog"], columns=columns, **how)
    how |= {n: options[n] for n in ("key", "value") if n in options}
    return app.topic_request(options["topic"], columns=columns, **how)

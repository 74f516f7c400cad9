"""Sinks and sources at the edge: databases, files and services, and the interfaces that yours implements.

Give a sink to ``KStream.sink``::

    totals = connectors.SqliteSink("totals", path="shop.db", key="city")
    orders.group_by(col("city")).count().to_stream().sink(totals, name="totals")

A ``Sink`` that keeps positions is exactly-once, under either guarantee of the worker.

Give a source to an ``Ingestion``, and run it with ``penstock ingest MODULE:NAME``::

    orders = connectors.Ingestion("orders-in", connectors.CsvSource("in/*.csv", key="city"), "orders", value=Order)

``penstock.testing`` has the suites of tests for sinks and sources of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter

if TYPE_CHECKING:
    from penstock.streams.connectors.file_sinks import CsvSink, FileSink, JsonLinesSink, RowFile
    from penstock.streams.connectors.file_sources import CsvSource, JsonLinesSource
    from penstock.streams.connectors.http_sink import HttpSink
    from penstock.streams.connectors.ingestion import Ingestion
    from penstock.streams.connectors.parquet_sink import ParquetSink
    from penstock.streams.connectors.parquet_source import ParquetSource
    from penstock.streams.connectors.postgres_sink import PostgresSink
    from penstock.streams.connectors.postgres_source import PostgresSource
    from penstock.streams.connectors.source import Source, SourceBatch, SourceReader, SourceRecord
    from penstock.streams.connectors.sqlite_sink import SqliteSink
    from penstock.streams.connectors.table_rows import TableRow
    from penstock.streams.connectors.webhook_source import WebhookSource

__all__ = [
    "CsvSink",
    "CsvSource",
    "FileSink",
    "HttpSink",
    "Ingestion",
    "JsonLinesSink",
    "JsonLinesSource",
    "ParquetSink",
    "ParquetSource",
    "PostgresSink",
    "PostgresSource",
    "RowFile",
    "Sink",
    "SinkPartition",
    "SinkRows",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "SourceRecord",
    "SqliteSink",
    "TableRow",
    "WebhookSource",
]

_HOMES = {
    "CsvSink": "penstock.streams.connectors.file_sinks",
    "CsvSource": "penstock.streams.connectors.file_sources",
    "FileSink": "penstock.streams.connectors.file_sinks",
    "HttpSink": "penstock.streams.connectors.http_sink",
    "Ingestion": "penstock.streams.connectors.ingestion",
    "JsonLinesSink": "penstock.streams.connectors.file_sinks",
    "JsonLinesSource": "penstock.streams.connectors.file_sources",
    "ParquetSink": "penstock.streams.connectors.parquet_sink",
    "ParquetSource": "penstock.streams.connectors.parquet_source",
    "PostgresSink": "penstock.streams.connectors.postgres_sink",
    "PostgresSource": "penstock.streams.connectors.postgres_source",
    "RowFile": "penstock.streams.connectors.file_sinks",
    "Source": "penstock.streams.connectors.source",
    "SourceBatch": "penstock.streams.connectors.source",
    "SourceReader": "penstock.streams.connectors.source",
    "SourceRecord": "penstock.streams.connectors.source",
    "SqliteSink": "penstock.streams.connectors.sqlite_sink",
    "TableRow": "penstock.streams.connectors.table_rows",
    "WebhookSource": "penstock.streams.connectors.webhook_source",
}
"""Loaded when they are used first: each needs the library of its system."""
_EXTRAS = {
    "HttpSink": "http",
    "ParquetSink": "parquet",
    "ParquetSource": "parquet",
    "PostgresSink": "postgres",
    "PostgresSource": "postgres",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"penstock.connectors has no {name!r}; it has: {', '.join(__all__)}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ImportError as exc:
        if name not in _EXTRAS:
            raise
        from penstock.state.errors import SettingsError

        raise SettingsError(
            f"{exc.name} is not installed ({exc}); run: pip install 'penstock[{_EXTRAS[name]}]'"
        ) from exc
